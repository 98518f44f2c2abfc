"""A report as the API tells it, read: what is missing, or no number, is none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evermirror.faces.cli.client import Fields
from evermirror.faces.cli.output import as_seconds
from evermirror.faces.cli.pull.common import PRIORITIES, count_of, dicts, number_of
from evermirror.model.printable import one_line

NAME_MAX_CHARS = 200
POINTS_MAX = 1_000  # of a chart
DAYS_MAX = 400
NUMBER_MAX = 1e18  # a greater one is none: nothing that is counted or measured has so much


@dataclass(frozen=True, slots=True)
class Tasks:
    """What ended in a time."""

    tasks: int
    success: int
    failed: int
    skipped: int
    changes: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class Day:
    date: str
    tasks: Tasks


@dataclass(frozen=True, slots=True)
class Class:
    """``name`` is a priority, or "all"."""

    name: str
    tasks: Tasks
    projects: int
    synced: int
    pending: int
    failing: int
    disabled: int
    lag_average_s: float | None
    lag_worst_s: float | None
    equal: float | None


@dataclass(frozen=True, slots=True)
class ErrorKind:
    name: str
    count: int
    projects: int


@dataclass(frozen=True, slots=True)
class FailingProject:
    name: str
    errors: int
    kind: str
    in_a_row: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the sources bore."""

    notes: int
    looks: int
    looks_per_hour: float
    looks_per_hour_max: float
    source_s: float
    connections: float
    received_bytes: int
    limit_min: float | None
    limit_max: float | None
    running_average: float | None
    running_max: float | None
    above_limit: float | None
    at_limit: float | None
    load_high: float | None
    load_level: str  # empty: not known
    load_reason: str


@dataclass(frozen=True, slots=True)
class Point:
    """One step of the course; None: nothing was noted."""

    limit: float | None
    running: float | None
    looks_per_hour: float | None
    load_high: float | None
    lag_s: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A whole report."""

    begin: float
    end: float
    days: int
    time_zone: str
    overall: Class
    classes: tuple[Class, ...]
    by_day: tuple[Day, ...]
    errors: tuple[ErrorKind, ...]
    failing: tuple[FailingProject, ...]
    pressure: Pressure
    step_s: float
    course: tuple[Point, ...]

    @property
    def clocks_changed(self) -> bool:
        """Within these days, where they were: a day of the report is not one of the calendar then."""
        try:
            zone = ZoneInfo(self.time_zone)
            first, last = (datetime.fromtimestamp(at, zone).utcoffset() for at in (self.begin, self.end))
        except (ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
            return False
        return first != last


def read_report(answer: Fields) -> Sheet:
    by_priority = _fields(answer.get("by_priority"))
    return Sheet(
        begin=_seconds(answer.get("from")),
        end=_seconds(answer.get("to")),
        days=_count(answer.get("days")),
        time_zone=_text(answer.get("time_zone")),
        overall=_class("all", _fields(answer.get("overall"))),
        classes=tuple(_class(name, _fields(by_priority.get(name))) for name in PRIORITIES),
        by_day=tuple(
            Day(_text(day.get("date")), _tasks(day)) for day in dicts(answer.get("by_day"))[:DAYS_MAX]
        ),
        errors=tuple(
            ErrorKind(
                _text(kind.get("type")), _count(kind.get("count")), _count(kind.get("affected_projects"))
            )
            for kind in dicts(answer.get("errors"))
        ),
        failing=tuple(_failing(one) for one in dicts(answer.get("failing"))),
        pressure=_pressure(_fields(answer.get("pressure"))),
        step_s=60.0 * (_number(answer.get("step_minutes")) or 60.0),
        course=tuple(_point(point) for point in dicts(answer.get("course"))[:POINTS_MAX]),
    )


def _fields(value: object) -> Fields:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return one_line(str(value))[:NAME_MAX_CHARS] if value is not None else ""


def _is_sane(value: object) -> bool:
    """NaN and endless ones are not."""
    return isinstance(value, int | float) and -NUMBER_MAX <= value <= NUMBER_MAX


def _number(value: object) -> float | None:
    return number_of(value) if _is_sane(value) else None


def _count(value: object) -> int:
    return count_of(value) if _is_sane(value) else 0


def _seconds(value: object) -> float:
    """0.0 where no time is told."""
    return as_seconds(value) or 0.0 if isinstance(value, str) or _is_sane(value) else 0.0


def _tasks(told: Fields) -> Tasks:
    return Tasks(
        tasks=_count(told.get("tasks")),
        success=_count(told.get("success")),
        failed=_count(told.get("failed")),
        skipped=_count(told.get("skipped")),
        changes=_count(told.get("changes")),
        rate=_number(told.get("success_rate")),
    )


def _class(name: str, told: Fields) -> Class:
    return Class(
        name=name,
        tasks=_tasks(told),
        projects=_count(told.get("projects")),
        synced=_count(told.get("synced")),
        pending=_count(told.get("pending")),
        failing=_count(told.get("failing")),
        disabled=_count(told.get("disabled")),
        lag_average_s=_number(told.get("lag_average_s")),
        lag_worst_s=_number(told.get("lag_worst_s")),
        equal=_number(told.get("equal_share")),
    )


def _failing(told: Fields) -> FailingProject:
    return FailingProject(
        name=_text(told.get("project_key")),
        errors=_count(told.get("errors")),
        kind=_text(told.get("error_type")),
        in_a_row=_count(told.get("consecutive_failures")),
        paused=told.get("paused") is True,
    )


def _pressure(told: Fields) -> Pressure:
    load = _fields(told.get("load"))
    return Pressure(
        notes=_count(told.get("notes")),
        looks=_count(told.get("looks")),
        looks_per_hour=_number(told.get("looks_per_hour")) or 0.0,
        looks_per_hour_max=_number(told.get("looks_per_hour_max")) or 0.0,
        source_s=_number(told.get("source_seconds")) or 0.0,
        connections=_number(told.get("source_connections")) or 0.0,
        received_bytes=_count(told.get("received_bytes")),
        limit_min=_number(told.get("limit_min")),
        limit_max=_number(told.get("limit_max")),
        running_average=_number(told.get("running_average")),
        running_max=_number(told.get("running_max")),
        above_limit=_number(told.get("above_limit_share")),
        at_limit=_number(told.get("at_limit_share")),
        load_high=_number(told.get("load_high_share")),
        load_level=_text(load.get("level")),
        load_reason=_text(load.get("reason")),
    )


def _point(told: Fields) -> Point:
    lag = _fields(told.get("lag_s"))
    return Point(
        limit=_number(told.get("limit")),
        running=_number(told.get("running")),
        looks_per_hour=_number(told.get("looks_per_hour")),
        load_high=_number(told.get("load_high_share")),
        lag_s={name: _number(lag.get(name)) for name in PRIORITIES},
    )
