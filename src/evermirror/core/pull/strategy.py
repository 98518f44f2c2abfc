"""How many pulls may run now, and of which classes.

| peak avoidance | hours        | limit                                        | classes        |
|----------------|--------------|----------------------------------------------|----------------|
| off            | any          | max_concurrent                               | all            |
| on             | peak         | peak_max_concurrent                          | critical, high |
| on             | night        | night_max_concurrent, else off_peak's        | all            |
| on             | others       | off_peak_max_concurrent                      | all            |

Peak goes before night where they overlap. With ``adaptive`` the limit is what adaptive.py makes of that
figure, and while the source's load is high ``low`` is suspended in all of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evermirror.core.pull.window import Hours, hours_of
from evermirror.model.pull import LoadLevel, Strategy
from evermirror.model.repo import Priority

ALL = tuple(sorted(Priority, key=lambda p: p.rank))
URGENT = (Priority.CRITICAL, Priority.HIGH)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may run: so many at once, of these classes, the most urgent first."""

    limit: int
    classes: tuple[Priority, ...]
    why: str

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(p.rank for p in self.classes)


def by_window(strategy: Strategy, hours: Hours) -> Allowance:
    """The table without load."""
    if not strategy.peak_avoidance:
        return Allowance(strategy.max_concurrent, ALL, "at any hour")
    if hours.in_peak:
        return Allowance(strategy.peak_max_concurrent, URGENT, "peak hours")
    if hours.at_night and strategy.night_max_concurrent is not None:
        return Allowance(strategy.night_max_concurrent, ALL, "night")
    return Allowance(strategy.off_peak_max_concurrent, ALL, "outside peak hours")


@dataclass(frozen=True, slots=True)
class ExpectedDelay:
    """From a push at the source until it is pulled, at most; ``worst_s``: where peak hours come between."""

    usual_s: float
    worst_s: float


def expected_delays(
    strategy: Strategy, intervals_s: Mapping[Priority, float]
) -> Mapping[Priority, ExpectedDelay]:
    """By class, as long as there is room, for projects that are pulled every so many seconds. A class that
    does not run in peak hours may have come due as they began: it then waits for all of them."""
    held_s = HOUR_S * hours_of(strategy.peak_start, strategy.peak_end) if strategy.peak_avoidance else 0.0
    return {
        priority: ExpectedDelay(interval_s, interval_s + (0.0 if priority in URGENT else held_s))
        for priority, interval_s in intervals_s.items()
    }


def under_load(allowed: Allowance, limit: int, level: LoadLevel, reason: str) -> Allowance:
    """The same with what adaptive made of its limit."""
    classes, why = allowed.classes, allowed.why
    if level is LoadLevel.HIGH:
        classes = tuple(p for p in classes if p is not Priority.LOW)
    if limit != allowed.limit or classes != allowed.classes:
        why = f"{why}, load {level.value}" + (f" ({reason})" if reason else "")
    return Allowance(limit, classes, why)


def text_of(allowed: Allowance) -> str:
    """For the log."""
    classes = "all classes" if allowed.classes == ALL else ", ".join(p.value for p in allowed.classes)
    return f"up to {allowed.limit} at once, {classes or 'no class'}: {allowed.why}"
