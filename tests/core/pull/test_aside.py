"""Tasks that nobody can do: they take no room from others, and get their turn when there is somebody."""

from __future__ import annotations

from evermirror.core.pull.events import TaskBegan, TaskSetAside, TaskTakenUp
from evermirror.model.pull import Strategy
from evermirror.model.task import Trigger
from tests.core.pull.small import HOUR, NOW, World, key, project

ONE = Strategy(max_concurrent=1)


def aside(world, name):
    world.do(TaskSetAside(key(name), world.open[name]))


def test_a_homeless_project_does_not_hold_up_the_others_and_gets_no_second_task():
    world = World(project("one", interval_s=HOUR), project("two", interval_s=HOUR), strategy=ONE)
    assert world.started == ["one"]
    aside(world, "one")
    assert world.started == ["one", "two"]
    assert (world.machine.running(), world.machine.is_running(key("one"))) == ({key("two")}, False)
    world.end("two")
    world.wait(3 * HOUR)
    assert world.started.count("one") == 1


def test_it_starts_again_when_there_is_somebody_and_room():
    world = World(project("one", interval_s=HOUR), project("two", interval_s=HOUR), strategy=ONE)
    task = world.open["one"]
    aside(world, "one")
    world.do(TaskTakenUp(key("one"), task))
    assert world.started == ["one", "two"]  # no room
    world.end("two")
    assert world.started == ["one", "two", "one"]
    assert world.open["one"] == task
    world.end("one")
    assert (world.state("one").last_sync_at, world.state("one").task) == (world.now, None)


def test_what_a_person_asked_for_starts_at_once_when_there_is_somebody():
    world = World(project("one", next_sync_at=NOW + HOUR), project("two", interval_s=HOUR), strategy=ONE)
    task = world.trigger("one", Trigger.MANUAL)
    aside(world, "one")
    world.do(TaskTakenUp(key("one"), task))
    assert world.started == ["two", "one", "one"]


def test_a_worker_that_was_taken_for_away_and_began_takes_its_room_and_is_told_once_more():
    world = World(project("one", interval_s=HOUR), strategy=ONE)
    task = world.open["one"]
    aside(world, "one")
    assert not world.machine.running()
    world.do(TaskBegan(key("one"), task, world.now))
    assert world.machine.running() == {key("one")}
    world.do(TaskTakenUp(key("one"), task))  # too late to matter
    assert world.started == ["one", "one"]
    world.end("one")
    assert not world.machine.running()


def test_what_is_not_known_is_not_set_aside():
    world = World(project("one"), strategy=ONE)
    world.do(TaskSetAside(key("one"), 99))
    world.do(TaskTakenUp(key("one"), world.open["one"]))
    world.do(TaskSetAside(key("nobody"), 1))
    assert (world.started, world.machine.running()) == (["one"], {key("one")})
