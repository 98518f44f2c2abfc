"""Intervals are longer while the load lasts, and not after it."""

from __future__ import annotations

import pytest

from evermirror.core.pull.events import LoadSeen, ProjectRemoved
from evermirror.core.pull.load import cpu_load
from evermirror.model.failure import FailureKind
from evermirror.model.pull import Strategy
from tests.core.pull.small import CRITICAL, HOUR, MINUTE, NOW, TIMEOUT, World, key, project

ADAPTIVE = Strategy(adaptive=True)


def loaded(*projects):
    """A world whose source is overloaded from the start."""
    world = World(strategy=ADAPTIVE)
    world.do(LoadSeen(cpu_load(95)))
    world.put(*projects)
    return world


def calmed(world):
    world.do(LoadSeen(cpu_load(60)))


@pytest.mark.parametrize("how", ["the load is less", "nobody tells of it", "adaptive is off"])
def test_a_project_that_was_stretched_is_due_an_interval_after_its_opening_once_the_load_is_over(how):
    world = loaded(project("a", interval_s=6 * HOUR))
    world.end("a")
    assert world.state("a").next_sync_at == NOW + 12 * HOUR
    match how:
        case "the load is less":
            calmed(world)
        case "nobody tells of it":
            world.wait(10 * MINUTE)
        case "adaptive is off":
            world.strategy(adaptive=False)
    assert world.state("a").next_sync_at == NOW + 6 * HOUR == world.stored[key("a")].next_sync_at
    assert world.machine.next_wake(world.now) <= NOW + 6 * HOUR
    world.wait(6 * HOUR)
    assert world.started == ["a", "a"]


def test_while_the_load_lasts_it_stays_stretched():
    world = loaded(project("a", interval_s=HOUR))
    world.end("a")
    world.now += MINUTE
    world.do(LoadSeen(cpu_load(90)))
    assert world.state("a").next_sync_at == NOW + 2 * HOUR


def test_one_whose_time_has_come_without_the_stretch_starts_when_the_load_is_over():
    world = loaded(project("a", interval_s=HOUR))
    world.end("a", after=1.5 * HOUR)
    calmed(world)
    assert world.started == ["a", "a"]


def test_a_wait_that_is_no_interval_stays_as_it_is():
    world = loaded(project("a", CRITICAL, interval_s=10 * MINUTE))
    for _ in range(3):
        world.end("a", TIMEOUT)
        world.now = world.state("a").next_sync_at
        world.do(LoadSeen(cpu_load(95)))
    world.end("a", TIMEOUT)
    world.put(project("b", next_sync_at=NOW + 9 * HOUR))
    stretched, at = world.state("a").next_sync_at, world.now
    assert stretched == at + 20 * MINUTE  # the fourth failure: the interval, stretched
    calmed(world)
    assert world.state("a").next_sync_at == at + 10 * MINUTE

    world = loaded(project("a", interval_s=2 * MINUTE))
    world.end("a", TIMEOUT)
    at = world.now
    calmed(world)
    assert world.state("a").next_sync_at == at + 5 * MINUTE  # a retry, which load does not stretch


def test_one_that_needs_a_person_waits_for_the_usual_interval_again():
    world = loaded(project("a", interval_s=HOUR))
    world.end("a", FailureKind.CONFLICT)
    at = world.now
    assert world.state("a").next_sync_at == at + 2 * HOUR
    calmed(world)
    assert world.state("a").next_sync_at == at + HOUR


def test_what_a_person_set_since_stands_and_who_left_is_forgotten():
    world = loaded(project("a", interval_s=6 * HOUR), project("b", interval_s=6 * HOUR))
    world.end("a")
    world.put(project("a", interval_s=6 * HOUR, next_sync_at=NOW + 7 * HOUR))
    world.do(ProjectRemoved(key("b")))
    calmed(world)
    assert world.state("a").next_sync_at == NOW + 7 * HOUR
    assert not world.machine._stretched
