"""The course of the whole: noted by the clock, over restarts of the coordinator and a database in trouble."""

from __future__ import annotations

import asyncio
import time

import pytest

from evermirror.core.watch.lately import MOST_PER_S
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoVerified
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import WorkerStatus
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec
from evermirror.model.whole import ClassFreshness, CoursePoint, Work
from evermirror.nodes.coordinator import course
from evermirror.nodes.coordinator.overview import Figures
from tests.support.migrated import tables_at_once

NOW = 1_799_999_100.0  # a step of five minutes begins, and one of 35 goes on for a while
KEYS = [RepoKey(f"example.org/{n}") for n in range(4)]


def status(polls=0, changes=0, received=0):
    return WorkerStatus(1, polls, 0.5, changes, received, (), 0, (), 1, 2, True, (), NOW)


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def store(tmp_path, clock):
    with tables_at_once():
        store = await Store.open(f"sqlite:///{tmp_path}/s.db", clock=clock)
    specs = [RepoSpec(k, f"https://{k}", Host("example.org"), Priority.HIGH) for k in KEYS]
    await store.upsert_repos([RepoRecord(spec) for spec in specs])
    await store.apply([RepoVerified(key, NOW - 10.0) for key in KEYS[:3]])
    yield store
    await store.close()


def figures(store, clock):
    return Figures(store, {}, 300.0, clock)


async def test_each_point_tells_how_fresh_all_was_and_what_was_done_since_the_one_before(store, clock):
    told = figures(store, clock)
    [only] = await told.course(24)  # now, before anything was noted
    assert (only.at, only.fresh_share, only.work) == (NOW, 0.75, None)
    told.heard(1, status(100, 10, 1000))  # a worker that has been there for long
    await told._course.note()
    told.heard(1, status(140, 12, 1500))
    clock.now += 300
    await told._course.note()
    told.heard(1, status(5, 1, 50))  # it began anew
    told.heard(2, status(70))  # another comes
    clock.now += 300
    first, second, latest = await told.course(24)
    assert [p.at - NOW for p in (first, second, latest)] == [0, 300, 600]
    assert [p.work for p in (first, second, latest)] == [None, Work(40, 2, 500), Work(5, 1, 50)]
    assert first.classes[Priority.HIGH] == ClassFreshness(4, 3, 10.0)
    assert latest.classes[Priority.HIGH] == ClassFreshness(4, 0, 610.0)  # by the overview's measure
    assert latest.fresh_share == (await told.overview()).fresh_share == 0.0


async def test_a_restart_goes_on_with_the_course_and_counts_nothing_below_zero(store, clock):
    before = figures(store, clock)
    before.heard(1, status(500))
    await before._course.note()
    before.heard(1, status(600))
    clock.now += 300
    after = figures(store, clock)
    after.heard(1, status(650))  # nobody knows what it did while the coordinator was away
    await after._course.note()
    after.heard(1, status(660))
    clock.now += 300
    assert [p.work for p in await after.course(1)] == [None, None, Work(10, 0, 0)]
    clock.now += 3 * 3600
    assert len(await after.course(1)) == 1
    assert len(await after.course(168)) == 2  # a step of a week's course is longer: both are in one


async def test_what_was_just_noted_is_told_once(store, clock, monkeypatch):
    """Right after it was noted, when now is still that moment, and while it is being noted."""
    told = figures(store, clock)
    told.heard(1, status(100))
    await told._course.note()
    told.heard(1, status(1100))
    clock.now += 300
    await told._course.note()
    assert [(p.at - NOW, p.work) for p in await told.course(24)] == [(0, None), (300, Work(1000))]
    asked, real = [], store.note_course

    async def noted_and_asked_for(*args):
        await real(*args)
        clock.now += 2  # the next is another moment
        asked.append(asyncio.create_task(told.course(24)))
        await asyncio.wait(asked, timeout=0.1)

    monkeypatch.setattr(store, "note_course", noted_and_asked_for)
    told.heard(1, status(1150))
    clock.now += 300
    await told._course.note()
    works = [(p.at - NOW, p.work) for p in await asked[0]]
    assert works == [(0, None), (300, Work(1000)), (600, Work(50)), (602, Work())]


async def test_what_the_database_does_not_take_is_in_the_next_point_and_a_week_is_kept(
    store, clock, monkeypatch
):
    told = figures(store, clock)
    await told._course.note()
    told.heard(1, status(0))
    told.heard(1, status(7))
    real = store.note_course

    async def trouble(*args):
        raise FailureError(Failure(FailureKind.UNKNOWN, "away"))

    monkeypatch.setattr(store, "note_course", trouble)
    clock.now += 300
    await told._course._try()
    monkeypatch.setattr(store, "note_course", real)
    told.heard(1, status(9))
    clock.now += 300
    await told._course.note()
    assert [p.work for p in await store.course(0.0, 2 * NOW)] == [None, Work(9, 0, 0)]
    clock.now += course.KEEP_S
    await told._course.note()
    assert [p.at for p in await store.course(0.0, 2 * NOW)] == [NOW + 600, NOW + 600 + course.KEEP_S]


async def test_points_are_noted_soon_after_the_start_and_then_by_the_clock(store, monkeypatch):
    monkeypatch.setattr(course, "FIRST_S", 0.01)
    monkeypatch.setattr(course, "POINT_S", 0.02)

    async def now():
        return CoursePoint.of(time.time(), {}, 0, None)

    running = asyncio.create_task(course.Course(store, now, Work, time.time).run())
    async with asyncio.timeout(20):
        while len(await store.course(0.0, 1e12)) < 3:
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_takes_long_to_count_is_counted_seldom(store, clock, monkeypatch):
    """What workers tell is told at once all the same."""
    counts = []
    real = store.overview_counts

    async def slow(since):
        counts.append(since)
        found = await real(since)
        clock.now += 0.25  # as a million repos take
        return found

    monkeypatch.setattr(store, "overview_counts", slow)
    statuses = {}
    told = Figures(store, statuses, 300.0, clock, {7: "beta"}.get)
    assert (await told.overview()).polls_total == 0
    statuses[7] = status(11)
    for _ in range(4):
        clock.now += 1.0
        overview = await told.overview()
        assert (overview.polls_total, len(counts)) == (11, 1)
    clock.now += 1.0
    await told.overview()
    assert counts == [NOW - 300.0, NOW + 5.25 - 300.0]


async def test_a_worker_whose_counters_jump_between_nothing_and_the_most_ends_no_course(store, clock):
    told = figures(store, clock)
    await told._course.note()
    for n in range(4):
        told.heard(1, status(polls=n % 2 * (2**63 - 1), received=n % 2 * (2**63 - 1)))
    clock.now += 300.0
    await told._course.note()
    [_, noted] = await store.course(NOW - 1, clock.now + 1)
    assert noted.work.polls <= 2 * MOST_PER_S.polls


async def test_a_point_that_the_database_refuses_is_left_out(store, clock, monkeypatch):
    told = figures(store, clock)

    async def refuse(*_):
        raise OverflowError("Python int too large to convert to SQLite INTEGER")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "note_course", refuse)
        await told._course._try()
    await told._course._try()
    assert len(await store.course(NOW - 1, NOW + 1)) == 1
