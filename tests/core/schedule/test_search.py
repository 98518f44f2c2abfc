"""When a commit that is not there yet is looked for again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.search import ANSWER_S, GAP_MAX_S, Search


def looks(within_s: float, answer_s: float = 0.0) -> list[float]:
    """When each look is, of a commit that never comes; a look is answered after so long."""
    search, at, times = Search(0.0, within_s), 0.0, []
    while at is not None:
        times.append(round(at, 3))
        at = search.missed(at + answer_s)
        assert len(times) < 10_000
    return times


def test_the_pauses_double_up_to_a_bound_and_the_last_look_is_just_before_the_end():
    assert looks(60) == [0, 1, 3, 7, 15, 31, 47, 59]
    assert looks(5) == [0, 1, 3, 4.5]


def test_a_short_time_has_a_second_look():
    assert looks(0.5) == [0, 0.45]


def test_one_that_joins_has_it_looked_for_as_if_anew():
    search = Search(0.0, 10.0)
    assert (search.missed(0.0), search.missed(1.0), search.missed(3.0)) == (1.0, 3.0, 7.0)
    search.joined(20.0)
    assert search.missed(5.0) == 6.0
    search.joined(8.0)
    assert search.until == 20.0


@given(st.floats(0.0, 3600.0), st.floats(0.0, 5.0))
def test_looks_are_apart_end_in_time_and_leave_room_for_the_answer(within_s, answer_s):
    times = looks(within_s, answer_s)
    assert len(times) <= 10 + within_s / GAP_MAX_S
    assert all(b >= a for a, b in pairwise(times))
    assert times[-1] <= max(0.0, within_s)
    if len(times) > 1:
        assert times[-1] <= within_s - min(ANSWER_S, within_s / 10) + 0.001
    assert times[-1] + answer_s >= within_s - ANSWER_S - 0.001, "it is looked for until the end"
