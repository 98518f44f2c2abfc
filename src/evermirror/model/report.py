"""A report on days of pull mirroring: what was counted, and what people are told of it.

Times are UTC seconds. A *day* is 24 hours, and the first begins at midnight in the zone of the settings; the
last one is today, so far. A *step* is a stretch of the course: all notes of it are one point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evermirror.model.failure import FailureKind
from evermirror.model.figures import ClassProgress, KindCount, Period
from evermirror.model.pull import Load
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskStatus

DAY_S = 86_400.0
DAYS_MAX = 366


@dataclass(frozen=True, slots=True)
class Span:
    """What a report is about: so many whole days and today, in ``step_s`` long steps. ``begin`` is
    midnight."""

    begin: float
    end: float
    days: int  # with today
    step_s: float

    @property
    def steps(self) -> int:
        return max(1, -int(-(self.end - self.begin) // self.step_s))


# What is counted


@dataclass(frozen=True, slots=True)
class EndedTasks:
    """Tasks of a class that ended on a day in the same way."""

    day: int
    priority: Priority
    status: TaskStatus
    tasks: int
    changes: int


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Runs of looks without a change, each one row, that began and ended on the same days (``first_day`` -1:
    they began before the report). The looks of each are evenly spread over its time."""

    first_day: int
    last_day: int
    priority: Priority
    status: TaskStatus
    looks: int
    looks_a_second: float  # the sum over the runs
    looks_by_beginning: float  # the sum of looks a second × the seconds from the report's begin to the run's
    changes: int = 0

    def looks_until(self, day: int) -> float:
        """How many fell before the end of a day that all of them reached beyond."""
        return self.looks_a_second * (day + 1) * DAY_S - self.looks_by_beginning


@dataclass(frozen=True, slots=True)
class StepPressure:
    """What sources bore in a step, of its notes."""

    step: int
    notes: int
    limit: float  # these three: on the average
    running: float
    queued: float
    limit_min: int
    limit_max: int
    running_max: int
    above_limit: int  # notes with more running than the limit: what people trigger starts outside of it
    at_limit: int  # notes with as many or more
    load_known: int  # notes
    load_high: int
    load_low: int
    looks: int
    source_s: float
    received_bytes: int


@dataclass(frozen=True, slots=True)
class StepLag:
    """How far a class was in a step, of its notes."""

    step: int
    priority: Priority
    lag_average_s: float | None
    lag_worst_s: float | None
    equal: int
    compared: int
    measured: int = 1  # the average is over so many projects, each counted once for each note


@dataclass(frozen=True, slots=True)
class Failing:
    """A project with errors, and the kind that most of them were of. ``failures``: in a row, now."""

    key: RepoKey
    name: str
    errors: int
    kind: FailureKind
    failures: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """All that a report is made from."""

    tasks: tuple[EndedTasks, ...] = ()
    runs: tuple[EndedRuns, ...] = ()
    errors: Mapping[FailureKind, KindCount] = field(default_factory=dict)
    failing: tuple[Failing, ...] = ()
    pressure: tuple[StepPressure, ...] = ()
    lag: tuple[StepLag, ...] = ()


# What people are told


@dataclass(frozen=True, slots=True)
class ClassReport:
    """One priority, or all: as it is now, what ended in the time, and its lag over the notes of the time."""

    now: ClassProgress
    period: Period
    lag_average_s: float | None
    lag_worst_s: float | None
    equal_share: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """One step of the course. ``pressure`` is None where nothing was noted."""

    begin: float
    end: float
    pressure: StepPressure | None
    lag_average_s: Mapping[Priority, float]
    equal_share: float | None
    looks_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PressureReport:
    """What sources bore in all of the time; shares are of the notes, and None where there is none."""

    notes: int
    looks: int
    looks_per_hour: float
    looks_per_hour_max: float
    source_s: float
    source_average: float  # so many connections were open at sources, on the average
    received_bytes: int
    limit_min: int | None
    limit_max: int | None
    running_average: float | None
    running_max: int | None
    above_limit_share: float | None
    at_limit_share: float | None
    load_known_share: float | None
    load_high_share: float | None  # of the notes with a known load
    load: Load | None  # now


@dataclass(frozen=True, slots=True)
class Report:
    """Days of pull mirroring. ``by_day`` has one for each day, the last one is today, so far."""

    span: Span
    time_zone: str
    overall: ClassReport
    by_priority: Mapping[Priority, ClassReport]
    by_day: tuple[Period, ...]
    dates: tuple[str, ...]  # of these days, ISO
    errors: Mapping[FailureKind, KindCount]
    failing: tuple[Failing, ...]
    pressure: PressureReport
    course: tuple[Point, ...]
