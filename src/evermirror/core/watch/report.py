"""A report made from what the store counted: by day, by class, and in steps of the course.

Runs of looks without a change are one row each, which may reach over many days. The store adds up those that
began and ended on the same days; here they are spread:

    day   -1 │  0  │  1  │  2  │  3       first_day 0, last_day 2
             │  ╭──┼─────┼──╮  │

With r looks a second from f to l, so many fall on the first day: r · (its end − f); on one in between: r · a
day; on the last: the rest. Of many runs the sums of r and of r · f are enough.

What falls on days before the report is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo

from evermirror.core.watch.progress import overall
from evermirror.model.figures import ClassProgress, Period
from evermirror.model.pull import Load
from evermirror.model.repo import Priority
from evermirror.model.report import (
    DAY_S,
    DAYS_MAX,
    ClassReport,
    EndedRuns,
    Point,
    PressureReport,
    Report,
    ReportFacts,
    Span,
    StepLag,
    StepPressure,
)
from evermirror.model.task import TaskStatus

HOUR_S = 3600.0
STEPS_MAX = 200  # of a chart: more are not told apart
STEP_LEAST = 0.25  # of a step: one that has just begun has notes of the time before it
_STEPS_H = (1, 2, 3, 4, 6, 8, 12, 24, 48)

Counts = dict[tuple[int, Priority, TaskStatus], float]


def span_of(now: float, days: int, zone: tzinfo) -> Span:
    """The last so many whole days, and today. Days are 24 hours back from this midnight, also where clocks
    were changed in between."""
    if not 1 <= days <= DAYS_MAX:
        raise ValueError(f"a report is of 1 to {DAYS_MAX} days, not of {days}")
    midnight = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = midnight.timestamp() - days * DAY_S
    hours = (now - begin) / HOUR_S
    step_h = next((h for h in _STEPS_H if hours / h <= STEPS_MAX), _STEPS_H[-1])
    return Span(begin, max(now, begin + days * DAY_S + 1.0), days + 1, step_h * HOUR_S)


def date_of(span: Span, day: int, zone: tzinfo) -> str:
    """ISO, counted back from today."""
    today = datetime.fromtimestamp(span.end, zone).date()
    return (today - timedelta(days=span.days - 1 - day)).isoformat()


def report_of(
    facts: ReportFacts,
    span: Span,
    now: Mapping[Priority, ClassProgress],
    load: Load | None,
    zone: tzinfo,
    time_zone: str,
) -> Report:
    """``now``: how far each class is."""
    counts, changes = _counted(facts, span.days)
    course = tuple(_points(facts, span))

    def period(priorities: Iterable[Priority], days: range, begin: float, end: float) -> Period:
        return _period(counts, changes, tuple(priorities), days, begin, end)

    whole = range(span.days)
    by_priority = {
        p: _class_report(now[p], period([p], whole, span.begin, span.end), _of(facts.lag, p))
        for p in Priority
    }
    return Report(
        span=span,
        time_zone=time_zone,
        overall=_class_report(
            overall(now.values()), period(Priority, whole, span.begin, span.end), facts.lag
        ),
        by_priority=by_priority,
        by_day=tuple(
            period(Priority, range(day, day + 1), *_day_bounds(span, day)) for day in range(span.days)
        ),
        dates=tuple(date_of(span, day, zone) for day in range(span.days)),
        errors=facts.errors,
        failing=facts.failing,
        pressure=_pressure(facts.pressure, course, span, load),
        course=course,
    )


# Tasks


def _counted(facts: ReportFacts, days: int) -> tuple[Counts, Counts]:
    """Looks and commits by day, class and status. Where clocks were changed today may have more than 24
    hours: what is beyond them is today's too."""
    looks: Counts = {}
    changes: Counts = {}
    today = days - 1
    for task in facts.tasks:
        _add(looks, (min(task.day, today), task.priority, task.status), task.tasks)
        _add(changes, (min(task.day, today), task.priority, task.status), task.changes)
    for run in facts.runs:
        for day, count in _spread(run):
            _add(looks, (min(day, today), run.priority, run.status), count)
        _add(changes, (min(run.last_day, today), run.priority, run.status), run.changes)
    return looks, changes


def _add(counts: Counts, key: tuple[int, Priority, TaskStatus], count: float) -> None:
    counts[key] = counts.get(key, 0.0) + count


