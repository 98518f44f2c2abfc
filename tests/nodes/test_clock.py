"""UTC that follows the wall clock, and the coordinator's."""

from __future__ import annotations

import time

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from evermirror.model.messages import WorkerStatus
from evermirror.nodes import clock
from evermirror.nodes.clock import DISAGREE_S, STEP_S, CoordinatorClock, SteadyClock


class Machine:
    """A wall clock that can be set, and an uptime that only passes."""

    def __init__(self):
        self.wall, self.up = 1_700_000_000.0, 5_000.0

    def passes(self, seconds):
        self.wall += seconds
        self.up += seconds

    def install(self, patch):
        patch.setattr(clock.time, "time", lambda: self.wall)
        patch.setattr(clock.time, "clock_gettime", self.gettime)
        return self

    def gettime(self, which):
        assert which == time.CLOCK_BOOTTIME  # the one that also counts while the machine sleeps
        return self.up


@pytest.fixture
def machine(monkeypatch):
    return Machine().install(monkeypatch)


def test_it_starts_at_the_wall_clock_and_goes_on_with_it(machine):
    steady = SteadyClock()
    assert steady() == machine.wall
    machine.passes(1234.5)
    assert steady() == pytest.approx(machine.wall)


def test_a_wall_clock_set_back_is_followed_at_once(machine):
    steady = SteadyClock()
    machine.wall -= 3600
    assert steady() == machine.wall
    machine.passes(10)
    assert steady() == pytest.approx(machine.wall)


def test_a_wall_clock_set_forward_is_followed_at_once(machine):
    steady = SteadyClock()
    machine.wall += 7200
    assert steady() == machine.wall
    machine.passes(5)
    assert steady() == pytest.approx(machine.wall)


def test_one_that_was_ahead_and_is_set_right_is_right_again_and_both_steps_are_logged(machine):
    steady = SteadyClock()
    with structlog.testing.capture_logs() as told:
        machine.wall += 7200
        assert [steady(), steady()] == [machine.wall] * 2
        machine.wall -= 7200
        assert [steady(), steady()] == [machine.wall] * 2
    assert [(line["log_level"], line["by_s"]) for line in told] == [("warning", 7200.0), ("warning", -7200.0)]


def test_a_small_drift_is_left_alone(machine):
    steady = SteadyClock()
    before = steady()
    machine.wall += STEP_S - 1
    assert steady() == pytest.approx(before)
    machine.wall -= 2 * (STEP_S - 1)
    assert steady() == pytest.approx(before)


def test_a_sleep_of_the_machine_passes_here_too(machine):
    """CLOCK_BOOTTIME goes on in a sleep: both clocks show the night when the lid is opened."""
    steady = SteadyClock()
    before = steady()
    machine.passes(8 * 3600)
    assert steady() == pytest.approx(before + 8 * 3600)


@given(steps=st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=30))
def test_it_is_never_far_from_the_wall_and_goes_back_with_it_alone(steps):
    machine = Machine()
    with pytest.MonkeyPatch.context() as patch:
        machine.install(patch)
        steady = SteadyClock()
        last = steady()
        for passes, is_set in steps:
            machine.passes(passes)
            machine.wall += is_set
            now = steady()
            assert abs(now - machine.wall) <= STEP_S + 1e-3
            assert now >= last - 1e-3 or machine.wall < last
            last = now


def test_the_real_one_agrees_with_the_machine():
    assert SteadyClock()() == pytest.approx(time.time(), abs=1.0)


# The coordinator's clock


def status(*warnings):
    return WorkerStatus(0, 0, 0.0, 0, 0, (), 0, (), 0, 0, True, warnings, 0.0)


def test_passes_are_judged_by_the_coordinators_clock_however_wrong_ours_is(machine):
    theirs = CoordinatorClock(SteadyClock())
    assert theirs() == machine.wall, "nothing was told yet"
    theirs.told(machine.wall - 500)
    machine.wall += 7200
    machine.passes(60)
    assert theirs() == machine.wall - 7200 - 500
    theirs.told(0.0)  # by a coordinator that is too old to say
    assert theirs() == machine.wall - 7200 - 500


def test_clocks_that_disagree_are_logged_once_and_warned_of_while_they_do(machine):
    theirs = CoordinatorClock(SteadyClock())
    theirs.told(machine.wall)
    with structlog.testing.capture_logs() as told:
        assert theirs.noted(status("x")).warnings == ("x",)
        machine.wall += DISAGREE_S + 30
        warned = [theirs.noted(status("x"), "worker ann: ").warnings for _ in range(3)]
        machine.wall -= DISAGREE_S + 30
        assert theirs.noted(status()).warnings == ()
        theirs.told(machine.wall + 3600)
        assert "3600 s behind" in theirs.noted(status()).warnings[0]
    assert warned == [("x", warned[0][1])] * 3
    assert warned[0][1].startswith("worker ann: its clock is 90 s ahead of the coordinator's")
    seen = [line["event"].rpartition("coordinator ")[2] for line in told if "coordinator" in line["event"]]
    assert seen == ["disagree", "agree again", "disagree"]
