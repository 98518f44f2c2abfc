"""Many projects: little memory for each, and a decision that looks at few of them. (bench/: 100,000.)"""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from evermirror.core.pull.events import ProjectPut, TaskOpened, Woke
from evermirror.core.pull.machine import PullMachine
from evermirror.model.pull import Strategy
from evermirror.model.repo import Host, Priority
from evermirror.model.task import TaskId, Trigger
from tests.core.pull.small import HOUR, LIMITED, NOW, SETTINGS, SHANGHAI, TIMEOUT, ended, project

MANY = 20_000
BYTES_MAX = 400  # a project in the machine, beside the project itself
PRIORITIES = list(Priority)


def projects(count, hosts=1):
    return [
        project(
            f"team-{n % 97}/repo-{n}",
            PRIORITIES[n % 4],
            host=Host(f"forge-{n % hosts}.example"),
            last_sync_at=NOW - n * 7919 % 100_003,
            next_sync_at=NOW + (n % 2) * HOUR,
        )
        for n in range(count)
    ]


def loaded(items, strategy=None):
    machine = PullMachine(SETTINGS, SHANGHAI, strategy or Strategy())
    for item in items:
        machine.handle(ProjectPut(item), NOW)
    return machine


def test_a_project_costs_little_memory():
    items = projects(MANY)
    gc.collect()
    tracemalloc.start()
    try:
        machine = loaded(items)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in machine.projects()) == MANY
    assert used / MANY < BYTES_MAX


def calls_of(work):
    """Function calls: what a machine under load cannot make slower."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def one_round(machine, kind=None):
    """A task ends, another one is opened and begins."""
    running = sorted(machine.running())[0]
    item = machine.project(running)
    now = NOW + 1

    def work():
        decision = machine.handle(
            ended(item.name, item.task, kind, at=now, host=item.host, counted=False), now
        )
        for number, opened in enumerate(decision.opens):
            task_id = TaskId(10**6 + number)
            machine.handle(TaskOpened(opened.project.key, task_id, Trigger.SCHEDULE), now)
        machine.next_wake(now)

    return work


def begun(count, hosts):
    machine = loaded(projects(count, hosts))
    for number, opened in enumerate(machine.handle(Woke(), NOW).opens):
        machine.handle(TaskOpened(opened.project.key, TaskId(number), Trigger.SCHEDULE), NOW)
    return machine


@pytest.mark.parametrize("hosts", [1, 50])
@pytest.mark.parametrize("kind", [None, TIMEOUT, LIMITED])
def test_a_decision_costs_the_same_with_a_hundred_times_as_many_projects(hosts, kind):
    few, many = (calls_of(one_round(begun(count, hosts), kind)) for count in (200, MANY))
    assert many <= few + 20


def test_nobody_looks_through_a_closed_host():
    machine = begun(MANY, 2)
    for running in sorted(machine.running()):
        item = machine.project(running)
        event = ended(item.name, item.task, TIMEOUT, at=NOW + 1, host=item.host, counted=False)
        machine.handle(event, NOW + 1)
    assert calls_of(lambda: machine.handle(Woke(), NOW + 2)) < 200
