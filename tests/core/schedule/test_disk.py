"""The disk guard."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.disk import HOLD_S, HYSTERESIS, SETTLE_S, DiskGuard, percent_full

T0 = 1_700_000_000.0
HIGH = 0.9
LOW = HIGH - HYSTERESIS


@pytest.fixture
def guard():
    return DiskGuard(HIGH)


def test_it_accepts_until_the_mark_is_reached(guard):
    assert guard.accepting
    assert guard.observe(math.nextafter(HIGH, 0), T0)
    assert not guard.observe(HIGH, T0)
    assert not guard.accepting


def test_between_the_marks_it_stays_as_it_was(guard):
    middle = (HIGH + LOW) / 2
    assert guard.observe(middle, T0)
    guard.observe(HIGH, T0)
    assert not guard.observe(middle, T0 + 1)
    assert not guard.observe(LOW, T0 + 2)
    assert guard.observe(math.nextafter(LOW, 0), T0 + 3)
    assert guard.observe(middle, T0 + 4)


def test_a_share_that_swings_around_the_mark_does_not_make_it_flap(guard):
    guard.observe(HIGH, T0)
    answers = {guard.observe(HIGH + (0.005 if n % 2 else -0.005), T0 + n) for n in range(100)}
    assert answers == {False}


def test_a_failed_write_closes_it_however_empty_the_disk_looks(guard):
    guard.write_failed(T0)
    assert not guard.accepting
    assert not guard.observe(0.1, T0 + HOLD_S - 0.1)
    assert guard.observe(0.1, T0 + HOLD_S)


def test_the_hold_being_over_does_not_open_it_above_the_lower_mark(guard):
    guard.write_failed(T0)
    assert not guard.observe(LOW + 0.001, T0 + HOLD_S)
    assert guard.observe(LOW - 0.001, T0 + HOLD_S + 1)


def test_another_failed_write_starts_the_hold_again(guard):
    guard.write_failed(T0)
    guard.write_failed(T0 + HOLD_S - 1)
    assert not guard.observe(0.1, T0 + HOLD_S)
    assert guard.observe(0.1, T0 + 2 * HOLD_S - 1)


def test_a_mark_below_the_hysteresis_never_opens_again_by_itself():
    """An absurd setting errs on the safe side."""
    guard = DiskGuard(0.01)
    assert not guard.observe(0.02, T0)
    assert not guard.observe(0.0, T0 + 1)


EVENTS = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.floats(0, 400)), max_size=60)


@given(high=st.floats(0.03, 1), events=EVENTS)
def test_it_never_accepts_at_or_above_the_mark_nor_soon_after_a_failed_write(high, events):
    """Soon after a failed write it does where room was made meanwhile."""
    guard, now, failed_at, full, last = DiskGuard(high), T0, -math.inf, 0.0, 0.0
    for share, fails, passes in events:
        now += passes
        before = guard.accepting
        if fails:
            guard.write_failed(now)
            failed_at, full = now, last
            assert not guard.accepting
            before = False
        after = guard.observe(share, now)
        last = share
        assert after is guard.accepting
        if now < failed_at + SETTLE_S:
            full = min(full, share)
        elif share <= full - HYSTERESIS:
            failed_at = -math.inf
        if share >= high or now < failed_at + HOLD_S:
            assert not after
        elif share < high - HYSTERESIS:
            assert after
        else:
            assert after is before


def test_room_that_somebody_makes_opens_it_at_once(guard):
    guard.observe(0.99, T0)
    guard.write_failed(T0 + 1)
    assert not guard.observe(0.99, T0 + 20)
    assert guard.observe(0.5, T0 + 21)
    assert not guard.lacked_room(T0 + 21)


def test_room_that_a_failed_write_gives_back_opens_nothing(guard):
    """A clone that does not fit would be tried again and again."""
    guard.observe(0.99, T0)
    guard.write_failed(T0 + 1)
    assert not guard.observe(0.6, T0 + 2), "what git had written so far is removed"
    assert not guard.observe(0.6, T0 + HOLD_S - 1)
    assert guard.observe(0.57, T0 + HOLD_S - 1), "now somebody made room"


def test_a_clock_that_is_set_back_does_not_keep_it_closed(guard):
    guard.write_failed(T0 + 3600)
    assert guard.observe(0.1, T0)


def test_it_says_why_with_the_figure_and_the_setting(guard):
    guard.observe(0.914, T0)
    assert guard.why_closed == "the disk is 92 % full, above fleet.disk_high = 0.9"
    guard.observe(0.89, T0 + 1)
    assert (
        guard.why_closed == "the disk is 89 % full, still near fleet.disk_high = 0.9: it has to be 2 % below"
    )
    guard.observe(0.2, T0 + 2)
    guard.write_failed(T0 + 2)
    assert guard.lacked_room(T0 + 3)
    assert "a write failed for lack of room" in guard.why_closed
    assert "20 % full" in guard.why_closed
    assert not guard.lacked_room(T0 + 2 + HOLD_S)


@pytest.mark.parametrize(("share", "told"), [(0.85, "85 %"), (0.8501, "86 %"), (0.0, "0 %"), (1.0, "100 %")])
def test_percent_is_rounded_up_as_df_does(share, told):
    assert percent_full(share) == told
