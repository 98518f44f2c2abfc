"""How many may run and of which classes: the strategy's table, the adaptive limit, and both together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.pull.adaptive import Adaptive
from evermirror.core.pull.pace import Pace
from evermirror.core.pull.settings import PullSettings
from evermirror.core.pull.strategy import ALL, URGENT, by_window, text_of, under_load
from evermirror.core.pull.window import Hours
from evermirror.model.pull import Load, LoadLevel, Strategy
from tests.core.pull.small import CRITICAL, HIGH, HOUR, MINUTE, NORMAL, NOW, SETTINGS, SHANGHAI

H, N, L = LoadLevel.HIGH, LoadLevel.NORMAL, LoadLevel.LOW
SEED = Strategy(peak_avoidance=True)
NIGHT = Strategy(peak_avoidance=True, night_start=22, night_end=6, night_max_concurrent=10)


@pytest.mark.parametrize(
    ("strategy", "in_peak", "at_night", "limit", "classes"),
    [
        (Strategy(), False, False, 5, ALL),
        (Strategy(), True, False, 5, ALL),  # nobody avoids it
        (SEED, True, False, 3, URGENT),
        (SEED, False, False, 8, ALL),
        (SEED, False, True, 8, ALL),  # no figure for nights
        (NIGHT, False, True, 10, ALL),
        (NIGHT, False, False, 8, ALL),
        (NIGHT, True, True, 3, URGENT),
    ],
)
def test_the_table_of_the_strategy(strategy, in_peak, at_night, limit, classes):
    allowed = by_window(strategy, Hours(in_peak, at_night, NOW, NOW + HOUR))
    assert (allowed.limit, allowed.classes) == (limit, classes)


def test_low_is_suspended_while_the_load_is_high():
    allowed = by_window(SEED, Hours(False, False, NOW, NOW))
    assert under_load(allowed, 7, H, "cpu 83 %").classes == (CRITICAL, HIGH, NORMAL)
    assert under_load(allowed, 7, N, "").classes == ALL


def test_what_is_logged_says_how_many_which_and_why():
    allowed = by_window(SEED, Hours(True, False, NOW, NOW))
    assert text_of(allowed) == "up to 3 at once, critical, high: peak hours"
    text = text_of(under_load(allowed, 2, H, "cpu 83 %"))
    assert text == "up to 2 at once, critical, high: peak hours, load high (cpu 83 %)"


# The adaptive limit


def steps(levels, figure=8, halve=False):
    adaptive, limits = Adaptive(60.0), []
    for n, level in enumerate(levels):
        adaptive.step(level, figure, NOW + 60 * n, halve=halve)
        limits.append(adaptive.limit(figure))
    return limits


def test_high_is_one_fewer_down_to_two():
    assert steps([H] * 8) == [7, 6, 5, 4, 3, 2, 2, 2]


def test_low_is_one_more_up_to_the_windows_figure():
    assert steps([H, H, H, L, N, L, L, L, L]) == [7, 6, 5, 6, 6, 7, 8, 8, 8]


def test_ten_is_the_most_whatever_the_window_allows():
    assert steps([N, H, L, L], figure=50) == [10, 9, 10, 10]


@pytest.mark.parametrize("figure", [0, 1, 2])
def test_a_window_that_allows_less_than_two_is_obeyed(figure):
    assert steps([H, H, L, L], figure=figure) == [figure] * 4


def test_where_our_own_polls_tell_it_the_limit_is_halved_and_grows_by_one():
    assert steps([H, H, H, L, L], figure=10, halve=True) == [5, 2, 2, 3, 4]


def test_there_is_one_step_in_a_period():
    adaptive = Adaptive(60.0)
    assert adaptive.step(H, 8, NOW) == 7
    assert adaptive.step(H, 8, NOW + 59) is None
    assert adaptive.step(H, 8, NOW + 60) == 6


def test_a_source_that_was_overloaded_stays_spared_when_the_window_allows_more():
    adaptive = Adaptive(60.0)
    adaptive.step(H, 3, NOW)
    assert [adaptive.limit(figure) for figure in (1, 3, 8)] == [1, 2, 2]
    assert [adaptive.step(L, 8, NOW + 60 * n) for n in range(1, 4)] == [3, 4, 5]
    assert adaptive.limit(3) == 3


def test_a_window_that_allows_more_is_followed_at_once_where_nothing_was_too_much():
    adaptive = Adaptive(60.0)
    adaptive.step(L, 3, NOW)
    adaptive.step(N, 3, NOW + 60)
    assert (adaptive.limit(3), adaptive.limit(8)) == (3, 8)


@given(st.lists(st.tuples(st.sampled_from([H, N, L]), st.integers(0, 60), st.booleans()), max_size=40))
def test_the_limit_stays_within_its_bounds_and_moves_as_the_load_says(history):
    adaptive = Adaptive(60.0)
    for n, (level, figure, halve) in enumerate(history):
        before = adaptive.limit(figure)
        adaptive.step(level, figure, NOW + 60 * n, halve=halve)
        after = adaptive.limit(figure)
        assert min(2, figure) <= after <= min(10, figure)
        assert {H: after <= before, N: after == before, L: before <= after <= before + 1}[level]


# All together


def pace(strategy=SEED, settings=SETTINGS):
    return Pace(strategy, SHANGHAI, settings)


def test_every_change_of_the_limit_is_a_line_of_the_log_and_nothing_else_is():
    p = pace(Strategy(peak_avoidance=True, adaptive=True))
    evening, morning = NOW, NOW + 13 * HOUR
    assert p.step(evening) is None
    assert p.step(evening + 1) is None
    p.outside.tell(Load(H, "cpu 83 %"), evening + 2)
    line = (
        "up to 7 at once, critical, high, normal: outside peak hours, load high (cpu 83 %) (before: up to 8)"
    )
    assert p.step(evening + 2) == line
    assert p.step(evening + 3) is None
    assert p.step(morning) == "up to 3 at once, critical, high: peak hours (before: up to 7)"


def test_intervals_stretch_while_the_load_is_high_and_adaptive_is_on():
    p = pace(Strategy(adaptive=True), PullSettings(stretch=3.0))
    assert p.stretched(HOUR, NOW) == HOUR
    p.outside.tell(Load(H, ""), NOW)
    assert p.stretched(HOUR, NOW) == 3 * HOUR
    p.set_strategy(Strategy(adaptive=False))
    assert p.stretched(HOUR, NOW) == HOUR
    assert p.allowance(NOW).classes == ALL


def test_adaptive_that_was_switched_off_begins_anew():
    p = pace(Strategy(adaptive=True))
    p.outside.tell(Load(H, ""), NOW)
    p.step(NOW)
    assert p.allowance(NOW).limit == 4
    p.set_strategy(Strategy(adaptive=False))
    p.set_strategy(Strategy(adaptive=True))
    assert p.allowance(NOW).limit == 5


def test_it_is_asked_again_when_a_window_changes_or_a_step_may_follow():
    p = pace()
    assert p.next_at(NOW) == NOW + 13 * HOUR  # 9:00
    p.set_strategy(Strategy())
    assert p.next_at(NOW) is None
    p.set_strategy(Strategy(adaptive=True))
    assert p.next_at(NOW) is None
    p.outside.tell(Load(H, ""), NOW)
    p.step(NOW)
    assert p.next_at(NOW + 1) == NOW + MINUTE


def test_a_high_load_that_nobody_tells_of_any_more_ends():
    p = pace(Strategy(adaptive=True))
    p.outside.tell(Load(H, ""), NOW)
    for minute in range(20):
        p.step(NOW + 60 * minute)
        assert p.next_at(NOW + 60 * minute) is not None or p.allowance(NOW + 60 * minute).classes == ALL
    assert p.allowance(NOW + 20 * MINUTE).classes == ALL
