"""What the store promises, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from evermirror.edge.store import rows
from evermirror.edge.store.apply import in_groups
from evermirror.edge.store.counts import ClassCounts
from evermirror.edge.store.database import Database, parse_place
from evermirror.edge.store.migrate import migrate, pending_migrations
from evermirror.edge.store.repos import UpsertCounts
from evermirror.edge.store.store import Store
from evermirror.edge.store.tables import metadata
from evermirror.edge.store.writes import (
    Outcome,
    RepoFailed,
    RepoHeld,
    RepoSynced,
    RepoVerified,
    SkipsFolded,
    TaskEnded,
    TaskProgressed,
    TaskRecorded,
    TaskStarted,
    TokenUsed,
    writes_of,
)
from evermirror.errors import Conflict, EnvironmentUnfit, NotFound, UsageError
from evermirror.model.access import Role
from evermirror.model.activity import Activity, Rhythm
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, HeldRepo, Kept, Progress, Released, Started, Synced, Verified
from evermirror.model.refs import RefChange
from evermirror.model.repo import Host, Mode, Priority, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from evermirror.model.worker import AggregatorRecord
from evermirror.nodes.service import RepoFilter
from tests.support.known_repos import known_repos
from tests.support.migrated import FIRST, add_step

A, B = "example.org/team/a", "example.org/team/b"
KNOWN = Activity((1.0, 2.0, 3.0), 900.0, 890.0, Rhythm(3.0, 1.5 - 0.25j, -0.5 + 2j))
DIGEST = "ab" * 32
HEAD = "c" * 40
HOSTILE = "é日本\U0001f680 %_\\'\";--\r\n\x00\x1b[31m\udcff\ud800"


def failures_by_kind(counts):
    return {one.kind: one.repos for one in counts.failures}


def repo(key=A, **kwargs):
    spec_names = ("priority", "interval_s", "mode", "private", "credential")
    spec = {n: kwargs.pop(n) for n in spec_names if n in kwargs}
    url = kwargs.pop("url", f"https://{key}")
    host = kwargs.pop("host", key.split("/")[0])
    return RepoRecord(RepoSpec(key, url, Host(host), **spec), **kwargs)


def synced(key=A, **kwargs):
    return RepoSynced(
        **{
            "key": key,
            "digest": DIGEST,
            "head_commit": HEAD,
            "refs_count": 3,
            "size_bytes": 1 << 40,
            "verified_at": 950.0,
            "changed_at": 951.0,
            "activity": KNOWN,
        }
        | kwargs
    )


def failed(key=A, *, kind=FailureKind.NETWORK_TIMEOUT, status=RepoStatus.FAILING, failures=1, at=960.0):
    return RepoFailed(key, Failure(kind, "no answer"), status, failures, at)


# Repos


async def test_a_repo_comes_back_as_it_was_given(store):
    given_record = repo(
        alias="team/core",
        source="list:urls.txt",
        info={"a": [1, 2.5, None, {"b": "ü\0"}]},
        priority=Priority.CRITICAL,
        interval_s=600.0,
        mode=Mode.APPEND_ONLY,
        private=True,
        credential="corp",
    )
    assert await store.upsert_repos([given_record]) == UpsertCounts(added=1)
    expected = replace(given_record, created_at=1000.0, updated_at=1000.0)
    assert await store.find_repo(A) == expected
    assert await store.find_repo("team/core") == expected
    assert await store.find_repo("example.org/team") is None


async def test_of_new_repos_those_nobody_looked_at_are_written_as_all_others(store):
    learnt = {
        "digest": DIGEST,
        "head_commit": HEAD,
        "refs_count": 3,
        "size_bytes": 1 << 40,
        "verified_at": 950.0,
        "changed_at": 951.0,
        "consecutive_failures": 2,
        "last_failure": Failure(FailureKind.NETWORK_TIMEOUT, "no answer"),
        "last_failure_at": 960.0,
    }
    said = {"spec", "alias", "source", "pins", "info", "enabled", "status", "created_at", "updated_at"}
    said.add("fsck_reason")
    assert {field.name for field in fields(RepoRecord)} == said | learnt.keys()
    new = [repo(A), repo(B, enabled=False, status=RepoStatus.ACTIVE)]
    one_each = [repo(f"example.org/{name}", **{name: value}) for name, value in learnt.items()]
    taught = [*one_each, repo("example.org/all", status=RepoStatus.FAILING, **learnt)]
    given_records = [new[0], *taught, new[1]]
    counts = await store.upsert_repos(given_records)
    assert counts == UpsertCounts(added=12)
    assert set(counts.moved) == {record.key for record in given_records}
    async with store._db.read() as c:
        found = {row.key: row._mapping for row in await c.execute(sa.select(metadata.tables["repos"]))}
    for record in given_records:
        expected = rows.config_in(record) | rows.state_in(record)
        assert {name: found[record.key][name] for name in expected} == expected
        assert (found[record.key]["created_at"], found[record.key]["updated_at"]) == (1000.0, 1000.0)
    assert len({row["change_seq"] for row in found.values()}) == 12


async def test_upsert_counts_and_keeps_what_reports_taught(store, clock):
    await store.upsert_repos([repo(A), repo(B)])
    await store.apply([synced(A)])
    clock.now = 2000.0
    counts = await store.upsert_repos([repo(A, priority=Priority.LOW), repo(B), repo("example.org/c")])
    assert counts == UpsertCounts(added=1, updated=1, unchanged=1)
    found = await store.find_repo(A)
    assert found.spec.priority is Priority.LOW
    assert found.digest == DIGEST
    assert (found.created_at, found.updated_at) == (1000.0, 2000.0)
    assert (await store.find_repo(B)).updated_at == 1000.0


async def test_of_two_records_for_one_key_the_last_counts(store):
    counts = await store.upsert_repos([repo(A), repo(A, priority=Priority.HIGH)])
    assert counts == UpsertCounts(added=1)
    assert (await store.find_repo(A)).spec.priority is Priority.HIGH


async def test_a_removed_repo_leaves_lists_and_counts_but_is_remembered(store):
    await store.upsert_repos([repo(A, alias="x"), repo(B)])
    await store.apply([synced(A)])
    assert await store.remove_repos([A, A, "example.org/unknown"], at=1500.0) == 1
    assert await store.remove_repos([A], at=1600.0) == 0
    assert await store.find_repo(A) is None
    assert await store.find_repo("x") is None
    assert [r.key for r in await store.list_repos(RepoFilter())] == [B]
    assert [k.spec.key for k in await known_repos(store)] == [B]
    assert (await store.overview_counts(0.0)).total == 1
    remembered = await store.find_repo(A, removed=True)
    assert remembered.status is RepoStatus.INACTIVE
    assert remembered.digest == DIGEST
    await store.apply([RepoVerified(A, 1700.0)])
    assert (await store.find_repo(A, removed=True)).status is RepoStatus.INACTIVE


async def test_a_removed_repo_can_come_back_by_restore_or_by_the_catalog(store):
    await store.upsert_repos([repo(A), repo(B)])
    await store.apply([synced(A)])
    await store.remove_repos([A, B], at=1500.0)
    assert (await store.restore_repo(A, 1600.0)).status is RepoStatus.ACTIVE
    assert await store.upsert_repos([repo(B)]) == UpsertCounts(added=1)
    assert (await store.find_repo(B)).status is RepoStatus.PENDING
    with pytest.raises(NotFound):
        await store.restore_repo("example.org/unknown", 1.0)


async def test_a_disabled_repo_is_inactive_until_enabled_again(store):
    await store.upsert_repos([repo(A, enabled=False), repo(B)])
    await store.apply([synced(A), failed(A), RepoVerified(A, 999.0)])
    assert (await store.find_repo(A)).status is RepoStatus.INACTIVE
    assert [k.spec.key for k in await known_repos(store)] == [B]
    await store.upsert_repos([repo(A)])
    assert (await store.find_repo(A)).status is RepoStatus.ACTIVE


async def test_an_alias_names_one_repo_of_the_catalog(store):
    await store.upsert_repos([repo(A, alias="x")])
    with pytest.raises(Conflict):
        await store.upsert_repos([repo("example.org/new"), repo(B, alias="x")])
    assert await store.find_repo("example.org/new") is None  # all or nothing
    await store.remove_repos([A], at=1.0)
    await store.upsert_repos([repo(B, alias="x")])
    assert (await store.find_repo("x")).key == B
    with pytest.raises(Conflict):
        await store.restore_repo(A, 2.0)


async def test_aliases_go_from_one_repo_to_another_whatever_else_changes_of_them(store):
    """Rows are written together by what changes of them, and an alias must be free when it is taken."""
    c = "example.org/team/c"
    await store.upsert_repos([repo(A), repo(B, alias="x"), repo(c)])
    moved = [repo(A, priority=Priority.LOW), repo(B), repo(c, alias="x", priority=Priority.LOW)]
    moved[0] = replace(moved[0], alias="y")
    assert await store.upsert_repos(moved) == UpsertCounts(updated=3)
    assert (await store.find_repo("x")).key == c
    assert (await store.find_repo("y")).key == A


async def test_what_is_not_changed_of_a_repo_is_not_written(store):
    """Every column that a statement names costs its indexes, of a million rows minutes."""
    await store.upsert_repos([repo(A, alias="x", credential="c"), repo(B)])
    await store.apply([RepoVerified(A, 900.0)])
    before = await store.find_repo(A)
    written = []
    engine = store._db._writer.sync_engine

    def note(connection, cursor, statement, *_):
        written.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    record = replace(before, spec=replace(before.spec, priority=Priority.HIGH))
    assert await store.upsert_repos([record, repo(B)]) == UpsertCounts(updated=1, unchanged=1)
    sa.event.remove(engine, "before_cursor_execute", note)
    (update,) = (text for text in written if text.startswith("UPDATE repos"))
    named = update[: update.index("WHERE")]
    assert "priority=" in named
    assert not [name for name in ("host=", "alias=", "removed_at=", "verified_at=") if name in named]
    after = await store.find_repo(A)
    assert after == replace(record, updated_at=after.updated_at)


async def test_a_key_goes_before_an_alias_that_is_spelt_alike(store):
    await store.upsert_repos([repo(A), repo(B, alias=A)])
    assert (await store.find_repo(A)).key == A


async def test_what_earlier_holders_knew_of_a_repo_is_kept(store):
    await store.upsert_repos([repo(f"example.org/{i}") for i in range(7)])
    await store.apply([synced("example.org/5")])
    known = {k.spec.key: k for k in await known_repos(store)}
    assert known["example.org/5"].activity == KNOWN
    assert known["example.org/5"].digest == DIGEST
    assert known["example.org/4"].digest is None


async def test_hours_that_are_known_stay_where_an_older_worker_tells_none(store):
    await store.upsert_repos([repo(A)])
    await store.apply([synced()])
    older = Activity((4.0, 5.0, 6.0), 970.0, 960.0)
    await store.apply([synced(activity=older, verified_at=980.0)])
    assert await activity_of(store, A) == replace(older, rhythm=KNOWN.rhythm)
    newer = replace(older, rhythm=Rhythm(4.0, 1j, -1 + 0j))
    await store.apply([synced(activity=newer, verified_at=990.0)])
    assert await activity_of(store, A) == newer


async def test_counts_that_are_less_than_none_are_read_as_none(store):
    await store.upsert_repos([repo(A)])
    await store.apply([synced(activity=replace(KNOWN, counts=(-5.0, 2.0, -0.001)))])
    assert await activity_of(store, A) == replace(KNOWN, counts=(0.0, 2.0, 0.0))


async def activity_of(store, key):
    return {k.spec.key: k.activity for k in await known_repos(store)}[key]


# Lists

_NAMES = st.text(alphabet="abAB%_\\/é.", min_size=1, max_size=6)


def dumb_page(records, which):
    """The obvious way: all of them, filtered, sorted, cut."""

    def lower(text):  # ASCII only, as the store promises
        return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)

    def matches(r):
        texts = (r.key, r.spec.url, r.alias or "")
        return (
            any(lower(which.search) in lower(t) for t in texts)
            and which.status in (None, r.status)
            and which.host in ("", r.spec.host)
            and (which.after is None or r.key > which.after)
        )

    return [r.key for r in sorted(records, key=lambda r: r.key) if matches(r)][: which.limit]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    names=st.dictionaries(_NAMES, st.tuples(st.sampled_from("xy"), st.none() | _NAMES), max_size=12),
    search=st.text(alphabet="abA%_\\/é", max_size=2),
    status=st.none() | st.sampled_from([RepoStatus.PENDING, RepoStatus.INACTIVE, RepoStatus.ACTIVE]),
    host=st.sampled_from(["", "x", "y", "%"]),
    limit=st.integers(1, 5),
)
def test_paging_sees_what_the_dumb_twin_sees(pages, names, search, status, host, limit):
    aliases = set()
    records = []
    for name, (on_host, alias) in names.items():
        alias = None if alias in aliases else alias
        aliases.add(alias)
        enabled = len(name) % 2 == 0
        status_now = RepoStatus.PENDING if enabled else RepoStatus.INACTIVE
        records.append(
            repo(name, host=on_host, url="u://" + name, alias=alias, enabled=enabled, status=status_now)
        )
    which = RepoFilter(search=search, status=status, host=host, limit=limit)
    seen, expected = pages(records, which), dumb_page(records, replace(which, limit=1000))
    assert [r for page in seen for r in page] == expected
    assert all(len(page) == limit for page in seen[:-1])


@pytest.fixture
def pages(url):
    """Pages through a store that holds exactly these records, from synchronous hypothesis."""
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(Store.open(url))

    async def walk(records, which):
        async with store._db.write() as c:
            await c.execute(sa.text("DELETE FROM repos"))
        await store.upsert_repos(records)
        found = []
        while page := await store.list_repos(which):
            found.append([r.key for r in page])
            which = replace(which, after=page[-1].key)
        return found

    yield lambda records, which: loop.run_until_complete(walk(records, which))
    loop.run_until_complete(store.close())
    loop.close()


async def test_a_list_is_bounded(store):
    await store.upsert_repos([repo(f"example.org/{i:05}") for i in range(1100)])
    assert len(await store.list_repos(RepoFilter(limit=10**9))) == 1000
    assert await store.list_repos(RepoFilter(limit=0)) == ()
    assert await store.list_repos(RepoFilter(limit=-5)) == ()


# Hostile strings


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b", "x" * 2049, "é" * 1025])
async def test_names_that_cannot_be_kept_exactly_are_refused_and_nothing_is_changed(store, bad):
    for record in (
        repo(bad, host="h"),
        repo(url=bad),
        repo(alias=bad),
        repo(source=bad),
        repo(credential=bad),
    ):
        with pytest.raises(UsageError):
            await store.upsert_repos([repo(B), record])
    with pytest.raises(UsageError):
        await store.upsert_repos([repo(host=bad)])
    with pytest.raises(UsageError):
        await store.create_token(bad, Role.READER)
    with pytest.raises(UsageError):
        await store.create_task(bad, Trigger.API)
    assert (await store.overview_counts(0.0)).total == 0


@pytest.mark.parametrize("text", [HOSTILE, "\0", "\ud800", "x" * 100_000, "%", "'; DROP TABLE repos; --"])
async def test_looking_for_a_hostile_string_finds_nothing_and_harms_nothing(store, text):
    await store.upsert_repos([repo(A)])
    assert await store.find_repo(text) is None
    assert await store.list_repos(RepoFilter(search=text)) == ()
    assert await store.list_repos(RepoFilter(host=text)) == ()
    await store.list_repos(RepoFilter(after=text))
    assert await store.open_tasks(text) == ()
    assert await store.list_tasks(text, 5) == ()
    assert await store.find_token(text) is None
    assert await store.remove_repos([text], 1.0) == 0
    with pytest.raises(NotFound):
        await store.revoke_token(text)
    with pytest.raises(NotFound):
        await store.restore_repo(text, 1.0)
    await store.apply([RepoVerified(text, 5.0), synced(text), failed(text), SkipsFolded(text, 1, 5.0)])
    assert (await store.find_repo(A)).status is RepoStatus.PENDING


async def test_the_longest_names_fit_the_indexes(store):
    # Random text, because PostgreSQL would squeeze a repeated letter below its limit.
    key = "".join(chr(0x4E00 + (i * 7919) % 20000) for i in range(682))
    record = repo(key, url="u" * 2048, host="h" * 300, alias=key[::-1])
    await store.upsert_repos([record])
    assert (await store.find_repo(key[::-1])).key == key


async def test_failures_keep_every_character_that_upstream_sent(store):
    failure = Failure(
        FailureKind.UNKNOWN, HOSTILE, HOSTILE, 1.5, HOSTILE, HOSTILE, HOSTILE, True, {"k" + HOSTILE: HOSTILE}
    )
    await store.upsert_repos([repo(A, info={HOSTILE: HOSTILE})])
    task = await store.create_task(A, Trigger.API, user=HOSTILE, params={HOSTILE: HOSTILE})
    await store.apply(
        [
            RepoFailed(A, failure, RepoStatus.FAILING, 1, 5.0),
            TaskProgressed(task.id, HOSTILE, 5.0, 5.0),
            TaskEnded(task.id, Outcome(TaskStatus.FAILED, 4.0, 5.0, result={"r": HOSTILE}, failure=failure)),
        ]
    )
    found = await store.find_repo(A)
    assert found.last_failure == failure
    assert found.info == {HOSTILE: HOSTILE}
    task = await store.get_task(task.id)
    assert task.failure == failure
    assert task.result == {"r": HOSTILE}
    assert task.params == {HOSTILE: HOSTILE}
    assert task.user.startswith("é日本\U0001f680 %_\\'\";--")
    assert "\\x00" in task.user


async def test_what_is_not_json_is_refused(store):
    for info in ({"x": float("nan")}, {"x": object()}, {"x": {1, 2}}):
        with pytest.raises(UsageError):
            await store.upsert_repos([repo(A, info=info)])


# Results


async def test_a_sync_is_remembered_whole(store):
    await store.upsert_repos([repo(A)])
    await store.apply([failed(A), synced(A)])
    found = await store.find_repo(A)
    assert found.status is RepoStatus.ACTIVE
    assert (found.digest, found.head_commit, found.refs_count, found.size_bytes) == (DIGEST, HEAD, 3, 1 << 40)
    assert (found.verified_at, found.changed_at) == (950.0, 951.0)
    assert found.consecutive_failures == 0
    assert found.last_failure is not None  # what went wrong last stays to be read
    await store.apply([synced(A, changed_at=None, verified_at=990.0)])
    found = await store.find_repo(A)
    assert (found.verified_at, found.changed_at) == (990.0, 951.0)


@pytest.mark.parametrize("status", [RepoStatus.FAILING, RepoStatus.GONE, RepoStatus.AUTH, RepoStatus.HELD])
async def test_a_failure_shows_until_the_next_verification(store, status):
    await store.upsert_repos([repo(A)])
    await store.apply([synced(A), failed(A, status=status, failures=4)])
    found = await store.find_repo(A)
    assert (found.status, found.consecutive_failures, found.last_failure_at) == (status, 4, 960.0)
    assert failures_by_kind(await store.overview_counts(0.0)) == {"NETWORK_TIMEOUT": 1}
    await store.apply([RepoVerified(A, 970.0)])
    found = await store.find_repo(A)
    assert (found.status, found.consecutive_failures) == (RepoStatus.ACTIVE, 0)
    assert failures_by_kind(await store.overview_counts(0.0)) == {}


async def test_weather_leaves_the_status_alone(store):
    await store.upsert_repos([repo(A), repo(B)])
    await store.apply([synced(A), failed(A, status=None, failures=0), failed(B, status=None, failures=0)])
    assert (await store.find_repo(A)).status is RepoStatus.ACTIVE
    assert (await store.find_repo(B)).status is RepoStatus.PENDING
    assert failures_by_kind(await store.overview_counts(0.0)) == {"NETWORK_TIMEOUT": 2}


async def test_older_knowledge_does_not_replace_newer(store):
    await store.upsert_repos([repo(A), repo(B)])
    await store.apply([synced(A), RepoVerified(A, 940.0), RepoHeld(A, "00" * 32, 930.0)])
    found = await store.find_repo(A)
    assert (found.verified_at, found.digest) == (950.0, DIGEST)
    await store.apply([RepoHeld(B, DIGEST, 930.0)])
    found = await store.find_repo(B)
    assert (found.verified_at, found.digest, found.status) == (930.0, DIGEST, RepoStatus.ACTIVE)


async def test_counts_of_the_overview(store):
    records = [
        repo(f"example.org/{i}", priority=Priority.HIGH if i < 2 else Priority.NORMAL) for i in range(6)
    ]
    await store.upsert_repos(records)
    await store.apply(
        [
            synced("example.org/0", verified_at=500.0),
            synced("example.org/1", verified_at=990.0),
            synced("example.org/2", verified_at=100.0),
            failed("example.org/2", kind=FailureKind.NOT_FOUND, status=RepoStatus.GONE),
            failed("example.org/3"),
        ]
    )
    counts = await store.overview_counts(500.0)
    assert counts.total == 6
    assert {k: v for k, v in counts.by_status.items() if v} == {
        "active": 2,
        "gone": 1,
        "failing": 1,
        "pending": 2,
    }
    assert counts.by_priority == {"critical": 0, "high": 2, "normal": 4, "low": 0}
    assert failures_by_kind(counts) == {"NOT_FOUND": 1, "NETWORK_TIMEOUT": 1}
    assert (counts.fresh, counts.oldest_verified_at, counts.never_verified) == (2, 500.0, 3)
    assert counts.classes == {
        Priority.CRITICAL: ClassCounts(),
        Priority.HIGH: ClassCounts(live=2, fresh=2, oldest_verified_at=500.0),
        Priority.NORMAL: ClassCounts(live=3, never_verified=3),
        Priority.LOW: ClassCounts(),
    }


async def test_only_live_repos_are_fresh(store):
    """The share that is told is of live ones: gone ones that still count would hide as many stale ones."""
    ends = {
        "auth": failed("example.org/auth", kind=FailureKind.AUTH_FAILED, status=RepoStatus.AUTH),
        "gone": failed("example.org/gone", kind=FailureKind.NOT_FOUND, status=RepoStatus.GONE),
        "failing": failed("example.org/failing"),
    }
    names = [*ends, "stale", "active", "inactive"]
    await store.upsert_repos([repo(f"example.org/{name}") for name in names])
    times = {name: 1.0 if name == "stale" else 990.0 for name in names}
    await store.apply([synced(f"example.org/{name}", verified_at=at) for name, at in times.items()])
    assert (await store.overview_counts(900.0)).fresh == 5
    await store.apply([*ends.values()])
    await store.upsert_repos([repo("example.org/inactive", enabled=False)])
    told = {k: v for k, v in (await store.overview_counts(0.0)).by_status.items() if v}
    assert told == {"active": 2, "failing": 1, "gone": 1, "auth": 1, "inactive": 1}
    assert (await store.overview_counts(900.0)).fresh == 2
    assert (await store.overview_counts(900.0)).oldest_verified_at == 1.0
    await store.upsert_repos([repo("example.org/inactive")])
    assert (await store.overview_counts(900.0)).fresh == 3


KEYS = st.sampled_from([A, B])
TIMES = st.floats(1, 1000)
OUTCOMES = st.sampled_from(
    [Outcome(TaskStatus.SUCCESS, 1.0, 2.0, HEAD, True, 7, {"x": 1}), Outcome(TaskStatus.SKIPPED, 3.0, 4.0)]
)
IDS = st.integers(1, 3)
WRITES = st.one_of(
    st.builds(RepoVerified, KEYS, TIMES),
    st.builds(lambda k, t: synced(k, verified_at=t), KEYS, TIMES),
    st.builds(
        lambda k, t, s: failed(k, at=t, status=s), KEYS, TIMES, st.sampled_from([None, RepoStatus.GONE])
    ),
    st.builds(RepoHeld, KEYS, st.sampled_from([DIGEST, "00" * 32]), TIMES),
    st.builds(TaskStarted, IDS, TIMES),
    st.builds(TaskProgressed, IDS, st.sampled_from(["clone", "check"]), st.none() | st.floats(0, 100), TIMES),
    st.builds(TaskEnded, IDS, OUTCOMES),
    st.builds(TaskRecorded, KEYS, OUTCOMES),
    st.builds(SkipsFolded, KEYS, st.integers(1, 3), TIMES),
    st.builds(TokenUsed, IDS, TIMES),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(batch=[RepoVerified(A, 1.0), RepoVerified(A, 2.0)])
@example(batch=[RepoVerified(A, 2.0), RepoVerified(A, 1.0), failed(A), RepoVerified(A, 3.0)])
@given(batch=st.lists(WRITES, max_size=12))
def test_a_batch_does_what_its_writes_do_one_by_one(outcomes, batch):
    together, one_by_one = outcomes(batch)
    assert together == one_by_one


@pytest.fixture
def outcomes(url):
    """Everything in the tables after a batch, and after the same writes each in its own transaction."""
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(Store.open(url, clock=lambda: 1.0))

    async def after(batches):
        async with store._db.write() as c:
            for table in ("repos", "tasks", "tokens"):
                await c.execute(sa.text(f"DELETE FROM {table}"))  # noqa: S608
        await store.upsert_repos([repo(A), repo(B)])
        ids = [(await store.create_task(A, Trigger.API)).id for _ in range(3)]
        for batch in batches:
            # The writes speak of tasks 1 to 3: of these three.
            await store.apply([replace(w, id=ids[w.id - 1]) if hasattr(w, "id") else w for w in batch])
        # Ids of rows made in one batch follow its groups; what matters is the order within a repo.
        tasks = [[replace(t, id=0) for t in await store.list_tasks(key, 100)] for key in (A, B)]
        return [await store.find_repo(A), await store.find_repo(B)], tasks

    def both(batch):
        together = loop.run_until_complete(after([batch]))
        return together, loop.run_until_complete(after([[w] for w in batch]))

    yield both
    loop.run_until_complete(store.close())
    loop.close()


@given(st.lists(WRITES, max_size=40))
def test_groups_have_one_type_and_keep_the_order_of_each_row(batch):
    groups = in_groups(batch)
    assert all(len({type(w) for w in group}) == 1 for group in groups)
    flat = [w for group in groups for w in group]
    assert sorted(map(repr, flat)) == sorted(map(repr, batch))

    def of(writes, name, value):
        return [w for w in writes if getattr(w, name, None) == value]

    for name, values in (("key", [A, B]), ("repo", [A, B])):
        for value in values:
            assert of(flat, name, value) == of(batch, name, value)


async def test_every_report_can_be_stored(store):
    await store.upsert_repos([repo(A), repo(B)])
    ids = tuple([(await store.create_task(A, Trigger.API)).id for _ in range(2)])
    change = RefChange("refs/heads/\udcff\0", None, HEAD)
    done = Synced(
        A, ids, DIGEST, HEAD, 3, (change,), 1, 5, 10, 20, True, 1.0, 2.0, 3.0, Activity(), (("fetch", 0.5),)
    )
    wrong = Failed(B, (), Failure(FailureKind.NOT_FOUND, "gone"), True, 1, 1.0, 2.0, 99.0)
    reports = [
        Started(A, ids, 1.0),
        Progress(A, ids, "Receiving objects", 40.0, 1000, 1.5),
        done,
        replace(done, task_ids=(), first=False),
        wrong,
        replace(wrong, counted=False),
        Verified(((A, 5.0),)),
        Kept((HeldRepo(B, DIGEST, 1.0), HeldRepo(A, None, None))),
        Released((B,)),
    ]
    for report in reports:
        await store.apply(writes_of(report))
    for task_id in ids:
        task = await store.get_task(task_id)
        assert task.status is TaskStatus.SUCCESS
        assert (task.started_at, task.completed_at, task.changes_count, task.has_changes) == (
            1.0,
            3.0,
            5,
            True,
        )
        assert task.result["changes"] == [{"ref": "refs/heads/\udcff\0", "old": None, "new": HEAD}]
        assert (task.progress_phase, task.progress_percent) == ("Receiving objects", 40.0)
    newest = (await store.list_tasks(A, 1))[0]
    assert (newest.trigger, newest.status, newest.repo) == (Trigger.SCHEDULE, TaskStatus.SUCCESS, A)
    (task,) = await store.list_tasks(B, 10)  # the one that did not count left no row
    assert (task.status, task.failure) == (TaskStatus.FAILED, wrong.failure)
    assert (await store.find_repo(B)).status is RepoStatus.GONE


# Tasks


async def test_tasks_from_creation_to_the_end(store, clock):
    task = await store.create_task(A, Trigger.WEBHOOK, user="ann", params={"force": True})
    assert (task.status, task.user, task.params) == (TaskStatus.PENDING, "ann", {"force": True})
    assert (task.created_at, task.scheduled_at) == (1000.0, 1000.0)
    assert await store.get_task(task.id) == task
    await store.apply([TaskStarted(task.id, 1001.0)])
    running = await store.get_task(task.id)
    assert (running.status, running.started_at) == (TaskStatus.RUNNING, 1001.0)
    assert await store.open_tasks(A) == (running,)
    assert await store.unfinished_tasks() == (running,)
    ended = Outcome(TaskStatus.SUCCESS, 1001.0, 1002.0, HEAD, True, 3, {"x": 1})
    await store.apply([TaskEnded(task.id, ended)])
    assert await store.open_tasks(A) == ()
    await store.apply([TaskStarted(task.id, 1.0), TaskEnded(task.id, Outcome(TaskStatus.FAILED, 1.0, 1.0))])
    assert (await store.get_task(task.id)).status is TaskStatus.SUCCESS  # an end is an end


async def test_unknown_task_ids_are_told_as_none(store):
    for task_id in (0, -1, 12345, 2**63, 10**30):
        assert await store.get_task(task_id) is None


async def test_task_lists_are_newest_first_and_page(store):
    ids = [(await store.create_task(A, Trigger.API)).id for _ in range(5)]
    await store.create_task(B, Trigger.API)
    assert [t.id for t in await store.list_tasks(A, 2)] == [ids[4], ids[3]]
    assert [t.id for t in await store.list_tasks(A, 9, before=ids[3])] == [ids[2], ids[1], ids[0]]
    assert len(await store.list_tasks(A, 9, before=10**30)) == 5


async def test_task_ids_are_not_used_again_after_cleaning(store, clock):
    old = await store.create_task(A, Trigger.API)
    await store.apply([TaskEnded(old.id, Outcome(TaskStatus.SUCCESS, 1.0, 2.0))])
    open_task = await store.create_task(A, Trigger.API)
    assert await store.cleanup_tasks(older_than=5000.0) == 1
    assert await store.get_task(old.id) is None
    assert await store.get_task(open_task.id) == open_task
    await store.apply([TaskEnded(open_task.id, Outcome(TaskStatus.SUCCESS, 1.0, 2.0))])
    assert await store.cleanup_tasks(older_than=5000.0) == 1
    assert (await store.create_task(A, Trigger.API)).id > open_task.id


async def test_cleaning_goes_on_until_all_old_tasks_are_gone(store, monkeypatch):
    monkeypatch.setattr("evermirror.edge.store.tasks.CLEANUP_CHUNK", 4)
    await store.apply([TaskRecorded(A, Outcome(TaskStatus.SUCCESS, 1.0, float(i))) for i in range(10)])
    assert await store.cleanup_tasks(older_than=9.0) == 9
    assert len(await store.list_tasks(A, 100)) == 1


async def test_runs_of_skips_are_one_row(store):
    await store.apply([SkipsFolded(A, 2, 10.0), SkipsFolded(A, 3, 20.0), SkipsFolded(B, 1, 5.0)])
    (task,) = await store.list_tasks(A, 10)
    assert (task.status, task.folded, task.started_at, task.completed_at) == (
        TaskStatus.SKIPPED,
        4,
        10.0,
        20.0,
    )
    await store.apply([TaskRecorded(A, Outcome(TaskStatus.SUCCESS, 21.0, 22.0)), SkipsFolded(A, 1, 30.0)])
    assert [t.status.value for t in await store.list_tasks(A, 10)] == ["skipped", "success", "skipped"]


# Tokens, audit, settings


async def test_a_token_is_shown_once_and_kept_as_a_hash(store, clock):
    assert not await store.any_tokens()
    plain, record = await store.create_token("ci", Role.SUBMITTER, trusted=True)
    assert plain.startswith("em_")
    assert len(plain) == 3 + 43
    assert (record.name, record.role, record.trusted, record.created_at) == (
        "ci",
        Role.SUBMITTER,
        True,
        1000.0,
    )
    assert await store.find_token(plain) == record
    assert await store.find_token(plain + "x") is None
    assert await store.any_tokens()
    await store.apply([TokenUsed(record.id, 1005.0)])
    assert [t.last_used_at for t in await store.list_tokens()] == [1005.0]
    async with store._db.read() as c:
        everything = str((await c.execute(sa.text("SELECT * FROM tokens"))).all())
    assert plain not in everything
    assert plain[3:] not in everything


async def test_a_revoked_token_is_refused_and_its_name_is_free(store):
    plain, first = await store.create_token("ci", Role.ADMIN)
    with pytest.raises(Conflict):
        await store.create_token("ci", Role.ADMIN)
    assert (await store.revoke_token("ci")).revoked_at == 1000.0
    assert [token.name for token in await store.tokens_revoked_since(1000.0)] == ["ci"]
    assert await store.tokens_revoked_since(1000.5) == ()
    assert await store.find_token(plain) is None
    assert not await store.any_tokens()
    _, second = await store.create_token("ci", Role.READER)
    assert (await store.revoke_token(second.id)).id == second.id
    for unknown in ("ci", "other", first.id, 10**30, -1):
        with pytest.raises(NotFound):
            await store.revoke_token(unknown)
    assert len(await store.list_tokens()) == 2


async def test_old_entries_of_the_audit_log_and_tokens_revoked_long_ago_are_removed(
    store, clock, monkeypatch
):
    monkeypatch.setattr("evermirror.edge.store.audit.CLEANUP_CHUNK", 3)
    for n in range(8):
        await store.audit("ann", "token.revoked", f"old {n}")
    for name in ("old", "bound", "live"):
        await store.create_token(name, Role.AGGREGATOR)
    _, bound, _ = await store.list_tokens()
    await store.put_aggregator(AggregatorRecord(bound.id, "a"))
    await store.revoke_token("old")
    await store.revoke_token("bound")
    clock.now += 100.0
    await store.create_token("late", Role.READER)
    await store.revoke_token("late")
    await store.audit("ann", "token.revoked", "late")
    assert await store.cleanup_audit(1050.0) == 8
    assert [entry.subject for entry in await store.list_audit(100)] == ["late"]
    assert await store.cleanup_tokens(1050.0) == 1
    assert [token.name for token in await store.list_tokens()] == ["bound", "live", "late"]
    assert (await store.cleanup_audit(1050.0), await store.cleanup_tokens(1050.0)) == (0, 0)
    _, new = await store.create_token("new", Role.READER)
    assert new.id == 5, "no id is given twice: nodes are known by them"


async def test_tokens_of_nodes_are_nobodys_who_signs_in(store):
    await store.create_token("w", Role.WORKER)
    await store.create_token("a", Role.AGGREGATOR)
    assert await store.any_tokens()
    assert not await store.any_user_token()
    _, token = await store.create_token("r", Role.READER)
    assert await store.any_user_token()
    await store.revoke_token(token.id)
    assert not await store.any_user_token()


async def test_it_is_known_whether_a_private_repo_is_in_the_catalog(store):
    await store.upsert_repos([repo(A)])
    assert not await store.any_private_repo()
    private = repo(A)
    private = replace(private, spec=replace(private.spec, private=True))
    await store.upsert_repos([private])
    assert await store.any_private_repo()
    await store.remove_repos([A], 5.0)
    assert not await store.any_private_repo()


async def test_the_audit_log_is_newest_first(store, clock):
    for i in range(3):
        clock.now = 1000.0 + i
        await store.audit("ann" + HOSTILE, "repo.add", f"{A}{i}", {"n": i, "x": HOSTILE})
    newest, middle = await store.list_audit(2)
    assert (newest.at, newest.action, newest.subject, newest.detail) == (
        1002.0,
        "repo.add",
        f"{A}2",
        {"n": 2, "x": HOSTILE},
    )
    assert [r.subject for r in await store.list_audit(5, before=middle.id)] == [f"{A}0"]


async def test_settings_are_kept(store):
    assert await store.get_setting("x") is None
    await store.put_setting("x", {"a": 1})
    await store.put_setting("x", {"a": 2})
    assert await store.get_setting("x") == {"a": 2}


async def test_pins_and_fallbacks_are_kept_and_a_change_of_them_is_one(store):
    plain = repo(A)
    pinned = replace(plain, pins=("w1", "7"), spec=replace(plain.spec, fallbacks=("https://m.example/a",)))
    assert (await store.upsert_repos([plain])).added == 1
    assert (await store.upsert_repos([pinned])).updated == 1
    assert (await store.upsert_repos([pinned])).unchanged == 1
    found = await store.find_repo(A)
    assert (found.pins, found.spec.fallbacks) == (("w1", "7"), ("https://m.example/a",))
    assert [known.spec for known in await known_repos(store)] == [pinned.spec]


async def test_what_is_allowed_of_objects_is_kept_with_its_reason(store):
    plain = repo(A)
    allowed = replace(
        plain, fsck_reason="wie früher: 1 > 0", spec=replace(plain.spec, fsck_allow=("hasDot", "hasDotgit"))
    )
    assert (await store.upsert_repos([plain])).added == 1
    assert (await store.upsert_repos([allowed])).updated == 1
    found = await store.find_repo(A)
    assert (found.spec, found.fsck_reason) == (allowed.spec, allowed.fsck_reason)
    assert (await store.upsert_repos([replace(allowed, fsck_reason="another")])).updated == 1
    assert (await store.upsert_repos([plain])).updated == 1
    found = await store.find_repo(A)
    assert (found.spec.fsck_allow, found.fsck_reason) == ((), None)


async def test_where_repos_came_from_and_what_was_said_of_them(store):
    from_catalog = [replace(repo(f"c.example/{n}"), source="catalog") for n in range(1200)]
    said = replace(repo("c.example/said"), source="catalog", info={"priority": "high"})
    by_api = replace(repo("a.example/x"), source="api")
    await store.upsert_repos([*from_catalog, said, by_api])
    await store.remove_repos(["a.example/x", "c.example/5"], 1.0)
    known = await store.known([r.key for r in from_catalog] + ["nobody.example/x"])
    assert len(known) == 1200
    assert (known["c.example/5"].in_catalog, known["c.example/6"].in_catalog) == (False, True)
    known = await store.known()
    assert {key: (k.source, dict(k.info), k.in_catalog) for key, k in known.items()} == {
        "c.example/said": ("catalog", {"priority": "high"}, True),
        "a.example/x": ("api", {}, False),
    }
    assert await store.of_source("api") == []
    await store.upsert_repos([by_api])
    assert [r.key for r in await store.of_source("api")] == ["a.example/x"]


# Opening, concurrency


async def test_the_migration_makes_the_tables_that_the_program_knows(url):
    assert [m.revision for m in await pending_migrations(url)] == [FIRST]
    store = await Store.open(url)
    try:
        assert await pending_migrations(url) == ()
        async with store._db.write() as c:
            migrated = await schema(c)
            for view in await c.run_sync(lambda s: sa.inspect(s).get_view_names()):
                await c.execute(sa.text(f"DROP VIEW {view}"))
            await c.run_sync(metadata.drop_all)
            assert await schema(c) == []
            await c.run_sync(metadata.create_all)
            assert await schema(c) == migrated
            await c.rollback()
        assert len(migrated) > len(metadata.tables)
    finally:
        await store.close()


async def schema(connection):
    """Tables, columns and indexes, as the database tells of them."""
    statements = {
        "sqlite": [
            "SELECT name, sql FROM sqlite_master"
            " WHERE type <> 'view' AND name NOT LIKE 'sqlite_%' AND tbl_name <> 'alembic_version' ORDER BY 1"
        ],
        "postgresql": [
            "SELECT table_name, ordinal_position, column_name, data_type, collation_name, is_nullable,"
            " column_default FROM information_schema.columns c JOIN information_schema.tables t"
            " USING (table_schema, table_name) WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
            " AND table_name <> 'alembic_version' ORDER BY 1, 2",
            "SELECT indexname, indexdef FROM pg_indexes"
            " WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1",
        ],
    }[connection.dialect.name]
    return [row for statement in statements for row in (await connection.execute(sa.text(statement))).all()]


async def test_several_starters_migrate_once(url):
    stores = await asyncio.gather(*(Store.open(url) for _ in range(5)))
    await stores[0].upsert_repos([repo(A)])
    for store in stores:
        assert (await store.find_repo(A)).key == A
        await store.close()


async def test_a_database_of_a_newer_program_is_refused(url):
    store = await Store.open(url)
    async with store._db.write() as c:
        await c.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    await store.close()
    with pytest.raises(EnvironmentUnfit, match=r"9999.*newer"):
        await Store.open(url)
    with pytest.raises(EnvironmentUnfit, match="9999"):
        await pending_migrations(url)


async def test_a_migration_that_fails_half_way_leaves_nothing_behind(url, monkeypatch, tmp_path):
    for old in (False, True):  # an empty database, and one of the step before
        database = await Database.open(parse_place(url))
        with monkeypatch.context() as patch:
            add_step(patch, tmp_path / f"broken-{old}", "CREATE TABLE half (id INTEGER)", "no statement")
            with pytest.raises(DBAPIError):
                await migrate(database)
        async with database.read() as c:
            found = await c.run_sync(lambda s: sa.inspect(s).get_table_names())
        assert "half" not in found
        assert ("repos" in found) is old
        await database.close()
        store = await Store.open(url)
        await store.upsert_repos([repo(A)])
        await store.close()


async def test_the_next_step_keeps_all_rows_and_makes_the_views_anew(url, monkeypatch, tmp_path):
    store = await Store.open(url)
    await store.upsert_repos([repo(A)])
    await store.close()
    again = ("ALTER TABLE tasks DROP COLUMN target_commit", "ALTER TABLE tasks ADD COLUMN target_commit TEXT")
    add_step(monkeypatch, tmp_path / "next", *again)  # a column of a view
    stores = await asyncio.gather(*(Store.open(url) for _ in range(3)))
    assert await pending_migrations(url) == ()
    for store in stores:
        assert (await store.find_repo(A)).key == A
        async with store._db.read() as c:
            assert (await c.execute(sa.text("SELECT count(*) FROM pull_sync_task"))).scalar_one() == 0
        await store.close()


async def test_two_stores_write_the_same_rows_at_once_and_lose_nothing(url):
    first, second = await Store.open(url), await Store.open(url)
    keys = [f"example.org/{i}" for i in range(50)]
    await first.upsert_repos(repo(k) for k in keys)

    async def work(store, order):
        for round_ in range(10):
            writes = [synced(k, verified_at=float(round_)) for k in order]
            await store.apply(writes)
            await store.create_task(keys[0], Trigger.API)
            await store.upsert_repos([repo(k, priority=Priority.HIGH) for k in order[:5]])

    await asyncio.gather(work(first, keys), work(second, keys[::-1]), work(first, keys[::-1]))
    ids = [t.id for t in await second.list_tasks(keys[0], 100)]
    assert len(set(ids)) == 30
    assert (await second.overview_counts(9.0)).fresh == 50
    await first.close()
    await second.close()


async def test_callers_that_go_away_leave_no_half_and_no_lock(store):
    batch = [TaskRecorded(A, Outcome(TaskStatus.SUCCESS, 1.0, 2.0))] * 500
    for step in range(24):
        write = asyncio.create_task(store.apply(batch))
        read = asyncio.create_task(store.list_tasks(A, 1000))
        await asyncio.sleep(0.0005 * (step % 12))
        for task in (write, read):
            task.cancel()
        await asyncio.sleep(0)
        write.cancel()  # impatience changes nothing
        await asyncio.gather(write, read, return_exceptions=True)
        async with asyncio.timeout(10):  # well below the time-outs of a lock left behind
            async with store._db.read() as c:
                count = (await c.execute(sa.text("SELECT count(*) FROM tasks"))).scalar_one()
            assert count % 500 == 0
            await store.put_setting("step", step)


async def test_a_caller_that_goes_away_is_cancelled_once_its_write_has_ended(store):
    write = asyncio.create_task(store.create_task(A, Trigger.API))
    await asyncio.sleep(0)  # it has begun, and cannot have ended
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert len(await store.unfinished_tasks()) == 1


async def test_an_empty_batch_is_no_trouble(store):
    await store.apply([])
    assert await store.upsert_repos([]) == UpsertCounts()


async def test_ten_thousand_repos_load_and_are_verified_within_seconds(store):
    """Far above the goals, so that only a change of order (a statement or commit a row) fails it."""
    records = [repo(f"example.org/{i}") for i in range(10_000)]
    async with asyncio.timeout(10):
        await store.upsert_repos(records)
    async with asyncio.timeout(10):
        for i in range(0, 10_000, 1000):
            await store.apply([RepoVerified(r.key, 5.0) for r in records[i : i + 1000]])
    assert (await store.overview_counts(5.0)).fresh == 10_000


async def test_a_task_that_ended_in_1970_by_its_workers_clock_is_kept_as_long_as_any(store, clock):
    await store.upsert_repos([repo(A)])
    task = await store.create_task(A, Trigger.API, user="me")
    await store.apply([TaskStarted(task.id, 0.0), TaskEnded(task.id, Outcome(TaskStatus.SUCCESS, 0.0, 1.0))])
    assert await store.cleanup_tasks(clock.now - 1) == 0
    assert await store.cleanup_tasks(clock.now + 1) == 1
