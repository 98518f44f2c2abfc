"""Tasks that wait for a commit: how many there may be, who shares one, how they end; those of projects."""

from __future__ import annotations

import asyncio
import random

import pytest

from evermirror.core.watch.course import MOST
from evermirror.edge.store.writes import TaskEnded
from evermirror.errors import Unavailable
from evermirror.model.messages import Progress, Refused, Started, SyncNow
from evermirror.model.repo import RepoKey
from evermirror.model.task import SyncPhase, TaskId, TaskStatus, Trigger
from evermirror.nodes.coordinator.tasks import task_giving_up, task_searches, tasks
from evermirror.nodes.coordinator.tasks.task_rests import SPARE, Rests
from evermirror.nodes.worker.round import without_commit
from tests.nodes.pull_house import PullHouse, key_of
from tests.nodes.test_coordinator import KEY, TIP, empty_house, house
from tests.nodes.test_task_waits import _Nobody, away, missing, search

__all__ = ["empty_house", "house"]


def commit(number):
    return f"{number:040x}"


# What rests


def test_what_rests_wakes_in_the_order_of_its_times_as_a_dumb_twin_has_it():
    rng, rests, twin = random.Random(9), Rests(), {}
    for now in range(3_000):
        match rng.randrange(4):
            case 0 | 1:
                task_id, until = TaskId(rng.randrange(50)), now + rng.randrange(40)
                rests.put(task_id, until)
                twin[task_id] = until
            case 2:
                task_id = TaskId(rng.randrange(50))
                assert rests.take(task_id) == (twin.pop(task_id, None) is not None)
            case 3:
                due = sorted(until for until in twin.values() if until <= now)
                assert [twin.pop(task_id) for task_id in rests.due(now)] == due
        assert rests.next_at() == min(twin.values(), default=None)
        assert len(rests) == len(twin)
        assert len(rests._next) <= SPARE + 2 * len(twin) + 1


def test_a_clock_set_back_makes_nobody_rest_longer():
    rests = Rests()
    rests.put(TaskId(1), 3_700.0)
    rests.put(TaskId(2), 3_800.0)
    assert rests.due(3_600.0) == []
    assert rests.due(50.0) == []
    assert rests.next_at() == 150.0
    assert rests.due(150.0) == [TaskId(1)]
    assert TaskId(2) in rests


# How many


async def test_so_many_commits_of_a_repo_are_waited_for_and_whoever_comes_then_is_told(house, monkeypatch):
    monkeypatch.setattr(task_searches, "SEARCHES_OF_REPO", 3)
    await house.add()
    asked = await asyncio.gather(
        *(house.submit(min_commit=commit(n), within_s=60.0) for n in range(5)), return_exceptions=True
    )
    open_ones = [task for task in asked if not isinstance(task, Exception)]
    refused = [error for error in asked if isinstance(error, Exception)]
    assert (len(open_ones), len(refused)) == (3, 2)
    for error in refused:
        assert isinstance(error, Unavailable)
        assert f"3 commits of {KEY} are already being waited for" in error.message
        assert "within: 0" in error.hint
    assert await house.submit(min_commit=commit(9)), "one look is always to be had"
    assert (await house.submit(min_commit=commit(0), within_s=60.0)).id == open_ones[0].id, "so is to join"
    house.clock.now = open_ones[0].created_at + 61
    await house.take(missing(open_ones[0].id, at=house.clock.now))
    assert (await house.it.get_task(open_ones[0].id)).status is TaskStatus.FAILED
    assert await house.submit(min_commit=commit(9), within_s=60.0)


async def test_over_all_repos_there_are_so_many_too(house, monkeypatch):
    monkeypatch.setattr(task_searches, "SEARCHES_MAX", 2)
    await house.add()
    for n in range(2):
        await house.submit(min_commit=commit(n), within_s=60.0)
    with pytest.raises(Unavailable, match="2 commits are already being waited for"):
        await house.submit(min_commit=commit(2), within_s=60.0)
    assert not house.it._tasks._searches._coming


# Who shares one


