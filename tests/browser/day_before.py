"""The day before the house was opened, as its own store notes it: quiet, with one hour of bad weather."""

from __future__ import annotations

import math

from evermirror.edge.store.store import Store
from evermirror.model.repo import Priority
from evermirror.model.whole import ClassFreshness, CoursePoint, Work

POINTS = 144
GAP_S = 600.0
LIVE = {Priority.CRITICAL: 3, Priority.HIGH: 6, Priority.NORMAL: 20, Priority.LOW: 5}
WEATHER = range(58, 65)  # of the points


async def note_day_before(store: Store, now: float) -> None:
    for number in range(POINTS):
        await store.note_course(_point(number, now - (POINTS - number) * GAP_S), now - 30 * 86_400)


def _point(number: int, at: float) -> CoursePoint:
    wave = 1 + math.sin(number / POINTS * math.tau - 1.5)  # from 0 in the night to 2 at noon
    bad = number in WEATHER
    classes = {
        priority: ClassFreshness(
            live,
            live - (live // 4 + 1 if bad else number % 17 == 0),
            600.0 * (1 + list(LIVE).index(priority)) * (6 if bad else 1 + number % 5 / 10),
        )
        for priority, live in LIVE.items()
    }
    work = Work(round(180 + 240 * wave), round(4 + 20 * wave + number % 3), round(4e5 + 9e6 * wave))
    return CoursePoint.of(at, classes, 12 if bad else 5, work)
