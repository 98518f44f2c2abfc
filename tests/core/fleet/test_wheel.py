from math import ceil, floor
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.wheel import TimerWheel


class DumbWheel:
    """Looks at every timer on every turn."""

    def __init__(self, tick_s):
        self.tick_s, self.turned, self.timers = tick_s, None, []

    def set(self, key, at_s):
        self.cancel(key)
        self.timers.append((key, at_s))

    def cancel(self, key):
        self.timers = [timer for timer in self.timers if timer[0] != key]

    def advance(self, now_s):
        now = floor(now_s / self.tick_s)
        if self.turned is not None and now < self.turned:
            return []
        self.turned = now
        due = [timer for timer in self.timers if ceil(timer[1] / self.tick_s) <= now]
        self.timers = [timer for timer in self.timers if timer not in due]
        return [key for key, _ in sorted(due, key=lambda timer: timer[1])]  # stable: in the order set


keys = st.integers(0, 8)
times = st.one_of(
    st.integers(-5, 60).map(float),
    st.floats(-10, 100),
    st.floats(1e6, 1e7),  # far: many more ticks than there are slots
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, times),
        st.tuples(st.just("set"), keys, times),
        st.tuples(st.just("cancel"), keys),
        st.tuples(st.just("advance"), times),
        st.tuples(st.just("pass"), st.floats(0, 7)),
    ),
    max_size=60,
)


@given(steps, st.sampled_from((1.0, 0.1, 2.5)))
def test_it_tells_the_same_keys_in_the_same_order_as_looking_at_every_timer(steps, tick_s):
    wheel, dumb, now_s = TimerWheel(tick_s), DumbWheel(tick_s), 0.0
    for name, *args in steps:
        if name == "pass":  # small turns, as they mostly are
            name, args = "advance", [now_s + args[0]]
        if name == "advance":
            now_s = args[0]
        assert getattr(wheel, name)(*args) == getattr(dumb, name)(*args)
        assert len(wheel) == len(dumb.timers)
        assert all((key in wheel) == any(key == timer[0] for timer in dumb.timers) for key in range(9))


@given(st.lists(st.integers(0, 400), min_size=1), st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_a_timer_is_never_early_and_less_than_a_tick_and_a_turn_late(deadlines, gaps):
    wheel = TimerWheel(1.0)
    for number, quarters in enumerate(deadlines):
        wheel.set(number, quarters / 4)
    before_s = now_s = 0.0
    wheel.advance(now_s)
    for gap in gaps:
        before_s, now_s = now_s, now_s + gap / 4
        for number in wheel.advance(now_s):
            assert deadlines[number] / 4 <= now_s
            assert deadlines[number] / 4 > before_s - 1.0
        assert all(number not in wheel for number, at in enumerate(deadlines) if at / 4 <= now_s - 1.0)


def test_due_keys_come_by_deadline_and_then_in_the_order_they_were_set():
    wheel = TimerWheel(1.0)
    for key, at_s in (("c", 3.0), ("b2", 2.5), ("a", 1.0), ("b1", 2.5), ("later", 9.0)):
        wheel.set(key, at_s)
    wheel.set("b2", 2.5)  # set again: now after b1
    assert wheel.advance(5.0) == ["a", "b1", "b2", "c"]
    assert wheel.advance(5.0) == []
    assert wheel.advance(9.0) == ["later"]


def test_setting_a_key_again_moves_its_timer_in_both_directions():
    wheel = TimerWheel(1.0)
    wheel.set("a", 5.0)
    wheel.set("a", 8.0)
    assert wheel.advance(7.0) == []
    wheel.set("b", 100.0)
    wheel.set("b", 8.0)
    assert wheel.advance(8.0) == ["a", "b"]
    assert wheel.advance(200.0) == []


def test_a_cancelled_timer_is_not_told_and_cancelling_nothing_is_no_matter():
    wheel = TimerWheel(1.0)
    wheel.set("a", 1.0)
    wheel.cancel("a")
    wheel.cancel("a")
    wheel.cancel("never set")
    assert wheel.advance(2.0) == []
    assert len(wheel) == 0


def test_a_deadline_that_has_passed_is_told_at_the_next_turn_also_within_the_same_tick():
    wheel = TimerWheel(1.0)
    wheel.advance(50.2)
    wheel.set("long ago", 10.0)
    wheel.set("just now", 50.0)
    assert wheel.advance(50.3) == ["long ago", "just now"]
    assert wheel.advance(50.4) == []


def test_a_key_that_was_told_may_be_set_again_at_once():
    wheel = TimerWheel(1.0)
    wheel.set("again", 1.0)
    told = []
    for now_s in range(1, 6):
        for key in wheel.advance(float(now_s)):
            told.append(now_s)
            wheel.set(key, now_s + 2.0)
    assert told == [1, 3, 5]


def test_after_hours_without_a_turn_all_that_is_due_is_told_in_order():
    wheel = TimerWheel(1.0)
    wheel.advance(1000.0)
    for number in range(100):
        wheel.set(number, 1000.0 + number * 97.0)
    assert wheel.advance(1000.0 + 3600.0 * 24) == list(range(100))


def test_a_turn_backwards_does_nothing():
    wheel = TimerWheel(1.0)
    wheel.advance(10.0)
    wheel.set("a", 12.0)
    assert wheel.advance(3.0) == []
    assert wheel.advance(11.0) == []
    assert wheel.advance(12.0) == ["a"]


def test_a_leap_of_ages_takes_no_time():
    wheel = TimerWheel(0.001)
    wheel.advance(0.0)
    wheel.set("a", 1.0)
    wheel.set("b", 1e15)
    assert wheel.advance(1e12) == ["a"]  # 10^15 ticks: one by one they would not end


def test_a_timer_set_again_very_often_leaves_nothing_behind():
    wheel = TimerWheel(1.0)
    for n in range(10_000):
        wheel.set("a", float(n * 7 % 5000))
    assert sum(map(len, wheel._slots.values())) == len(wheel._slots) == len(wheel) == 1
    wheel.cancel("a")
    assert not wheel._slots


def idle_turn_s(timers):
    """The best of several: seconds for 1,000 turns of one tick on which nothing is due."""
    best = float("inf")
    for _ in range(5):
        wheel = TimerWheel(1.0)
        wheel.advance(0.0)
        for number in range(timers):
            wheel.set(number, 5000.0 + number % 2000)
        began = perf_counter()
        for second in range(1, 1001):
            wheel.advance(float(second))
        best = min(best, perf_counter() - began)
    return best


def test_an_idle_turn_costs_the_same_with_a_hundred_timers_as_with_fifty_thousand():
    assert idle_turn_s(50_000) < 10 * idle_turn_s(100)  # looking at each would be 500 times as much


def test_a_wheel_needs_a_tick_that_takes_time():
    for tick_s in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="tick"):
            TimerWheel(tick_s)
