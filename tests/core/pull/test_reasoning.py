"""Why a project is pulled then: the steps lead to the time that is told, and that is when it is started."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.events import LoadSeen, TaskSetAside
from evermirror.core.pull.load import cpu_load
from evermirror.model.plan import StepCode
from evermirror.model.pull import Strategy, Waiting, WaitReason
from evermirror.model.task import Trigger
from tests.core.pull.small import (
    CRITICAL,
    HIGH,
    HOUR,
    LIMITED,
    LOW,
    MINUTE,
    NORMAL,
    NOW,
    SKIPPED,
    TIMEOUT,
    World,
    key,
    project,
)

PEAK = Strategy(peak_avoidance=True, peak_start=21, peak_end=23)  # from an hour after NOW, in Shanghai
ADAPTIVE = Strategy(adaptive=True)
GAPS = {StepCode.PROJECT, StepCode.PEAK}


def plan(world, name="one"):
    told = world.machine.plan(key(name), world.now)
    times = [step.at for step in told.steps if step.at is not None]
    assert told.next_poll_at == (times[-1] if times else None)
    gaps = [step.s for step in told.steps if step.code in GAPS]
    assert not gaps or told.gap_s == gaps[-1]
    return told


def codes(world, name="one"):
    return [str(step.code) for step in plan(world, name).steps]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([CRITICAL, HIGH, NORMAL, LOW]),
    st.sampled_from([10 * MINUTE, HOUR, 5 * HOUR]),
    st.sampled_from([Strategy(), PEAK]),
    st.lists(st.sampled_from([None, TIMEOUT, LIMITED]), min_size=1, max_size=6),
)
def test_a_project_is_started_when_its_steps_say(priority, interval_s, strategy, ends):
    world = World(project("one", priority, interval_s=interval_s), strategy=strategy)
    for kind in ends:
        assert codes(world) == ["running"]
        world.end("one", kind)
        told = plan(world).next_poll_at
        if told is None:
            return  # paused by its failures
        before = len(world.started)
        world.wait(told - world.now - 0.5)
        assert len(world.started) == before, "not before"
        assert plan(world).next_poll_at == told, "it does not move by waiting"
        world.wait(0.5)
        assert len(world.started) == before + 1, plan(world)


def test_the_steps_of_a_project():
    world = World(project("one", interval_s=HOUR, last_sync_at=NOW - HOUR))
    world.end("one", status=SKIPPED)
    assert codes(world) == ["project", "last_poll", "due"]
    told = plan(world)
    assert (told.policy, told.gap_s, told.steps[0].s) == ("pull", HOUR, HOUR)
    assert told.last_poll_at == world.now
    world.wait(HOUR)
    world.end("one", TIMEOUT)
    assert codes(world)[-1] == "backoff"
    assert plan(world).steps[-1].detail == "after 1 failures in a row"


def test_peak_hours_load_and_a_closed_host_are_steps_of_their_own():
    world = World(project("one", NORMAL), strategy=PEAK)
    world.end("one")
    assert codes(world)[-1] == "window"
    assert plan(world).next_poll_at == NOW + 3 * HOUR, "when peak hours are over"
    loaded = World(strategy=ADAPTIVE)
    loaded.do(LoadSeen(cpu_load(99.0)))
    loaded.put(project("one"))
    loaded.end("one")
    peak = next(step for step in plan(loaded).steps if step.code == StepCode.PEAK)
    assert peak.s == plan(loaded).gap_s == loaded.machine.settings.stretch * HOUR
    limited = World(project("one", interval_s=10 * MINUTE), project("two"))
    limited.end("one")
    limited.end("two", LIMITED, retry_after_s=2 * HOUR)
    assert codes(limited)[-1] == "weather"


def test_what_waits_for_room_or_a_person_has_no_time_of_its_own():
    world = World(project("one"), project("two"), strategy=Strategy(max_concurrent=1))
    assert world.started == ["one"]
    assert codes(world, "two")[-1] == "budget"
    assert plan(world, "two").next_poll_at == world.now
    world.trigger("two", Trigger.MANUAL_BATCH)
    assert codes(world, "two") == ["asked", "budget"]
    world.put(project("off", enabled=False))
    assert codes(world, "off") == ["disabled"]
    world.end("one")
    world.strategy(enabled=False)
    assert codes(world) == ["disabled"]
    assert world.machine.plan(key("nobody"), world.now) is None
    assert plan(world).next_poll_at is None


# What a task that was asked for waits for


def test_a_batch_in_peak_hours_says_until_when_it_waits_and_why():
    world = World(project("one", NORMAL), strategy=PEAK)
    world.end("one")
    world.wait(HOUR)  # 21:00 in Shanghai
    world.trigger("one", Trigger.MANUAL_BATCH)
    wait = world.machine.wait(key("one"), world.now)
    assert wait.text == "waits until 23:00: only critical and high run in peak hours"
    assert (wait.reason, wait.until, wait.clock) == (WaitReason.PEAK, NOW + 3 * HOUR, "23:00")
    assert codes(world) == ["asked", "window"]
    assert plan(world).reason == wait.text
    assert plan(world).next_poll_at == wait.until
    assert world.machine.held(world.now) == (Waiting(wait, 1),)
    world.wait(2 * HOUR)
    assert world.started == ["one", "one"]
    assert world.machine.wait(key("one"), world.now) is None
    assert world.machine.held(world.now) == ()


def test_a_night_within_the_peak_does_not_end_the_wait():
    night = {"night_start": 22, "night_end": 24, "night_max_concurrent": 9}
    world = World(strategy=replace(PEAK, **night))
    world.put(project("one", NORMAL, next_sync_at=NOW + HOUR))
    world.wait(HOUR)
    world.trigger("one", Trigger.MANUAL_BATCH)
    assert world.machine.wait(key("one"), world.now).clock == "23:00"
    assert plan(world).next_poll_at == NOW + 3 * HOUR


def test_a_peak_that_never_ends_has_no_time():
    world = World(project("one", LOW), strategy=Strategy(peak_avoidance=True, peak_start=0, peak_end=24))
    assert world.machine.plan(key("one"), world.now).next_poll_at is None
    world.trigger("one", Trigger.MANUAL_BATCH)
    wait = world.machine.wait(key("one"), world.now)
    assert (wait.text, wait.until) == ("waits: only critical and high run in peak hours", None)


def test_load_a_closed_source_room_and_a_missing_worker_are_named():
    world = World(strategy=Strategy(max_concurrent=2, adaptive=True))
    world.do(LoadSeen(cpu_load(99.0)))
    world.put(project("low", LOW))
    world.trigger("low", Trigger.MANUAL_BATCH)
    assert world.machine.wait(key("low"), world.now).text == "waits while the source is under load: cpu 99 %"
    full = World(project("one"), project("two"), strategy=Strategy(max_concurrent=1))
    task = full.trigger("two", Trigger.MANUAL_BATCH)
    assert full.machine.wait(key("two"), full.now).text == "waits for room: 1 of 1 run"
    full.do(TaskSetAside(key("two"), task))
    assert full.machine.wait(key("two"), full.now).reason is WaitReason.WORKER
    closed = World(project("one"), project("two"), strategy=Strategy(max_concurrent=2))
    closed.end("one", LIMITED, retry_after_s=2 * HOUR)
    closed.end("two")
    closed.trigger("two", Trigger.MANUAL_BATCH)
    wait = closed.machine.wait(key("two"), closed.now)
    assert (wait.reason, wait.until is None) == (WaitReason.SOURCE, False)