async def test_who_waits_longer_shares_it_too_and_it_goes_on_as_long_as_they_wait(house):
    task, began = await search(house, within_s=10.0)
    await house.take(missing(task.id, at=began))
    longer = await house.submit(min_commit=TIP, within_s=60.0)
    assert longer.id == task.id
    house.clock.now = began + 30
    await house.it._tasks.route()
    await house.take(missing(task.id, at=house.clock.now))
    assert not (await house.it.get_task(task.id)).status.ended
    house.clock.now = began + 59.5
    await house.it._tasks.route()
    await house.take(missing(task.id, at=house.clock.now))
    assert (await house.it.get_task(task.id)).status is TaskStatus.FAILED
    other = await house.submit(min_commit=TIP, within_s=60.0, force=True)
    assert other.id != task.id


async def test_one_whose_last_look_was_in_vain_is_joined_by_nobody(house):
    task, began = await search(house, within_s=10.0)
    house.clock.now = began + 9.5
    report = missing(task.id, at=house.clock.now)
    assert house.it._tasks.counting(0, report).task_ids == (task.id,), "it ends, and that is not stored yet"
    assert (await house.submit(min_commit=TIP, within_s=10.0)).id != task.id


async def test_one_that_rests_and_is_joined_is_looked_at_without_waiting_for_the_next_round(house):
    task, _ = await search(house)
    for _ in range(4):
        await house.take(missing(task.id, at=house.clock.now))
        house.it._tasks._book.hasten(task.id)
    await house.take(missing(task.id, at=house.clock.now))
    await house.commands()
    house.it._poke.clear()
    await house.submit(min_commit=TIP, within_s=20.0)
    assert house.it._poke.is_set()
    assert house.it._tasks._book.waits(task.id)


async def test_a_repo_that_left_takes_its_searches_along(house):
    task, _ = await search(house)
    house.it._tasks.left([KEY, RepoKey("another/one")])
    assert (await house.submit(min_commit=TIP, within_s=20.0)).id != task.id


async def test_those_that_wake_close_together_are_gone_through_together(house):
    it, book = house.it._tasks, house.it._tasks._book
    book.add(SyncNow(KEY, TaskId(77)))
    it._routed_at = house.clock.now
    book.rest(TaskId(77), house.clock.now + 0.001)
    assert it.pause_s(1.0) == pytest.approx(tasks.ROUTE_GAP_S, abs=1e-6)
    it._routed_at -= 1.0
    assert it.pause_s(1.0) == pytest.approx(0.001, abs=1e-6)


# What is shown, and how it ends


async def test_what_a_look_in_vain_had_fetched_is_not_shown_while_it_rests(house):
    task, began = await search(house)
    (worker,) = house.fleet.connected()
    await house.take(Started(KEY, (task.id,), began))
    house.it.passing(worker, Progress(KEY, (task.id,), "checking", MOST, 9, began))
    assert (await house.it.get_task(task.id)).progress_percent == MOST
    await house.take(missing(task.id, at=began))
    shown = await house.it.get_task(task.id)
    assert (shown.progress_phase, shown.progress_percent) == (SyncPhase.SEARCHING, None)


async def test_one_whose_time_is_over_while_nobody_is_there_ends_then_and_says_so(house):
    task, began = await search(house, within_s=10.0)
    await house.take(Started(KEY, (task.id,), began), missing(task.id, at=began))
    machine = house.fleet.machine
    house.it._tasks._patience._earliest = 0.0
    house.fleet.machine = _Nobody(machine)
    waiting = asyncio.create_task(house.it.wait_task(task.id, 60))
    house.clock.now = began + 9.9
    await house.it._tasks.route()
    assert (await house.it.get_task(task.id)).status is TaskStatus.RUNNING
    house.clock.now = began + 10.1
    await house.it._tasks.route()
    done = await waiting
    house.fleet.machine = machine
    assert done.status is TaskStatus.FAILED
    assert f"commit {TIP} was not seen within 10 s: 1 looks did not find it" in done.failure.message


async def enter(house, number):
    made = [await house.store.create_task(KEY, Trigger.API, user="me", params=None) for _ in range(number)]
    for task in made:
        house.it._tasks._enter(task)
    return made


def note_ends(house, monkeypatch):
    """How many tasks end in each write."""
    noted, put = [], house.recorder.put

    async def counted(*entries):
        ends = sum(isinstance(entry, TaskEnded) for entry in entries)
        noted.extend([ends] if ends else [])
        await put(*entries)

    monkeypatch.setattr(house.recorder, "put", counted)
    return noted


