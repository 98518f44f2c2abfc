"""What the store keeps of our hooks at forges, and how it gives the catalog out, on both engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.edge.store.hook_registrations import HookScope, Lot
from evermirror.model.forge import Forge
from evermirror.model.hook import HookRegistration, RegistrationState
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec

HOSTILE = "a\0b\udc80'; DROP TABLE hook_registrations; --"
SEEN = HookRegistration(
    RepoKey("github.com/a/b"), Forge.GITHUB, RegistrationState.DRIFTED, "17", "it is switched off", 1234.5
)


def record(key: str, credential: str | None = None, *, enabled: bool = True) -> RepoRecord:
    host = Host(key.partition("/")[0])
    return RepoRecord(RepoSpec(RepoKey(key), f"https://{key}", host, credential=credential), enabled=enabled)


async def walked(store, scope: HookScope, lot: Lot, size: int) -> list[str]:
    keys: list[str] = []
    after = None
    while page := await store.hook_page(scope, lot, after, size):
        assert len(page) <= size
        keys += [repo.key for repo in page]
        after = page[-1].key
    return keys


async def test_what_was_seen_is_kept_and_replaced(store):
    other = replace(SEEN, key=RepoKey("gitee.com/a/b"), forge=Forge.GITEE, state=RegistrationState.OK)
    await store.put_registrations([SEEN, other])
    assert await store.registrations_of([SEEN.key, other.key, RepoKey("x/y")]) == {
        SEEN.key: SEEN,
        other.key: other,
    }
    gone = replace(SEEN, state=RegistrationState.REMOVED, hook_id="", problem="", checked_at=2000.0)
    await store.put_registrations([SEEN, gone])  # of the same repo the last one counts
    assert await store.registrations_of([SEEN.key]) == {SEEN.key: gone}
    await store.put_registrations([])


@pytest.mark.parametrize("state", RegistrationState)
@pytest.mark.parametrize("forge", Forge)
async def test_each_state_of_each_forge_comes_back(store, state, forge):
    seen = replace(SEEN, state=state, forge=forge)
    await store.put_registrations([seen])
    assert await store.registrations_of([seen.key]) == {seen.key: seen}


async def test_a_forges_words_are_stored_whatever_they_are(store):
    await store.put_registrations([replace(SEEN, problem=HOSTILE)])
    (known,) = (await store.registrations_of([SEEN.key])).values()
    assert known.problem.startswith("a\\x00b")
    assert await store.registrations_of([RepoKey(HOSTILE)]) == {}


async def test_many_keys_are_found_at_once(store):
    many = [replace(SEEN, key=RepoKey(f"github.com/a/r{n}")) for n in range(1200)]
    await store.put_registrations(many)
    assert len(await store.registrations_of(seen.key for seen in many)) == 1200


async def test_lots_are_the_repos_of_a_host_that_sign_in_alike(store):
    await store.upsert_repos(
        [
            record("b.org/x/1"),
            record("b.org/x/2", "own"),
            record("b.org/x/3", "own"),
            record("a.org/x/1"),
            record("a.org/x/off", enabled=False),
            record("a.org/x/gone"),
        ]
    )
    await store.remove_repos([RepoKey("a.org/x/gone")], 1000.0)
    enabled, all_of_them = HookScope(), HookScope(disabled_too=True)
    assert await store.hook_lots(enabled) == (
        Lot(Host("a.org"), None, 1),
        Lot(Host("b.org"), None, 1),
        Lot(Host("b.org"), "own", 2),
    )
    assert (await store.hook_lots(all_of_them))[0].count == 2
    lot = Lot(Host("b.org"), "own", 2)
    assert await walked(store, enabled, lot, 1) == ["b.org/x/2", "b.org/x/3"]
    assert await walked(store, all_of_them, Lot(Host("a.org"), None, 2), 10) == ["a.org/x/1", "a.org/x/off"]


async def test_a_group_ends_at_a_slash(store):
    keys = ["a.org/x", "a.org/x/1", "a.org/x/Y/2", "a.org/x-1/3", "a.org/x.y/4", "a.org/x0/5", "a.org/X/6"]
    await store.upsert_repos([record(key) for key in keys])
    for group in ("a.org/x", "a.org/x/"):
        scope = HookScope(group)
        (lot,) = await store.hook_lots(scope)
        assert lot.count == 3
        assert sorted(await walked(store, scope, lot, 2)) == ["a.org/x", "a.org/x/1", "a.org/x/Y/2"]
    assert await store.hook_lots(HookScope("a.org/%")) == ()


async def test_a_page_has_no_more_than_a_thousand(store):
    await store.upsert_repos([record(f"a.org/x/{n:05}") for n in range(1100)])
    (lot,) = await store.hook_lots(HookScope())
    assert len(await store.hook_page(HookScope(), lot, None, 10**9)) == 1000
    assert len(await walked(store, HookScope(), lot, 1000)) == 1100