def _spread(run: EndedRuns) -> Iterator[tuple[int, float]]:
    """Days of the report, and how many looks of these runs fall on each."""
    before = run.looks_until(-1) if run.first_day < 0 else 0.0
    for day in range(max(0, run.first_day), run.last_day):
        until = run.looks_until(day)
        yield day, until - before
        before = until
    yield run.last_day, run.looks - before


def _day_bounds(span: Span, day: int) -> tuple[float, float]:
    begin = span.begin + day * DAY_S
    return begin, span.end if day == span.days - 1 else begin + DAY_S


def _period(
    looks: Counts, changes: Counts, priorities: tuple[Priority, ...], days: range, begin: float, end: float
) -> Period:
    def total(counts: Counts, *statuses: TaskStatus) -> int:
        keys = ((day, priority, status) for day in days for priority in priorities for status in statuses)
        return int(sum(counts.get(key, 0.0) for key in keys) + 0.5)

    ended = (TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.SKIPPED)
    success, failed, skipped = (total(looks, status) for status in ended)
    return Period(begin, end, success + failed + skipped, success, failed, skipped, total(changes, *ended))


# The course


def _of(lags: Iterable[StepLag], priority: Priority) -> tuple[StepLag, ...]:
    return tuple(lag for lag in lags if lag.priority is priority)


def _class_report(now: ClassProgress, period: Period, lags: Iterable[StepLag]) -> ClassReport:
    told = list(lags)
    measured = sum(lag.measured for lag in told if lag.lag_average_s is not None)
    delays_s = sum(lag.lag_average_s * lag.measured for lag in told if lag.lag_average_s is not None)
    return ClassReport(
        now,
        period,
        lag_average_s=_share(delays_s, measured),
        lag_worst_s=max((lag.lag_worst_s for lag in told if lag.lag_worst_s is not None), default=None),
        equal_share=_equal(told),
    )


def _equal(lags: Iterable[StepLag]) -> float | None:
    told = list(lags)
    compared = sum(lag.compared for lag in told)
    return sum(lag.equal for lag in told) / compared if compared else None


def _points(facts: ReportFacts, span: Span) -> Iterator[Point]:
    pressure = {step.step: step for step in facts.pressure}
    lags: dict[int, list[StepLag]] = {}
    for lag in facts.lag:
        lags.setdefault(lag.step, []).append(lag)
    for step in range(span.steps):
        begin = span.begin + step * span.step_s
        end = min(begin + span.step_s, span.end)
        told, noted = lags.get(step, []), pressure.get(step)
        hours = max(end - begin, span.step_s * STEP_LEAST) / HOUR_S
        yield Point(
            begin,
            end,
            noted,
            {lag.priority: lag.lag_average_s for lag in told if lag.lag_average_s is not None},
            _equal(told),
            looks_per_hour=None if noted is None else noted.looks / hours,
        )


def _pressure(
    steps: tuple[StepPressure, ...], course: tuple[Point, ...], span: Span, load: Load | None
) -> PressureReport:
    notes = sum(step.notes for step in steps)
    known = sum(step.load_known for step in steps)
    looks, source_s = sum(step.looks for step in steps), sum(step.source_s for step in steps)
    noted_s = sum(point.end - point.begin for point in course if point.pressure is not None)
    return PressureReport(
        notes=notes,
        looks=looks,
        looks_per_hour=looks / noted_s * HOUR_S if noted_s else 0.0,
        looks_per_hour_max=max((p.looks_per_hour or 0.0 for p in course), default=0.0),
        source_s=source_s,
        source_average=source_s / noted_s if noted_s else 0.0,
        received_bytes=sum(step.received_bytes for step in steps),
        limit_min=min((step.limit_min for step in steps), default=None),
        limit_max=max((step.limit_max for step in steps), default=None),
        running_average=_share(sum(step.running * step.notes for step in steps), notes),
        running_max=max((step.running_max for step in steps), default=None),
        above_limit_share=_share(sum(step.above_limit for step in steps), notes),
        at_limit_share=_share(sum(step.at_limit for step in steps), notes),
        load_known_share=_share(known, notes),
        load_high_share=_share(sum(step.load_high for step in steps), known),
        load=load,
    )


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
