"""What a report is made from, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from datetime import UTC

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.core.watch.report import report_of, span_of
from evermirror.edge.store.outcomes import Outcome
from evermirror.edge.store.pull_report import FAILING_MAX
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import TaskRecorded
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ClassProgress, KindCount, Pressure
from evermirror.model.pull import Load, LoadLevel
from evermirror.model.repo import Priority
from evermirror.model.report import DAY_S, StepLag, StepPressure
from evermirror.model.task import TaskStatus
from tests.support.pull_store import HEAD, A, B, looked, project, repo

NOW = 1_700_000_000.0  # 22:13 in UTC
SUCCESS, FAILED, SKIPPED = TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.SKIPPED
SPAN = span_of(NOW, 3, UTC)
NONE = {priority: ClassProgress(0, 0, 0, 0, 0, 0, None) for priority in Priority}


async def report(store, span=SPAN, **how):
    facts = await store.report_facts(span, **how)
    return report_of(facts, span, NONE, None, UTC, "UTC")


def ended(key, status, at, *, began=None, kind=None, changes=0):
    failure = None if kind is None else Failure(kind, "x")
    return TaskRecorded(
        key, Outcome(status, at if began is None else began, at, failure=failure, changes_count=changes)
    )


@pytest.fixture
def run(url):
    """Runs a coroutine of an open, emptied store, from synchronous hypothesis."""
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(Store.open(url, clock=lambda: 1.0))

    async def emptied(do):
        async with store._db.write() as c:
            for table in ("repos", "tasks"):
                await c.execute(sa.text(f"DELETE FROM {table}"))  # noqa: S608
        return await do(store)

    yield lambda do: loop.run_until_complete(emptied(do))
    loop.run_until_complete(store.close())
    loop.close()


TIMES = st.floats(SPAN.begin - 3 * DAY_S, NOW - 1) | st.sampled_from(
    [SPAN.begin, SPAN.begin + DAY_S, SPAN.begin + 2 * DAY_S]
)
RUNS = st.lists(
    st.tuples(
        st.sampled_from([A, B]),
        st.sampled_from([SUCCESS, SKIPPED, FAILED]),
        TIMES,
        TIMES,
        st.integers(0, 900),
    ),
    max_size=12,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(runs=RUNS)
def test_days_are_the_periods_that_are_told_elsewhere(run, runs):
    async def do(store):
        await store.upsert_repos([repo(A, priority=Priority.HIGH)])  # nobody knows the other one
        for key, status, one, other, folded in runs:
            await store.apply([ended(key, status, max(one, other), began=min(one, other), changes=2)])
            async with store._db.write() as c:
                newest = sa.text(
                    "UPDATE tasks SET folded = :folded, created_at = :began "
                    "WHERE id = (SELECT max(id) FROM tasks)"
                )
                fold = folded if status is SKIPPED else 0
                await c.execute(newest, {"folded": fold, "began": min(one, other)})
        made = await report(store)
        return made, [await store.periods(day.begin, day.end) for day in made.by_day]

    made, expected = run(do)
    for day, periods in zip(made.by_day, expected, strict=True):
        told = list(periods.values())
        assert (day.success, day.failed) == (sum(p.success for p in told), sum(p.failed for p in told))
        assert abs(day.skipped - sum(p.skipped for p in told)) <= len(told)  # each is rounded
        assert day.changes == sum(p.changes for p in told)


async def test_a_report_by_hand(store):
    await store.upsert_repos([repo(A, priority=Priority.HIGH, alias="team/a")])
    await store.put_projects([project(A, priority=Priority.HIGH)])
    day = SPAN.begin
    await store.apply(
        [
            ended(A, SUCCESS, day, changes=3),
            ended(A, SUCCESS, day + DAY_S - 1, changes=1),
            ended(A, FAILED, day + DAY_S, kind=FailureKind.CONFLICT),
            ended(A, SKIPPED, NOW - 1),
            ended(A, SUCCESS, day - 1),
            ended(A, SUCCESS, NOW),
        ]
    )
    made = await report(store)
    assert [(d.success, d.failed, d.skipped, d.changes) for d in made.by_day] == [
        (2, 0, 0, 4),
        (0, 1, 0, 0),
        (0, 0, 0, 0),
        (0, 0, 1, 0),
    ]
    assert made.by_priority[Priority.HIGH].period.tasks == 4
    assert made.errors == {FailureKind.CONFLICT: KindCount(1, 1, (A,))}
    (failing,) = made.failing
    assert (failing.key, failing.name, failing.errors, failing.kind) == (A, "team/a", 1, FailureKind.CONFLICT)


async def test_a_run_of_looks_is_on_each_day_that_it_reached(store, clock):
    await store.upsert_repos([repo(A)])
    await store.put_projects([project(A)])
    for n in range(49):  # every hour of two days
        clock.now = SPAN.begin + 3600.0 * n
        await looked(store, clock.now, outcome=Outcome(SKIPPED, clock.now, clock.now + 1.0, HEAD))
    made = await report(store)
    skipped = [day.skipped for day in made.by_day]
    assert made.overall.period.skipped == 49
    assert abs(skipped[0] - 24.5) <= 1
    assert abs(skipped[1] - 24.5) <= 1


async def test_the_projects_that_fail_most_are_named(store):
    await store.upsert_repos([repo(f"example.org/p{n:02}", alias=f"p/{n}") for n in range(12)])
    await store.put_projects([project("example.org/p11", failures=4, paused="it failed too often")])
    kinds = [FailureKind.UNKNOWN, *[FailureKind.NETWORK_TIMEOUT] * 20]
    await store.apply(
        [
            ended(f"example.org/p{n:02}", FAILED, NOW - 10 - i, kind=kinds[i])
            for n in range(12)
            for i in range(n + 1)
        ]
    )
    await store.apply([ended("x/gone", FAILED, NOW - 5, kind=FailureKind.NOT_FOUND)] * 30)
    found = (await report(store)).failing
    assert len(found) == FAILING_MAX
    assert [(f.name, f.errors) for f in found[:3]] == [("x/gone", 30), ("p/11", 12), ("p/10", 11)]
    assert found[1].kind is FailureKind.NETWORK_TIMEOUT
    assert (found[1].failures, found[1].paused) == (4, True)
    assert (found[2].failures, found[2].paused) == (0, False)


async def test_the_public_is_told_no_private_names(store):
    await store.upsert_repos([repo(A, private=True), repo(B)])
    await store.put_projects([project(A), project(B)])
    await store.apply([ended(A, FAILED, NOW - 9, kind=FailureKind.UNKNOWN)] * 3)
    await store.apply([ended(B, FAILED, NOW - 9, kind=FailureKind.UNKNOWN)])
    await store.apply([ended("x/left", FAILED, NOW - 9, kind=FailureKind.UNKNOWN)])
    assert [f.key for f in (await report(store)).failing] == [A, B, "x/left"]
    told = await report(store, public=True)
    assert [f.key for f in told.failing] == [B]
    assert told.errors[FailureKind.UNKNOWN].count == 4  # figures are nobody's secret


def progress(**more):
    told = {"total": 10, "synced": 9, "syncing": 0, "pending": 0, "failed": 1, "disabled": 0}
    return ClassProgress(**told, **{"average_delay_s": None, **more})


async def test_notes_of_a_step_are_one_point(store):
    load = Load(LoadLevel.HIGH, "cpu 91 %")
    classes = {
        Priority.HIGH: progress(average_delay_s=60.0, measured=10, worst_delay_s=90.0, equal=4, compared=5),
        Priority.LOW: progress(),
    }
    for minute, running, seen in ((0, 3, load), (5, 6, None), (10, 5, load)):
        await store.note_progress(
            SPAN.begin + 60.0 * minute,
            progress(),
            classes,
            Pressure(5, running, 2, seen, looks=7, source_s=1.5, received_bytes=100),
        )
    await store.note_progress(SPAN.begin + 3600.0, progress())  # as it was before there was any of this
    await store.note_progress(SPAN.begin - 1.0, progress(), classes, Pressure(9, 9, 9, load))
    facts = await store.report_facts(SPAN)
    assert facts.pressure == (
        StepPressure(
            step=0, notes=3, limit=5.0, running=pytest.approx(14 / 3), queued=2.0, limit_min=5, limit_max=5,
            running_max=6, above_limit=1, at_limit=2, load_known=2, load_high=2, load_low=0, looks=21,
            source_s=4.5, received_bytes=300,
        ),
    )  # fmt: skip
    assert set(facts.lag) == {
        StepLag(0, Priority.HIGH, 60.0, 90.0, 12, 15, measured=30),
        StepLag(0, Priority.LOW, None, None, 0, 0, measured=0),
    }


async def test_an_empty_store_has_an_empty_report(store):
    made = await report(store)
    assert made.overall.period.tasks == 0
    assert (made.errors, made.failing, made.pressure.notes) == ({}, (), 0)


async def test_a_year_is_no_more_than_some_points(store):
    span = span_of(NOW, 366, UTC)
    await store.note_progress(NOW - 1, progress(), {}, Pressure(5, 1, 0, None, looks=1))
    made = await report(store, span)
    assert len(made.course) <= 201
    assert made.course[-1].pressure is not None


async def test_counts_that_add_up_to_more_than_a_column_holds_are_told_all_the_same(store):
    """As a lying worker told them before they were bounded."""
    await store.upsert_repos([repo(A, priority=Priority.HIGH)])
    await store.put_projects([project(A, priority=Priority.HIGH)])
    huge = 2**63 - 1
    await store.apply([ended(A, SUCCESS, NOW - 60 * n, changes=huge) for n in range(1, 4)])
    heavy = Pressure(1, 0, 0, None, looks=2 * huge, received_bytes=2 * huge)
    for n in range(1, 4):
        await store.note_progress(NOW - 60 * n, NONE[Priority.HIGH], {}, heavy)
    made = await report(store)
    assert made.overall.period.changes == pytest.approx(3 * huge)
    assert made.pressure.received_bytes == pytest.approx(3 * huge)
    periods = await store.periods(NOW - DAY_S, NOW)
    assert periods[Priority.HIGH].changes == pytest.approx(3 * huge)
