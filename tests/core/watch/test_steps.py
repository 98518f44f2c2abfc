"""The course in steps: few enough points, no dip and no work lost between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.watch.steps import POINT_S, in_steps, step_of
from evermirror.model.repo import Priority
from evermirror.model.whole import ClassFreshness, CoursePoint, Work


def point(at, fresh=4, lag_s=1.0, *, failing=0, work=None, critical=4):
    classes = {
        Priority.CRITICAL: ClassFreshness(4, critical, 0.5),
        Priority.LOW: ClassFreshness(4, fresh, lag_s),
    }
    return CoursePoint.of(at, classes, failing, work)


@given(hours=st.integers(1, 168), begin=st.floats(0, 1e6))
def test_a_time_of_any_length_has_fewer_than_300_points(hours, begin):
    span_s = hours * 3600.0
    points = [point(begin + n * POINT_S / 2) for n in range(int(span_s / POINT_S * 2))]  # twice as many
    told = in_steps(points, step_of(span_s))
    assert len(told) < 299  # one more is now
    assert [p.at for p in told] == sorted(p.at for p in told)
    assert step_of(24 * 3600.0) == POINT_S


def test_a_step_tells_the_worst_of_its_time_and_all_that_was_done():
    some = [
        point(1200.0, 4, 3.0, work=None, critical=2),
        point(1500.0, 1, 90.0, failing=7, work=Work(5, 1, 10)),
        point(1799.0, 3, 2.0, work=Work(6, 0, 20)),
        point(1800.0),
    ]
    first, second = in_steps(some, 600.0)
    assert second is some[3]
    assert (first.at, first.failing, first.work) == (1799.0, 7, Work(11, 1, 30))
    assert (first.fresh_share, first.worst_lag_s) == (pytest.approx(5 / 8), 90.0)
    assert first.classes[Priority.CRITICAL] == ClassFreshness(4, 2, 0.5)
    assert first.classes[Priority.LOW] == ClassFreshness(4, 1, 90.0)
    assert first.classes[Priority.HIGH] == ClassFreshness()


def test_what_nobody_counted_stays_unknown():
    empty = CoursePoint.of(1.0, {}, 0, None)
    [told] = in_steps([empty, CoursePoint.of(2.0, {}, 0, None)], 600.0)
    assert (told.work, told.fresh_share, told.worst_lag_s) == (None, None, None)
    assert in_steps([], 300.0) == ()
