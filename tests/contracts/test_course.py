"""The whole in figures, and its course over time, on both engines."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.edge.store import counts
from evermirror.edge.store.counts import SAMPLE, ClassCounts
from evermirror.edge.store.store import Store
from evermirror.edge.store.tables import repos
from evermirror.edge.store.writes import RepoFailed, RepoVerified
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.whole import ClassFreshness, CoursePoint, FailureCount, Work


def repo(key, priority=Priority.NORMAL, *, enabled=True):
    spec = RepoSpec(RepoKey(key), f"https://{key}", Host(key.split("/")[0]), priority)
    return RepoRecord(spec, enabled=enabled)


WORK = Work(1, 2, 3)


def point(at, fresh=1, *, work=WORK, lag_s=5.0):
    classes = {p: ClassFreshness() for p in Priority}
    return CoursePoint.of(at, classes | {Priority.HIGH: ClassFreshness(2, fresh, lag_s)}, 7, work)


async def test_failures_are_told_most_first_each_with_a_few_repos(store):
    keys = [f"example.org/{n}" for n in range(6)]
    await store.upsert_repos([repo(key) for key in keys])
    kinds = [FailureKind.NOT_FOUND, *[FailureKind.NETWORK_TIMEOUT] * 4]
    await store.apply(
        [
            RepoFailed(key, Failure(kind, "no"), RepoStatus.FAILING, 1, 10.0)
            for key, kind in zip(keys, kinds, strict=False)
        ]
    )
    most, least = (await store.overview_counts(0.0)).failures
    assert (most.kind, most.repos, len(most.sample)) == ("NETWORK_TIMEOUT", 4, SAMPLE)
    assert set(most.sample) < set(keys[1:5])
    assert least == FailureCount("NOT_FOUND", 1, ("example.org/0",))
    await store.remove_repos([keys[0]], 20.0)  # what left the catalog fails nowhere
    assert [one.kind for one in (await store.overview_counts(0.0)).failures] == ["NETWORK_TIMEOUT"]


async def test_figures_are_of_one_moment_though_repos_come_while_they_are_counted(store, monkeypatch):
    await store.upsert_repos([repo("example.org/0")])
    real, come = counts._by_class, []

    async def another_comes(c, verified):
        come.append(f"example.org/new-{len(come)}")
        await store.upsert_repos([repo(come[-1])])
        return await real(c, verified)

    monkeypatch.setattr(counts, "_by_class", another_comes)
    told = await store.overview_counts(50.0)
    assert told.classes[Priority.NORMAL] == ClassCounts(live=1, fresh=0, never_verified=1)
    assert (await store.overview_counts(50.0)).total == len(come) - 1  # what came meanwhile is in the next


ONE = st.tuples(
    st.sampled_from(list(Priority)), st.none() | st.sampled_from([10.0, 50.0, 50.1, 99.0]), st.booleans()
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=st.lists(ONE, max_size=12))
async def test_each_class_is_counted_as_one_would_by_hand(store, some):
    """Also projects, which another part of the index holds."""
    async with store._db.write() as c:
        await c.exec_driver_sql("DELETE FROM repos")
    keys = [f"example.org/{n}" for n in range(len(some))]
    await store.upsert_repos([repo(k, p, enabled=not off) for k, (p, _, off) in zip(keys, some, strict=True)])
    async with store._db.write() as c:
        await c.exec_driver_sql("UPDATE repos SET pulled = (key LIKE '%3')")
    await store.apply([RepoVerified(k, at) for k, (_, at, _) in zip(keys, some, strict=True) if at])
    expected = {}
    for priority in Priority:
        times = [at for p, at, off in some if p is priority and not off]
        verified = [at for at in times if at]
        fresh = sum(at >= 50.0 for at in verified)
        expected[priority] = ClassCounts(
            len(times), fresh, len(times) - len(verified), min(verified, default=None)
        )
    told = await store.overview_counts(50.0)
    assert told.classes == expected
    assert (told.total, told.by_status["inactive"]) == (len(some), sum(off for *_, off in some))


async def test_the_course_is_told_oldest_first_and_old_points_go(store):
    points = [point(100.0, work=None), point(200.0, 0, lag_s=None), point(300.0, 2)]
    for one in reversed(points):
        await store.note_course(one, 0.0)
    assert await store.course(0.0, 1000.0) == tuple(points)
    assert await store.course(100.0, 300.0) == tuple(points[:2])  # the end is not in it
    assert await store.course(301.0, 900.0) == ()
    again = dataclasses.replace(point(200.0, 2), failing=9)
    await store.note_course(again, 150.0)
    assert await store.course(0.0, 1000.0) == (again, points[2])


def test_a_point_knows_the_whole_from_its_classes():
    classes = {
        Priority.HIGH: ClassFreshness(4, 1, 10.0),
        Priority.LOW: ClassFreshness(4, 4, 90.0),
        Priority.NORMAL: ClassFreshness(),
    }
    one = CoursePoint.of(1.0, classes, 0, None)
    assert (one.fresh_share, one.worst_lag_s) == (pytest.approx(5 / 8), 90.0)
    empty = CoursePoint.of(1.0, {}, 0, None)
    assert (empty.fresh_share, empty.worst_lag_s) == (None, None)


MANY = """
INSERT INTO repos (key, url, host, priority, status, verified_at, failure_kind, change_seq, {rest})
SELECT 'example.org/' || n, 'https://example.org/' || n, 'h', 'normal', 'active', n,
       CASE WHEN n % 100 = 0 THEN 'NOT_FOUND' END, n + 1, {rest}
FROM generate_series(1, 3000) AS n, (SELECT * FROM repos) AS one
"""
GIVEN = {"id", "key", "url", "host", "priority", "status", "verified_at", "failure_kind", "change_seq"}


async def test_postgresql_searches_for_what_is_late_and_what_fails_too(postgres_tables):
    """What is counted of every repo it may read from the table: that is all of it."""
    store = await Store.open(postgres_tables)
    await store.upsert_repos([repo("example.org/0")])
    async with store._db.write() as c:
        rest = ", ".join(column.name for column in repos.c if column.name not in GIVEN)
        await c.exec_driver_sql(MANY.format(rest=rest))
        await c.exec_driver_sql("ANALYZE repos")
    asked, reader = [], store._db._reader.sync_engine
    sa.event.listen(reader, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
    await store.overview_counts(10.0)
    plans = []
    async with store._db.read() as c:
        for statement, parameters in tuple(asked):
            told = (await c.exec_driver_sql(f"EXPLAIN {statement}", parameters)).scalars().all()
            plans.append([line.strip(" ->") for line in told if "Scan" in line])
    await store.close()
    _, never, late, oldest, kinds, samples = plans
    for scans in (never, late, oldest):
        assert scans
        assert all("Scan using ix_repos_freshness on repos" in scan for scan in scans), scans
    for scans in (kinds, samples):
        assert scans
        assert all("ix_repos_failure_kind" in scan for scan in scans), scans


async def test_more_than_a_column_holds_is_noted_as_the_most_that_it_holds(store):
    await store.note_course(point(100.0, work=Work(2**70, 0, 2**63)), 0.0)
    [noted] = await store.course(0.0, 200.0)
    assert noted.work == Work(2**63 - 1, 0, 2**63 - 1)
