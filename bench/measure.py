"""What one measurement is: CPU and wall time of this process and its children, repeated and compared.

CPU counts more than wall time, as machines are noisy. Servers run in processes of their own, which are not
waited for while something is measured: so they are in nobody's figures.
"""

from __future__ import annotations

import gc
import math
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that something took: CPU is user and system time of this process and of children that ended."""

    cpu_s: float
    wall_s: float

    def per(self, n: int) -> Cost:
        return Cost(self.cpu_s / n, self.wall_s / n)


def _cpu_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in both)


class Stopwatch:
    """``with Stopwatch() as watch: …`` and then ``watch.cost``."""

    cost: Cost

    def __enter__(self) -> Stopwatch:
        gc.collect()
        self._cpu, self._wall = _cpu_s(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cost = Cost(_cpu_s() - self._cpu, time.perf_counter() - self._wall)


def alternate(
    rounds: int, ours: Callable[[], Cost], theirs: Callable[[], Cost]
) -> tuple[list[Cost], list[Cost]]:
    """Both sides in turn, so that a slow minute of the machine falls on both."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


class Sense(Enum):
    """How ours is compared, and which way is better."""

    TIMES_LESS = "×less"  # theirs ÷ ours, at least the goal
    TIMES_AS_MUCH = "×"  # ours ÷ theirs, at most the goal
    AT_MOST = "≤"  # ours alone
    AT_LEAST = "≥"  # ours alone


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. Samples are of equal meaning; the median is what is compared."""

    what: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...] = ()
    sense: Sense = Sense.TIMES_LESS
    goal: float | None = None
    against: str = ""  # whose samples ``theirs`` are, where a benchmark has several alternatives
    promise: str = ""  # keys of the promises in promises.py that this line is about, separated by spaces
    limit: str = ""  # what stands in the way, where the goal is missed

    @property
    def ours_median(self) -> float:
        return statistics.median(self.ours)

    @property
    def theirs_median(self) -> float | None:
        return statistics.median(self.theirs) if self.theirs else None

    @property
    def figure(self) -> float:
        """What the goal is about: a ratio, or ours alone."""
        theirs = self.theirs_median
        match self.sense:
            case Sense.TIMES_LESS if theirs is not None:
                return _ratio(theirs, self.ours_median)
            case Sense.TIMES_AS_MUCH if theirs is not None:
                return _ratio(self.ours_median, theirs)
            case _:
                return self.ours_median

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.meets(self.goal)

    def meets(self, goal: float) -> bool:
        """Whether the figure keeps to a goal, told in this line's sense."""
        if self.sense in (Sense.TIMES_LESS, Sense.AT_LEAST):
            return self.figure >= goal
        return self.figure <= goal

    @property
    def promises(self) -> tuple[str, ...]:
        return tuple(self.promise.split())


def _ratio(above: float, below: float) -> float:
    """Two counts of nothing are alike; anything is infinitely more than nothing."""
    if below == 0:
        return 1.0 if above == 0 else math.inf
    return above / below


@dataclass(frozen=True, slots=True)
class Series:
    """One curve of a chart: its points in ascending x."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """A chart: how something grows, or how rules compare. ``says`` is the sentence below it."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    says: str = ""
    promise: str = ""  # as a line's: what was promised to be shown

    @property
    def promises(self) -> tuple[str, ...]:
        return tuple(self.promise.split())


Found = Line | Curve


def spread(samples: tuple[float, ...]) -> float:
    """Half the distance from the smallest to the largest sample, as a share of the median."""
    middle = statistics.median(samples)
    return (max(samples) - min(samples)) / 2 / abs(middle) if middle else 0.0


class Shared:
    """What several benchmarks of one run need and what takes long to make: made by the first that asks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Path] = {}

    def made(self, name: str, make: Callable[[Path], None]) -> Path:
        """A folder that ``make`` filled once; who asks reads it, and works on a copy."""
        if name not in self._made:
            folder = self._folder / name
            folder.mkdir(parents=True)
            make(folder)
            self._made[name] = folder
        return self._made[name]


@dataclass(frozen=True, slots=True)
class Context:
    """What a benchmark is given: where it may write, and how much it should do."""

    folder: Path
    shared: Shared
    quick: bool = False
    rounds: int | None = None
    seconds: float | None = None  # of what goes on for a time

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def repeats(self, full: int) -> int:
        return self.rounds or (2 if self.quick else full)


@dataclass(frozen=True, slots=True)
class Bench:
    """One benchmark: what it measures, against what, and how."""

    name: str
    measures: str
    alternative: str
    run: Callable[[Context], Sequence[Found]]
    order: int = field(default=50)  # quick ones first
    takes_s: float = field(default=30.0)  # about, on two cores: all together stay below 22 minutes
