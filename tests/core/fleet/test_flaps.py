from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.flaps import (
    FACTOR_MIN,
    HALF_LIFE_S,
    HISTORY_MAX,
    SCORE_MAX,
    faded,
    flapped,
    remember,
    weight_factor,
)

HOUR_S = 3600.0


def after_falls(every_s, times=200):
    score, at_s = 0.0, 0.0
    for n in range(times):
        score, at_s = flapped(score, at_s, n * every_s), n * every_s
    return score


@pytest.mark.parametrize(
    ("every_h", "score", "factor"),
    [(24, 1.07, 0.94), (8, 1.66, 0.60), (4, 2.70, 0.37), (2, 4.85, 0.21), (1, 9.17, 0.11)],
)
def test_the_table_of_the_module_is_true(every_h, score, factor):
    reached = after_falls(every_h * HOUR_S)
    assert reached == pytest.approx(score, abs=0.005)
    assert weight_factor(reached) == pytest.approx(factor, abs=0.005)


def test_a_steady_worker_and_one_rebooted_once_have_their_whole_weight():
    assert weight_factor(0.0) == 1.0
    assert weight_factor(flapped(0.0, 0.0, 1e9)) == 1.0


def test_the_second_fall_within_an_hour_costs_nearly_half_of_the_weight():
    score = flapped(flapped(0.0, 0.0, 0.0), 0.0, HOUR_S)
    assert 0.5 < weight_factor(score) < 0.55


def test_a_score_is_half_after_a_half_life():
    assert faded(4.0, 100.0, 100.0) == 4.0
    assert faded(4.0, 100.0, 100.0 + HALF_LIFE_S) == 2.0
    assert faded(4.0, 100.0, 100.0 + 2 * HALF_LIFE_S) == 1.0
    assert faded(4.0, 0.0, inf) == 0.0


def test_a_clock_set_back_neither_fades_nor_grows_the_score():
    assert faded(4.0, 1e9, 0.0) == 4.0
    assert flapped(4.0, 1e9, 0.0) == 5.0


def test_the_worst_keeps_a_tenth_and_is_whole_again_after_a_steady_day():
    score = after_falls(1.0, times=100_000)
    assert score == pytest.approx(SCORE_MAX)
    assert weight_factor(score) == pytest.approx(FACTOR_MIN)
    assert weight_factor(1e300) == FACTOR_MIN
    assert weight_factor(faded(score, 0.0, 19 * HOUR_S)) < 1.0
    assert weight_factor(faded(score, 0.0, 20 * HOUR_S)) == 1.0


falls = st.lists(st.floats(0.0, 5e5), min_size=1, max_size=8).map(sorted)  # too few to reach SCORE_MAX


@given(falls, st.floats(0.0, 1e6))
def test_the_score_is_the_sum_of_what_is_left_of_every_single_fall(falls, later_s):
    score, at_s = 0.0, 0.0
    for fall_s in falls:
        score, at_s = flapped(score, at_s, fall_s), fall_s
    now_s = at_s + later_s
    left = sum(0.5 ** ((now_s - fall_s) / HALF_LIFE_S) for fall_s in falls)
    assert faded(score, at_s, now_s) == pytest.approx(left)


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0))
def test_more_falls_never_mean_more_weight(one, other):
    low, high = sorted((one, other))
    assert FACTOR_MIN <= weight_factor(high) <= weight_factor(low) <= 1.0


@given(st.lists(st.tuples(st.floats(0, 1e9), st.sampled_from(("up", "down"))), max_size=3 * HISTORY_MAX))
def test_the_history_is_the_newest_lines_in_order(lines):
    history = ()
    for at_s, word in lines:
        history = remember(history, at_s, word)
    assert list(history) == lines[-HISTORY_MAX:]


def test_a_history_longer_than_it_may_be_is_cut_at_the_next_line():
    history = remember(((0.0, "up"),) * 500, 1.0, "down")
    assert len(history) == HISTORY_MAX
    assert history[-1] == (1.0, "down")
