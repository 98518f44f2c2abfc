"""Tasks of workers that are not heard or believed any more: others do them, but not for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evermirror.core.fleet.events import DrainAsked, DutyResumed, QuarantineAsked
from evermirror.model.messages import Progress, Refused, Started, SyncNow
from evermirror.model.task import TaskStatus
from evermirror.model.wire import Numbered
from evermirror.nodes.coordinator.tasks.task_lost import LOSSES_MAX, lost_too_often
from evermirror.nodes.worker.round import without_commit
from tests.nodes.test_coordinator import (
    KEY,
    OTHER_KEY,
    T0,
    TIP,
    ScriptedWorker,
    empty_house,
    house,
    synced,
)
from tests.nodes.test_task_ends import ANN, BOB, TASK, Desk

__all__ = ["empty_house", "house"]


@pytest.fixture
async def other(house):
    """Somebody else; it is not trusted."""
    worker = ScriptedWorker("there")
    await worker.join(house.server, token=7, trusted=False)
    while len(house.fleet.connected()) < 2:
        await asyncio.sleep(0.002)
    yield worker
    await worker.leave()
    while len(house.fleet.connected()) > 1:
        await asyncio.sleep(0.002)


def worker_id(house, name):
    return next(w.record.id for w in house.fleet.machine.workers() if w.record.facts.name == name)


async def told_to_sync(house, worker, task):
    """The last of its commands about the task."""
    async with asyncio.timeout(10):
        while not (found := [c for c in worker.sent if isinstance(c, SyncNow) and c.task_id == task.id]):
            await house.it._tasks.route()
            await asyncio.sleep(0.005)
    return found[-1]


def missing(*task_ids):
    return Refused(KEY, task_ids, without_commit(TIP), T0, T0)


@pytest.mark.parametrize("so_far", ["given", "running", "resting"])
async def test_one_of_a_worker_that_is_quarantined_is_done_by_another(house, other, so_far):
    await house.fleet.tell(DrainAsked(worker_id(house, "there")))
    await house.add()
    task = await house.submit(min_commit=TIP, within_s=60.0)
    house.clock.now = task.created_at
    await told_to_sync(house, house.worker, task)
    if so_far != "given":
        await house.worker.say(Started(KEY, (task.id,), T0))
    if so_far == "resting":
        await house.worker.say(missing(task.id))
        assert house.it._tasks._book.rests(task.id)
        house.clock.now += 2.0
    await house.fleet.tell(DutyResumed(worker_id(house, "there")))
    await house.fleet.tell(QuarantineAsked(worker_id(house, "here"), "it lies"))
    await told_to_sync(house, other, task)
    house.worker.sent.clear()
    await house.worker.say(synced(task.id))
    assert not (await house.it.get_task(task.id)).status.ended, "it is not believed"
    await other.say(synced(task.id))
    done = await house.it.wait_task(task.id, 10)
    assert (done.status, done.result["worker"]) == (TaskStatus.SUCCESS, "there")


@pytest.mark.parametrize("by", ["looking", "its word"])
async def test_one_of_a_worker_that_may_not_know_the_repo_any_more_is_done_by_another(house, other, by):
    await house.fleet.tell(DrainAsked(worker_id(house, "here")))
    await house.add()
    task = await house.submit()
    await told_to_sync(house, other, task)
    await house.fleet.tell(DutyResumed(worker_id(house, "here")))
    await house.add(private=True)
    if by == "its word":
        assert not house.it._tasks._book.waits(task.id)
        await other.say(Started(KEY, (task.id,), T0))
        assert house.it._poke.is_set()
        assert not house.it._tasks._book.doing(worker_id(house, "there"), KEY, (task.id,))
    await told_to_sync(house, house.worker, task)
    await house.worker.say(synced(task.id))
    assert (await house.it.wait_task(task.id, 10)).result["worker"] == "here"


async def test_one_that_loses_its_worker_again_and_again_fails_with_the_reason(house):
    await house.add()
    task = await house.submit()
    for _ in range(LOSSES_MAX):
        assert (await told_to_sync(house, house.worker, task)).task_id == task.id
        await house.worker.say(Started(KEY, (task.id,), T0))
        await house.worker.leave()
        while house.fleet.connected():
            await asyncio.sleep(0.002)
        house.worker = ScriptedWorker()
        await house.worker.join(house.server)
    await house.told()
    await house.it._tasks.route()
    done = await house.it.get_task(task.id)
    assert done.status is TaskStatus.FAILED
    assert f"{LOSSES_MAX} times the worker was lost" in done.failure.message
    assert not house.it._tasks._book.workers()


def test_one_that_did_not_begin_is_no_reason_for_a_loss():
    desk = Desk()
    for _ in range(4 * LOSSES_MAX):
        desk.book.silent(ANN)
        desk.give(ANN)
    desk.book.began_anew(ANN)
    assert lost_too_often(desk.book) == []


async def test_a_refusal_that_is_told_twice_is_one_look(house):
    await house.add()
    task = await house.submit(min_commit=TIP, within_s=60.0)
    house.clock.now = task.created_at
    await house.take(Started(KEY, (task.id,), T0), missing(task.id))
    book = house.it._tasks._book
    assert book.rests(task.id)
    house.clock.now += 2.0
    await house.it._tasks.route()
    assert not book.rests(task.id)
    await house.worker.connection.send(Numbered(1, house.worker.said, (missing(task.id),)))
    await house.told()
    assert not book.rests(task.id), "the worker has it again, and that was its last word before"


def test_progress_counts_only_of_whoever_does_it():
    desk = Desk()
    told = Progress(KEY, (TASK,), "receiving", 5.0, 0, 0.0)
    assert desk.tasks.passing(BOB, told) == ()
    assert desk.tasks.passing(ANN, replace(told, key=OTHER_KEY)) == ()
    assert desk.tasks._progress == {}
    assert desk.tasks.passing(ANN, replace(told, task_ids=(TASK, 99))) == (told,)
    desk.book.silent(ANN)
    assert desk.tasks.passing(ANN, told) == ()
