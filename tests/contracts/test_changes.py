"""Changes that others follow: numbered in order, each repo with its latest; on both engines alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evermirror.edge.store.writes import RepoExcused, RepoFailed, RepoHeld, RepoSynced, RepoVerified
from evermirror.errors import NotFound
from evermirror.model.access import NO_LIMITS, Role, TokenLimits
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, Mode, Priority, RepoRecord, RepoSpec, RepoStatus

A, B, C = (f"example.org/team/{name}" for name in "abc")
OLD, NEW = "ab" * 32, "cd" * 32
HELD = Failure(FailureKind.CONFLICT, "emptied")


def repo(key=A, **kwargs):
    spec = RepoSpec(key=key, url=f"https://{key}.git", host=Host("example.org"))
    return RepoRecord(spec=spec, **kwargs)


def synced(key=A, digest=OLD, at=900.0, changed=None):
    return RepoSynced(key, digest, None, 1, 77, at, changed, Activity())


def failed(key=A, status=RepoStatus.HELD, failure=HELD):
    return RepoFailed(key, failure, status, 0, 950.0)


class Follower:
    """Sees what comes after what it saw."""

    def __init__(self, store):
        self.store = store
        self.seen = 0

    async def new(self):
        found = await self.store.changes_since(self.seen, 1000)
        assert [c.seq for c in found] == sorted({c.seq for c in found})
        if found:
            assert found[0].seq > self.seen
            self.seen = found[-1].seq
        return [c.key for c in found]


@pytest.fixture
async def follower(store):
    await store.upsert_repos([repo(A), repo(B), repo(C)])
    follower = Follower(store)
    assert await follower.new() == [A, B, C]
    return follower


async def test_a_change_tells_the_repo_as_it_is(store):
    spec = replace(
        repo().spec, mode=Mode.APPEND_ONLY, private=True, credential="corp", priority=Priority.HIGH
    )
    await store.upsert_repos([replace(repo(alias="a"), spec=spec)])
    await store.apply([synced(changed=890.0), failed()])
    (change,) = await store.changes_since(0, 10)
    assert (change.spec, change.alias, change.enabled) == (spec, "a", True)
    assert (change.digest, change.verified_at, change.changed_at, change.size_bytes) == (
        OLD,
        900.0,
        890.0,
        77,
    )
    assert change.held_back
    assert not change.removed
    assert change.holders == ()


async def test_what_moves_a_repo_is_told_and_nothing_else_is(store, follower):
    await store.apply([synced(A), synced(B)])
    assert await follower.new() == [A, B]
    await store.apply([synced(A, at=910.0), RepoVerified(A, 920.0), RepoVerified(B, 920.0)])
    assert await follower.new() == []
    await store.apply([synced(A, NEW, at=930.0)])
    assert await follower.new() == [A]
    await store.apply([RepoHeld(B, OLD, 940.0), RepoHeld(A, OLD, 100.0)])  # the same; too old
    assert await follower.new() == []
    await store.apply([RepoHeld(B, NEW, 950.0)])
    assert await follower.new() == [B]


async def test_of_two_changes_the_later_one_is_told(store, follower):
    await store.apply([synced(A), synced(B)])
    await store.apply([synced(A, NEW)])
    found = await store.changes_since(follower.seen, 10)
    assert [(c.key, c.digest) for c in found] == [(B, OLD), (A, NEW)]


@pytest.mark.parametrize("end", ["synced", "verified", "other failure"])
async def test_what_a_guard_holds_back_is_told_and_that_it_no_longer_does(store, follower, end):
    await store.apply([synced(A)])
    await follower.new()
    await store.apply([failed()])
    assert [c.held_back for c in await store.changes_since(follower.seen, 9)] == [True]
    await follower.new()
    await store.apply([failed()])
    assert await follower.new() == []
    ends = {
        "synced": synced(A, at=990.0),
        "verified": RepoVerified(A, 990.0),
        "other failure": failed(status=RepoStatus.GONE, failure=Failure(FailureKind.NOT_FOUND, "gone")),
    }
    await store.apply([ends[end]])
    assert [c.held_back for c in await store.changes_since(follower.seen, 9)] == [False]


async def test_weather_and_other_failures_are_no_changes(store, follower):
    await store.apply([failed(status=None), failed(B, status=RepoStatus.FAILING), RepoExcused(B)])
    assert await follower.new() == []


@pytest.mark.parametrize(
    "change",
    [
        {"alias": "other"},
        {"enabled": False},
        {"spec": {"private": True}},
        {"spec": {"mode": Mode.APPEND_ONLY}},
        {"spec": {"url": "https://elsewhere.org/a.git"}},
        {"spec": {"fallbacks": ("https://two.org/a.git",)}},
        {"spec": {"fsck_allow": ("hasDotgit",)}},
    ],
)
async def test_configuration_that_serving_depends_on_is_told(store, follower, change):
    other = replace(repo(B), **{k: v for k, v in change.items() if k != "spec"})
    other = replace(other, spec=replace(other.spec, **change.get("spec", {})))
    await store.upsert_repos([repo(A), other])
    assert await follower.new() == [B]
    assert {c.key: c.spec for c in await store.changes_since(0, 9)}[B] == other.spec
    await store.upsert_repos([repo(A), other])
    assert await follower.new() == []


async def test_configuration_that_only_polling_depends_on_is_not(store, follower):
    slower = replace(repo(A), spec=replace(repo(A).spec, interval_s=60.0), pins=("w",), info={"x": 1})
    assert (await store.upsert_repos([slower])).updated == 1
    assert await follower.new() == []


async def test_removals_and_returns_are_told(store, follower):
    assert await store.remove_repos([B, A, A, "unknown"], 1001.0) == 2
    assert sorted(await follower.new()) == [A, B]
    assert {c.key: c.removed for c in await store.changes_since(0, 9)} == {A: True, B: True, C: False}
    assert await store.remove_repos([A], 1002.0) == 0
    assert await follower.new() == []
    await store.restore_repo(A, 1003.0)
    await store.upsert_repos([repo(B)])
    assert await follower.new() == [A, B]
    assert not any(c.removed for c in await store.changes_since(0, 9))


async def test_pages_miss_nothing_and_are_bounded(store):
    await store.upsert_repos([repo(f"example.org/{n:04}") for n in range(1500)])
    seen, after = [], 0
    while page := await store.changes_since(after, 400):
        assert len(page) <= 400
        seen += [c.key for c in page]
        after = page[-1].seq
    assert seen == [f"example.org/{n:04}" for n in range(1500)]
    assert len(await store.changes_since(0, 5000)) == 1000
    assert await store.changes_since(0, 0) == ()


async def test_numbers_are_above_all_that_a_database_gave_out_before_it_was_put_back(store, clock, follower):
    before = follower.seen
    clock.now += 3600.0
    await store.apply([synced(A)])
    (later,) = await store.changes_since(before, 9)
    assert later.seq >= 3600 * 1_000_000
    clock.now -= 7200.0  # a clock that was put back
    await store.apply([synced(B)])
    assert (await store.changes_since(later.seq, 9))[0].key == B


async def test_who_follows_while_others_write_misses_nothing(store, follower):
    async def write(key):
        for n in range(20):
            await store.apply([synced(key, f"{n:02}" * 32, at=900.0 + n)])

    async def follow():
        newest = {}
        while len(newest) < 2 or set(newest.values()) != {"19" * 32}:
            for change in await store.changes_since(follower.seen, 1):
                assert change.seq > follower.seen
                follower.seen = change.seq
                newest[change.key] = change.digest

    async with asyncio.timeout(30):
        await asyncio.gather(write(A), write(B), follow())


async def test_whoever_waits_for_changes_is_woken(store):
    woken = []
    store.on_change = lambda: woken.append(len(woken))
    await store.upsert_repos([repo(A)])
    await store.apply([synced(A)])
    await store.remove_repos([A], 1001.0)
    await store.restore_repo(A, 1002.0)
    assert len(woken) == 4


async def test_digests_are_found_by_key(store, follower):
    await store.apply([synced(A)])
    await store.remove_repos([C], 1001.0)
    assert await store.digests_of([B, A, C, "unknown", "\0"]) == {A: OLD, B: None}
    with pytest.raises(ValueError, match="at most 500"):
        await store.digests_of([A] * 501)


async def test_a_token_knows_who_runs_its_node(store):
    plain, record = await store.create_token("w", Role.WORKER, operator="Alice & sons")
    assert record.operator == "Alice & sons"
    assert (await store.find_token(plain)).operator == "Alice & sons"
    assert (await store.create_token("x", Role.WORKER))[1].operator == ""


async def test_a_token_keeps_what_its_worker_may_have(store):
    plain, record = await store.create_token("w", Role.WORKER, limits=TokenLimits(2.5, 400))
    assert (await store.find_token(plain)).limits == record.limits == TokenLimits(2.5, 400)
    assert (await store.limit_token("w", TokenLimits(capacity=7))).limits == TokenLimits(None, 7)
    assert (await store.find_token(plain)).limits == TokenLimits(None, 7)
    assert (await store.create_token("x", Role.WORKER))[1].limits == NO_LIMITS
    with pytest.raises(NotFound):
        await store.limit_token("nobody", NO_LIMITS)
