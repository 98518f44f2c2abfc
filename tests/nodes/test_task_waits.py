"""How long tasks wait, for a worker and for a commit; who shares them; what is told of them meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.views import Totals
from evermirror.errors import Unavailable
from evermirror.model.failure import MISSING_COMMIT, Failure, FailureKind
from evermirror.model.messages import Progress, Refused, Started, SyncNow
from evermirror.model.repo import Priority
from evermirror.model.task import TaskId, TaskStatus
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.tasks.task_book import TaskBook
from evermirror.nodes.coordinator.tasks.task_waits import RETURN_S, nobody_came
from evermirror.nodes.worker.round import without_commit
from tests.nodes.test_coordinator import (
    KEY,
    T0,
    TIP,
    ScriptedWorker,
    empty_house,
    failed,
    house,
    refused,
    synced,
)
from tests.nodes.test_task_ends import ANN, Desk

__all__ = ["empty_house", "house"]

PATIENCE_S = 3600.0
LONG = 30 * 86_400.0


def missing(*task_ids, at=T0):
    return Refused(KEY, task_ids, without_commit(TIP), at, at)


async def given_out(house):
    return [c.task_id for c in await house.commands() if isinstance(c, SyncNow)]


# What is told


@pytest.mark.parametrize("report", [synced, failed, missing])
async def test_the_result_names_the_worker_and_how_long_it_took(house, report):
    await house.add()
    task = await house.submit()
    await house.take(report(task.id))
    stored = await house.store.get_task(task.id)
    assert stored.result["worker"] == "here"
    assert stored.result["duration_s"] == {synced: 2.0, failed: 1.0, missing: 0.0}[report]


async def test_what_no_worker_did_names_none(house):
    await house.add()
    await house.worker.leave()
    while house.fleet.connected():
        await asyncio.sleep(0.002)
    task = await house.submit()
    await house.it.release([KEY])
    await house.it._tasks.route()
    done = await house.it.wait_task(task.id, 10)
    assert (done.status, done.result["worker"]) == (TaskStatus.FAILED, None)


@given(st.lists(st.none() | st.floats(0, 99), min_size=1, max_size=12))
def test_progress_never_goes_back_whoever_tells_it(told):
    tasks, before = Desk().tasks, None
    for n, percent in enumerate(told, 1):
        tasks.passing(ANN, Progress(KEY, (TaskId(1),), "receiving", percent, 0, 0.0))
        now = tasks._progress[TaskId(1)].percent
        assert now == max((p for p in told[:n] if p is not None), default=None)
        assert before is None or now >= before
        before = now


# Sharing


async def test_many_at_once_share_one_task_and_its_end(house):
    await house.add()

    async def ask():
        task = await house.submit()
        return await house.it.wait_task(task.id, 10)

    asking = [asyncio.create_task(ask()) for _ in range(50)]
    async with asyncio.timeout(20):
        while [len(waiting) for waiting in house.it._tasks._waiters._events.values()] != [50]:
            await asyncio.sleep(0.002)
    (task_id,) = await given_out(house)
    await house.take(synced(task_id))
    ends = await asyncio.gather(*asking)
    assert {end.id for end in ends} == {task_id}
    assert all(end == ends[0] for end in ends)


async def test_one_that_cannot_be_stored_does_not_keep_the_next_from_it(house, monkeypatch):
    await house.add()
    create = house.store.create_task
    begun = asyncio.Event()

    async def broken(*args, **kwargs):
        begun.set()
        await asyncio.sleep(0.01)
        monkeypatch.setattr(house.store, "create_task", create)
        raise RuntimeError("no disk")

    monkeypatch.setattr(house.store, "create_task", broken)
    first = asyncio.create_task(house.submit())
    await begun.wait()
    second = asyncio.create_task(house.submit())
    with pytest.raises(RuntimeError):
        await first
    assert (await second).status is TaskStatus.PENDING


async def test_priority_and_force_reach_the_worker(house):
    await house.add()
    await house.commands()
    await house.submit(priority=Priority.CRITICAL, force=True)
    (command,) = [c for c in await house.commands() if isinstance(c, SyncNow)]
    assert (command.priority, command.force) == (Priority.CRITICAL, True)


# A commit that is not there yet


async def search(house, within_s=20.0):
    """The task, and when it began: the store has a clock of its own."""
    await house.add()
    task = await house.submit(min_commit=TIP, within_s=within_s)
    await house.commands()
    house.clock.now = task.created_at
    return task, task.created_at


async def test_a_missing_commit_is_looked_for_in_growing_pauses_until_it_is_there(house):
    task, began = await search(house)
    looks = []
    for wait_s in (1.0, 2.0, 4.0):
        await house.take(Started(KEY, (task.id,), began), missing(task.id, at=house.clock.now))
        shown = await house.it.get_task(task.id)
        assert (shown.status, shown.progress_phase) == (TaskStatus.RUNNING, "waiting for the commit")
        house.clock.now += wait_s - 0.01
        await house.it._tasks.route()
        assert await given_out(house) == []
        house.clock.now += 0.02
        await house.it._tasks.route()
        looks += await given_out(house)
    assert looks == [task.id] * 3
    await house.take(synced(task.id))
    assert (await house.it.get_task(task.id)).status is TaskStatus.SUCCESS
    assert house.it._tasks._searches._open == house.it._tasks._searches._newest == {}


async def test_a_commit_that_never_comes_fails_before_the_time_is_over_and_says_so(house):
    task, began = await search(house, within_s=20.0)
    looks = 0
    while not (await house.it.get_task(task.id)).status.ended:
        looks += 1
        await house.take(missing(task.id, at=house.clock.now))
        house.clock.now = (house.it._tasks._book.next_wake() or house.clock.now) + 0.001
        await house.it._tasks.route()
        await house.commands()
    done = await house.it.get_task(task.id)
    assert 18.9 <= house.clock.now - began <= 20.0
    assert looks == 6
    assert (done.status, done.failure.kind) == (TaskStatus.FAILED, FailureKind.NOT_FOUND)
    assert f"do not contain commit {TIP}: 6 looks in 19 s did not find it" in done.failure.message
    assert house.it._tasks._book.next_wake() is None


@pytest.mark.parametrize("params", [{"min_commit": TIP}, {"within_s": 60.0}])
async def test_without_a_time_or_a_commit_one_look_decides(house, params):
    await house.add()
    task = await house.submit(**params)
    await house.take(missing(task.id))
    assert (await house.it.get_task(task.id)).status is TaskStatus.FAILED


@pytest.mark.parametrize("report", [failed, refused])
async def test_another_reason_ends_the_search_in_its_own_words(house, report):
    task, _ = await search(house)
    for _ in range(2):
        await house.take(missing(task.id, at=house.clock.now))
        house.clock.now += 3
        await house.it._tasks.route()
    await house.take(report(task.id))
    done = await house.it.get_task(task.id)
    assert (done.status, done.failure.message) == (TaskStatus.FAILED, report(task.id).failure.message)
    assert house.it._tasks._searches._open == {}


async def test_a_refusal_that_is_told_twice_is_one_look(house):
    task, began = await search(house)
    await house.take(missing(task.id), missing(task.id))
    assert house.it._tasks._book.next_wake() == began + 1.0


def test_what_rests_is_woken_by_its_time_alone():
    book, command = TaskBook(), SyncNow(KEY, TaskId(1))
    book.add(command)
    book.given(command, WorkerId(0))
    book.rest(command.task_id, 10.0)
    book.undelivered(command)
    book.began_anew(WorkerId(0))
    book.silent(WorkerId(0))
    book.wake(9.9)
    assert (book.rests(command.task_id), book.waits(command.task_id)) == (True, False)
    book.wake(10.0)
    assert (book.rests(command.task_id), book.waits(command.task_id)) == (False, True)


async def test_who_wants_the_same_commit_joins_the_search_and_has_it_looked_for_at_once(house):
    task, began = await search(house)
    await house.take(Started(KEY, (task.id,), began))
    for _ in range(3):
        await house.take(missing(task.id, at=house.clock.now))
        house.clock.now += 4.1
        await house.it._tasks.route()
    await house.take(missing(task.id, at=house.clock.now))
    await house.commands()
    joined = await house.submit(min_commit=TIP, within_s=20.0)
    assert joined.id == task.id
    await house.it._tasks.route()
    assert await given_out(house) == [task.id]
    other = await house.submit(min_commit="b" * 40, within_s=20.0)
    assert other.id != task.id


async def test_a_search_goes_on_after_a_restart(empty_house):
    async with empty_house.running() as house:
        task, _ = await search(house)
        await house.take(Started(KEY, (task.id,), T0), missing(task.id))
    async with empty_house.running() as house:
        house.clock.now = task.created_at + 5
        await house.it.resume()
        await house.it._tasks.route()
        assert task.id in await given_out(house)
        await house.take(missing(task.id, at=house.clock.now))
        assert house.it._tasks._book.next_wake() == task.created_at + 6
        house.clock.now = task.created_at + 19.5
        await house.it._tasks.route()
        await house.take(missing(task.id, at=house.clock.now))
        assert (await house.it.get_task(task.id)).status is TaskStatus.FAILED


# Nobody is there


async def away(house):
    await house.worker.leave()
    while house.fleet.connected():
        await asyncio.sleep(0.002)


async def test_what_nobody_can_take_fails_with_a_reason_when_patience_is_over(empty_house):
    async with empty_house.running() as house:
        await away(house)
        task = await house.submit(may_add=True)
        house.it._tasks._book.silent(0)
        machine = house.fleet.machine
        waiting = asyncio.create_task(house.it.wait_task(task.id, 60))
        house.it._tasks._patience._earliest = 0.0
        for after_s, status in ((PATIENCE_S - 1, TaskStatus.PENDING), (PATIENCE_S + 1, TaskStatus.FAILED)):
            house.clock.now = task.created_at + after_s
            house.fleet.machine = _Nobody(machine)
            await house.it._tasks.route()
            assert (await house.it.get_task(task.id)).status is status
        done = await waiting
        assert "no worker took this within 1h: none of the 1 workers is there" in done.failure.message
        assert done.failure.hint
        house.fleet.machine = machine


class _Nobody:
    """The fleet, as it is when nobody in it is heard of."""

    def __init__(self, machine):
        self._machine = machine

    def __getattr__(self, name):
        return getattr(self._machine, name)

    def repo(self, key):
        return replace(self._machine.repo(key), primary=None)

    def totals(self):
        return replace(self._machine.totals(), alive=0)


_NOTHING = Totals(**dict.fromkeys((field.name for field in fields(Totals)), 0))


@pytest.mark.parametrize(
    ("workers", "alive", "has_holder", "words"),
    [
        (0, 0, False, "no worker has joined"),
        (3, 0, True, "none of the 3 workers is there"),
        (3, 2, True, "the worker that holds the repo is away or in quarantine"),
        (3, 2, False, "the repo has no place"),
    ],
)
def test_the_reason_says_what_is_missing(workers, alive, has_holder, words):
    totals = replace(_NOTHING, repos=1, workers=workers, alive=alive)
    failure = nobody_came(90.0, totals, has_holder=has_holder)
    assert f"no worker took this within 1m30s: {words}" in failure.message


async def test_patience_counts_across_restarts_and_waits_for_workers_to_be_back(empty_house):
    async with empty_house.running() as house:
        await away(house)
        task = await house.submit(may_add=True)
    async with empty_house.running() as house:
        await away(house)
        began = house.clock.now = task.created_at + LONG
        house.it._tasks._patience._earliest = began + RETURN_S
        await house.it.resume()
        machine = house.fleet.machine
        house.fleet.machine = _Nobody(machine)
        await house.it._tasks.route()
        assert (await house.it.get_task(task.id)).status is TaskStatus.PENDING, "workers may be on their way"
        house.clock.now = began + RETURN_S
        await house.it._tasks.route()
        assert (await house.it.get_task(task.id)).status is TaskStatus.FAILED
        house.fleet.machine = machine


async def test_what_a_worker_had_begun_counts_from_when_it_was_lost(house):
    await house.add()
    task = await house.submit()
    await house.commands()
    await house.take(Started(KEY, (task.id,), T0))
    machine = house.fleet.machine
    house.it._tasks._patience._earliest = 0.0
    lost = house.clock.now = task.created_at + LONG
    (worker,) = house.fleet.connected()
    house.it._tasks._book.silent(worker)
    house.fleet.machine = _Nobody(machine)
    await house.it._tasks.route()
    house.clock.now = lost + PATIENCE_S - 1
    await house.it._tasks.route()
    assert not (await house.it.get_task(task.id)).status.ended
    house.clock.now = lost + PATIENCE_S + 1
    await house.it._tasks.route()
    assert (await house.it.get_task(task.id)).status is TaskStatus.FAILED
    house.fleet.machine = machine


async def test_one_that_went_out_with_the_assignment_is_the_workers_too(empty_house):
    async with empty_house.running() as house:
        await away(house)
        task = await house.submit(may_add=True)
        house.worker = ScriptedWorker()
        await house.worker.join(house.server)
        assert await given_out(house) == [task.id]
        assert house.it._tasks._patience._asked_at == {}, "it counts from when the worker is lost"


async def test_a_report_that_was_lost_on_the_way_is_told_again_and_ends_the_task_once(house):
    await house.add()
    task = await house.submit()
    await house.commands()
    await away(house)  # it did the sync, and its word did not come
    house.worker = ScriptedWorker()
    await house.worker.join(house.server)
    assert task.id in await given_out(house), "whoever is back is asked again"
    await house.take(synced(task.id), synced(task.id, at=T0 + 50))
    done = await house.it.get_task(task.id)
    assert (done.status, done.completed_at) == (TaskStatus.SUCCESS, T0 + 10)


# We stop


async def test_whoever_waits_is_told_at_a_stop_that_the_task_goes_on(house):
    await house.add()
    task = await house.submit()
    waiting = asyncio.create_task(house.it.wait_task(task.id, 60))
    while not house.it._tasks._waiters._events:
        await asyncio.sleep(0.002)
    house.it.tasks.stop_waiting()
    with pytest.raises(Unavailable, match=f"task {task.id} goes on"):
        await waiting
    with pytest.raises(Unavailable):
        await house.it.wait_task(task.id, 60)
    await house.take(synced(task.id))
    assert (await house.it.wait_task(task.id, 60)).status is TaskStatus.SUCCESS


def test_a_missing_commit_is_known_by_its_context():
    assert MISSING_COMMIT in without_commit(TIP).context
    assert MISSING_COMMIT not in Failure(FailureKind.NOT_FOUND, without_commit(TIP).message).context
