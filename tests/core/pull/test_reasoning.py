"""Why a project is pulled then: the steps lead to the time that is told, and that is when it is started."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.events import LoadSeen
from evermirror.core.pull.load import cpu_load
from evermirror.model.plan import StepCode
from evermirror.model.pull import Strategy
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
