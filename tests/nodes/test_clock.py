"""UTC that never goes back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.nodes import clock
from evermirror.nodes.clock import STEP_S, SteadyClock


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


def test_a_wall_clock_set_back_is_not_followed(machine):
    steady = SteadyClock()
    before = steady()
    machine.wall -= 3600
    assert steady() == before
    machine.passes(10)
    assert steady() == pytest.approx(before + 10)


def test_a_wall_clock_set_forward_is_followed_at_once(machine):
    steady = SteadyClock()
    machine.wall += 7200
    assert steady() == machine.wall
    machine.passes(5)
    assert steady() == pytest.approx(machine.wall)


def test_one_set_forward_and_back_again_leaves_us_ahead_and_never_goes_back(machine):
    steady = SteadyClock()
    machine.wall += 7200
    ahead = steady()
    machine.wall -= 7200
    assert steady() == pytest.approx(ahead)
    machine.passes(7200)
    assert steady() == pytest.approx(ahead + 7200)


def test_a_small_drift_forward_is_left_alone(machine):
    steady = SteadyClock()
    before = steady()
    machine.wall += STEP_S - 1
    assert steady() == pytest.approx(before)


def test_a_sleep_of_the_machine_passes_here_too(machine):
    """CLOCK_BOOTTIME goes on in a sleep: both clocks show the night when the lid is opened."""
    steady = SteadyClock()
    before = steady()
    machine.passes(8 * 3600)
    assert steady() == pytest.approx(before + 8 * 3600)


@given(steps=st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=30))
def test_it_never_goes_back_and_is_never_far_behind_the_wall(steps):
    machine = Machine()
    with pytest.MonkeyPatch.context() as patch:
        machine.install(patch)
        steady = SteadyClock()
        last = steady()
        for passes, is_set in steps:
            machine.passes(passes)
            machine.wall += is_set
            now = steady()
            assert now >= last - 1e-6
            assert now >= machine.wall - STEP_S - 1e-6
            last = now


def test_the_real_one_agrees_with_the_machine():
    assert SteadyClock()() == pytest.approx(time.time(), abs=1.0)
