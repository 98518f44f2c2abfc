"""One percentage over git's phases: where it is by tables, and that it never goes back by properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.watch.course import MOST, Course, later, whole_of

CLONE = [
    ("counting", None, None),  # git enumerates, and knows no total
    ("counting", 50.0, 1.0),
    ("counting", 100.0, 2.0),
    ("compressing", 100.0, 5.0),
    ("receiving", 0.0, 5.0),
    ("receiving", 40.0, 31.0),
    ("receiving", 100.0, 70.0),
    ("resolving", 50.0, 80.0),
    ("checking", 50.0, 95.0),
    ("checking", 100.0, MOST),
]


def test_a_clone_goes_through_its_phases():
    course = Course()
    for phase, percent, shown in CLONE:
        course.fetched(phase, percent)
        assert course.percent == (pytest.approx(shown) if shown is not None else None), phase


def test_where_something_is_pushed_the_fetch_is_the_first_half():
    course = Course(targets=2)
    for phase, percent, shown in CLONE[1:-1]:
        course.fetched(phase, percent)
        assert course.percent == pytest.approx(shown / 2)
    course.pushed("a", 50.0)
    assert course.percent == pytest.approx(62.5)
    course.pushed("b", 100.0)
    assert course.percent == pytest.approx(87.5)
    course.pushed("a", 100.0)
    assert course.percent == MOST


def test_a_push_alone_has_the_whole_way():
    course = Course(fetches=False, targets=1)
    course.pushed("a", None)
    assert course.percent is None
    course.pushed("a", 30.0)
    assert course.percent == pytest.approx(30.0)


@pytest.mark.parametrize("phase", ["", "waiting", "pushing to x", "Receiving"])
def test_a_phase_that_nobody_knows_says_nothing(phase):
    course = Course()
    course.fetched(phase, 50.0)
    assert course.percent is None
    course.fetched("receiving", 50.0)
    course.fetched(phase, 99.0)
    assert course.percent == pytest.approx(37.5)


def test_what_was_told_stays_until_more_is_known():
    course = Course()
    course.fetched("resolving", 10.0)
    course.fetched("receiving", None)
    course.fetched("receiving", 90.0)  # a second fetch
    assert course.percent == pytest.approx(72.0)


@pytest.mark.parametrize(
    ("before", "now", "shown"), [(None, None, None), (None, 3.0, 3.0), (3.0, None, 3.0), (5.0, 3.0, 5.0)]
)
def test_the_later_of_two(before, now, shown):
    assert later(before, now) == shown


phases = st.sampled_from(["counting", "compressing", "receiving", "resolving", "checking", "odd"])
percents = st.none() | st.floats(-50, 200)
steps = st.lists(st.tuples(phases | st.integers(1, 4), percents), max_size=40)


@given(st.booleans(), st.integers(0, 3), steps)
def test_whatever_git_says_it_never_goes_back_and_is_never_done(fetches, targets, said):
    course, before = Course(fetches=fetches, targets=targets), None
    for what, percent in said:
        if isinstance(what, int):
            course.pushed(what, percent)
        else:
            course.fetched(what, percent)
        now = course.percent
        assert now is None or 0.0 <= now <= MOST
        assert before is None or (now is not None and now >= before)
        before = now


@given(steps)
def test_it_is_unknown_exactly_as_long_as_no_total_was_told(said):
    course = Course()
    for what, percent in said:
        if not isinstance(what, int):
            course.fetched(what, percent)
    told = any(p is not None for w, p in said if not isinstance(w, int) and w != "odd")
    assert (course.percent is not None) is told


@pytest.mark.parametrize(("phase", "percent", "whole"), CLONE[1:])
def test_a_phase_alone_says_how_far_the_whole_is(phase, percent, whole):
    assert whole_of(phase, percent) == pytest.approx(whole)
    assert whole_of("unheard of", percent) is None
