"""A machine that begins with tasks which another one opened: those that ran go on, others wait."""

from __future__ import annotations

import pytest

from evermirror.core.pull.events import ProjectPut, TaskBegan, TaskOpened, Woke
from evermirror.core.pull.machine import PullMachine
from evermirror.model.pull import Strategy
from evermirror.model.task import TaskId, Trigger
from tests.core.pull.small import CRITICAL, HOUR, NOW, SETTINGS, SHANGHAI, World, ended, key, project

ONE = Strategy(max_concurrent=1)
PEAK = Strategy(peak_avoidance=True, peak_start=0, peak_end=23, peak_max_concurrent=3)


def restarted(trigger, count, *, strategy=ONE, ran=0):
    """A machine that was told of so many open tasks, the first of them running, and what it started."""
    machine, starts = PullMachine(SETTINGS, SHANGHAI, strategy), []
    ids = [TaskId(n + 1) for n in range(count)]
    events = [ProjectPut(project(f"p{i}", task=i, next_sync_at=NOW + HOUR)) for i in ids]
    for i in ids:
        events.append(TaskOpened(key(f"p{i}"), i, trigger))
        if i <= ran:
            events.append(TaskBegan(key(f"p{i}"), i, NOW - 60))
    for event in [*events, Woke()]:
        starts += machine.handle(event, NOW).starts
    return machine, [start.task_id for start in starts]


@pytest.mark.parametrize("trigger", [Trigger.SCHEDULE, Trigger.MANUAL_BATCH])
def test_a_task_that_ran_is_started_again_and_has_its_room(trigger):
    machine, started = restarted(trigger, 1, ran=1)
    assert started == [1]
    assert machine.running() == {key("p1")}
    assert machine.handle(ProjectPut(project("b", CRITICAL)), NOW).opens == ()
    decision = machine.handle(ended("p1", 1, at=NOW + 1), NOW + 1)
    assert [o.project.name for o in decision.opens] == ["b"]


@pytest.mark.parametrize("trigger", [Trigger.SCHEDULE, Trigger.MANUAL_BATCH])
def test_of_many_open_tasks_those_that_ran_go_on_and_others_start_as_there_is_room(trigger):
    machine, started = restarted(trigger, 200, strategy=Strategy(max_concurrent=3), ran=2)
    assert started == [1, 2, 3]
    for ends, starts in ((1, 4), (3, 5)):
        decision = machine.handle(ended(f"p{ends}", ends, at=NOW + ends), NOW + ends)
        assert ([s.task_id for s in decision.starts], decision.opens) == ([starts], ())
    assert machine.view(NOW).running == 3


def test_in_the_peak_open_tasks_of_the_schedule_wait_for_its_end():
    machine, started = restarted(Trigger.SCHEDULE, 3, strategy=PEAK)
    assert (started, machine.running()) == ([], frozenset())
    at_night = NOW + 3.5 * HOUR  # 23:30 in Shanghai
    assert len(machine.handle(Woke(), at_night).starts) == 3


def test_a_waiting_task_of_the_schedule_is_not_opened_a_second_time():
    world = World(project("busy", CRITICAL), strategy=ONE)
    world.put(project("a"))
    world.do(TaskOpened(key("a"), TaskId(77), Trigger.SCHEDULE))
    world.wait(HOUR / 2)
    assert world.started == ["busy"]
    world.end("busy")
    assert (world.started, world.open["a"]) == (["busy", "a"], 77)