async def test_what_nobody_takes_ends_in_one_write_and_a_bounded_number_at_once(house, monkeypatch):
    monkeypatch.setattr(task_giving_up, "AT_ONCE", 8)
    await house.add()
    await away(house)
    made = await enter(house, 20)
    machine = house.fleet.machine
    house.fleet.machine = _Nobody(machine)
    house.it._tasks._patience._earliest = 0.0
    house.clock.now = made[-1].created_at + 3601
    ends = note_ends(house, monkeypatch)
    for _ in range(3):
        await house.it._tasks.route()
    house.fleet.machine = machine
    assert ends == [8, 8, 4]
    assert {(await house.store.get_task(t.id)).status for t in made} == {TaskStatus.FAILED}


async def test_what_was_asked_of_a_repo_that_left_ends_in_one_write_too(house, monkeypatch):
    monkeypatch.setattr(task_giving_up, "AT_ONCE", 4)
    await house.add()
    await enter(house, 6)
    await house.it.release([KEY])
    ends = note_ends(house, monkeypatch)
    await house.it._tasks.route()
    assert (house.it._tasks._book.waiting, ends) == (2, [4])
    await house.it._tasks.route()
    assert (house.it._tasks._book.waiting, ends) == (0, [4, 2])


# Projects that are pulled


@pytest.fixture
async def pulled(empty_house):
    house = PullHouse(empty_house.store, empty_house.recorder)
    async with house.running():
        await house.create("a", interval_s=86_400.0)
        await house.did(await house.one_sync())
        yield house


def not_there(command, at):
    return Refused(command.key, (command.task_id,), without_commit(TIP), at, at)


async def look_in_vain(house, command):
    """The begin of a look is heard of after its end, as in one write."""
    await house.take(
        Started(command.key, (command.task_id,), house.clock.now), not_there(command, house.clock.now)
    )
    await house.quiet()


async def test_a_commit_of_a_project_is_looked_for_again_and_takes_no_room_meanwhile(pulled):
    task = await pulled.submit(key_of("a"), min_commit=TIP, within_s=20.0)
    pulled.clock.now = task.created_at
    for wait_s in (1.0, 2.0, 4.0):
        command = await pulled.one_sync()
        assert (command.task_id, command.min_commit) == (task.id, TIP)
        assert pulled.pulling.syncing() == {key_of("a")}
        await look_in_vain(pulled, command)
        assert await pulled.status(task.id) is TaskStatus.RUNNING
        assert pulled.pulling.syncing() == set(), "others may run"
        await pulled.later(wait_s + 0.01)
        await pulled.it._tasks.route()
    await pulled.did(await pulled.one_sync())
    assert await pulled.status(task.id) is TaskStatus.SUCCESS
    assert (await pulled.project("a")).task is None


async def test_a_commit_of_a_project_that_never_comes_ends_and_frees_the_project(pulled):
    task = await pulled.submit(key_of("a"), min_commit=TIP, within_s=20.0)
    pulled.clock.now = task.created_at
    await look_in_vain(pulled, await pulled.one_sync())
    pulled.clock.now = task.created_at + 19.5
    await pulled.it._tasks.route()
    await look_in_vain(pulled, await pulled.one_sync())
    assert await pulled.status(task.id) is TaskStatus.FAILED
    assert (await pulled.project("a")).task is None


async def test_whoever_joins_the_search_of_a_project_has_it_looked_for_at_once(pulled):
    task = await pulled.submit(key_of("a"), min_commit=TIP, within_s=20.0)
    pulled.clock.now = task.created_at
    await look_in_vain(pulled, await pulled.one_sync())
    joined = await pulled.submit(key_of("a"), min_commit=TIP, within_s=40.0)
    assert joined.id == task.id
    assert (await pulled.one_sync()).task_id == task.id


async def test_a_search_of_a_project_that_nobody_can_look_for_ends_with_its_time(pulled):
    task = await pulled.submit(key_of("a"), min_commit=TIP, within_s=20.0)
    pulled.clock.now = task.created_at
    await look_in_vain(pulled, await pulled.one_sync())
    machine = pulled.fleet.machine
    pulled.it._tasks._patience._earliest = 0.0
    pulled.fleet.machine = _Nobody(machine)
    pulled.clock.now = task.created_at + 21
    await pulled.it._tasks.route()
    await pulled.quiet()
    await pulled.it._tasks.route()
    await pulled.quiet()
    pulled.fleet.machine = machine
    assert await pulled.status(task.id) is TaskStatus.FAILED
    assert (await pulled.project("a")).task is None
