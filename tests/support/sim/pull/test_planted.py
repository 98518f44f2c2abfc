"""A fault of each kind is planted in the machine, and the check that is there for it notices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.pull import load, outcome, pace, sources, tracked
from evermirror.core.pull.events import OpenTask, PullDecision, TaskEnded, TaskOpened
from evermirror.core.pull.machine import PullMachine
from evermirror.model.failure import FailureKind
from evermirror.model.task import TaskStatus, Trigger
from evermirror.sim.pull.world import AIM, HOUR_S
from tests.support.sim.pull.climates import CLIMATES, play
from tests.support.sim.pull.world import Climate

SEEDS = range(1, 6)  # a fault must show in one of so many days


def found_in(climate: str, machine: type[PullMachine] = PullMachine) -> str:
    """What is said of the first day on which something was noticed."""
    stories = (play(climate, seed, machine).story for seed in SEEDS)
    return next((story for story in stories if story), "")


class Unlimited(PullMachine):
    def __init__(self, settings, zone, strategy) -> None:
        super().__init__(settings, zone, replace(strategy, max_concurrent=60))


class PeakBlind(PullMachine):
    def __init__(self, settings, zone, strategy) -> None:
        super().__init__(settings, zone, replace(strategy, peak_avoidance=False, max_concurrent=3))


class Sleepy(PullMachine):
    def next_wake(self, now: float) -> float:
        return now + HOUR_S


class Forgetful(PullMachine):
    """One project is never opened."""

    def handle(self, event, now: float) -> PullDecision:
        decision = super().handle(event, now)
        opens = tuple(o for o in decision.opens if not o.project.key.endswith("/project77"))
        return replace(decision, opens=opens)


class Double(PullMachine):
    """Now and then a project is opened again while it runs."""

    def handle(self, event, now: float) -> PullDecision:
        decision = super().handle(event, now)
        if isinstance(event, TaskOpened) and event.trigger is Trigger.SCHEDULE and event.task_id % 50 == 0:
            project = self.project(event.key)
            again = OpenTask(replace(project, next_sync_at=now + project.config.interval_s), 0)
            return replace(decision, opens=(*decision.opens, again))
        return decision


class Stormy(PullMachine):
    """Takes the weather of the source for nobody's fault, and asks again."""

    def handle(self, event, now: float) -> PullDecision:
        if isinstance(event, TaskEnded) and event.status is TaskStatus.FAILED and not event.counted:
            event = replace(event, refused=True)
        return super().handle(event, now)


class Blaming(PullMachine):
    """Takes the weather of the source for the project's fault."""

    def handle(self, event, now: float) -> PullDecision:
        if isinstance(event, TaskEnded) and not event.counted and event.failure is not None:
            own = replace(event.failure, kind=FailureKind.UNKNOWN)
            event = replace(event, failure=own, counted=True)
        return super().handle(event, now)


class Tireless(PullMachine):
    def __init__(self, settings, zone, strategy) -> None:
        super().__init__(replace(settings, pause_after=50), zone, strategy)


class Unstretched(PullMachine):
    def __init__(self, settings, zone, strategy) -> None:
        super().__init__(replace(settings, stretch=1.0), zone, strategy)


class Mute(PullMachine):
    def handle(self, event, now: float) -> PullDecision:
        return replace(super().handle(event, now), alerts=())


class Pushless(PullMachine):
    """Nothing is ever pushed on."""

    def handle(self, event, now: float) -> PullDecision:
        decision = super().handle(event, now)
        return replace(decision, starts=tuple(replace(start, push=()) for start in decision.starts))


@pytest.mark.parametrize(
    ("climate", "machine", "said"),
    [
        ("no avoidance", Unlimited, "6 run at once, and 5 may"),
        ("aim", PeakBlind, "was started in peak hours"),
        ("own polls", Sleepy, "s late"),
        ("aim", Forgetful, "project77 (normal) is"),
        ("aim", Double, "has two tasks"),
        ("outages", Stormy, "the source is to be left alone until"),
        ("outages", Blaming, "and none was its own"),
        ("ill", Tireless, "should be paused, with 5 failures"),
        ("overload", Unstretched, "is next due in"),
        ("ill", Mute, "and people heard []"),
        ("aim", Pushless, "the source"),
    ],
)
def test_a_machine_with_a_fault_is_found_out(climate: str, machine: type[PullMachine], said: str) -> None:
    assert said in found_in(climate, machine)


def test_a_storm_after_an_outage_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(sources, "ROOM_FIRST", 8)
    assert "the source is just back, and is asked" in found_in("outages")


def test_pauses_that_do_not_grow_are_noticed(monkeypatch) -> None:
    monkeypatch.setattr(sources, "PAUSE_LAST_S", 60.0)
    assert "the source is to be left alone until" in found_in("outages")


def test_retries_that_come_too_soon_are_noticed(monkeypatch) -> None:
    monkeypatch.setattr(outcome, "retry_delay_s", lambda config, failures, interval_s, multiplier: 60.0)
    assert "next in 60.0 s" in found_in("ill")


def test_low_projects_under_overload_are_noticed(monkeypatch) -> None:
    monkeypatch.setattr(
        pace, "under_load", lambda allowed, limit, level, reason: replace(allowed, limit=limit)
    )
    assert "(low) was started while the source is overloaded" in found_in("overload")


def test_a_limit_that_does_not_spare_an_overloaded_source_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(pace.Adaptive, "limit", lambda self, figure: figure)
    assert "run at once, and 2 may" in found_in("overload")


def test_pushes_to_a_paused_target_are_noticed(monkeypatch) -> None:
    def push_to(self, trigger, now):
        return tuple(tracked.PushTo(t.id, t.url, t.credential, t.put, t.adopt) for t in self.project.targets)

    monkeypatch.setattr(tracked.Tracked, "push_to", push_to)
    assert "which is paused" in found_in("ill")


def test_a_load_that_is_always_high_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(load, "SLOW_HIGH", 0.5)
    assert "the source seemed overloaded and was not" in found_in("own polls")


def test_a_strategy_that_burdens_the_source_is_noticed(monkeypatch) -> None:
    """It is obeyed, and the aim is missed: 200 first syncs at once."""
    rash = replace(AIM, off_peak_max_concurrent=200, adaptive=False)
    monkeypatch.setitem(CLIMATES, "rash", Climate(rash, fresh=True))
    assert "of the source's processors busy" in found_in("rash")
