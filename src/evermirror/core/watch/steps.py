"""The course of the whole in steps: as many points as a chart can show, and no dip lost between them.

A step tells the worst of its moments: of each class, and of all. What was done in it is added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import ceil

from evermirror.model.repo import Priority
from evermirror.model.whole import ClassFreshness, CoursePoint, Work

POINT_S = 300.0  # between two points that are noted
STEPS_MAX = 290  # with the one that began before, and the one that is now, fewer than 300


def step_of(span_s: float) -> float:
    """How long a step is, so that a time this long has few enough of them."""
    return POINT_S * max(1, ceil(span_s / (POINT_S * STEPS_MAX)))


def in_steps(points: Iterable[CoursePoint], step_s: float) -> tuple[CoursePoint, ...]:
    """Oldest first, as ``points`` are."""
    grouped = groupby(points, key=lambda point: point.at // step_s)
    return tuple(_one(list(some)) for _, some in grouped)


def _one(points: Sequence[CoursePoint]) -> CoursePoint:
    if len(points) == 1:
        return points[0]
    shares = [point.fresh_share for point in points if point.fresh_share is not None]
    lags = [point.worst_lag_s for point in points if point.worst_lag_s is not None]
    return CoursePoint(
        at=points[-1].at,
        classes={p: _worst([c[p] for point in points if p in (c := point.classes)]) for p in Priority},
        failing=max(point.failing for point in points),
        work=_sum([point.work for point in points if point.work is not None]),
        fresh_share=min(shares, default=None),
        worst_lag_s=max(lags, default=None),
    )


def _worst(moments: Sequence[ClassFreshness]) -> ClassFreshness:
    if not moments:
        return ClassFreshness()
    lags = [moment.worst_lag_s for moment in moments if moment.worst_lag_s is not None]
    worst = min(moments, key=lambda moment: moment.fresh / moment.live if moment.live else 1.0)
    return ClassFreshness(worst.live, worst.fresh, max(lags, default=None))


def _sum(some: Sequence[Work]) -> Work | None:
    return sum(some, Work()) if some else None
