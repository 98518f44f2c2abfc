"""A report on days of pull mirroring, in figures; `evermirror pull report` makes pages and charts of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from evermirror.faces.api.context import ApiDep, CallerDep, problems, pull_of
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import ErrorTypeText
from evermirror.faces.api.pull_strategy import LoadOut
from evermirror.faces.api.text import iso, printable
from evermirror.model.access import Role
from evermirror.model.figures import Period
from evermirror.model.repo import Priority
from evermirror.model.report import DAYS_MAX, ClassReport, Failing, Point, PressureReport, Report

router = APIRouter(tags=["pull"])

DaysQuery = Annotated[int, Query(ge=1, le=DAYS_MAX, description="Whole days before today")]
Share = Annotated[float, Field(ge=0, le=1)]


class TasksOut(BaseModel):
    """Tasks that ended. Runs of looks without a change count as many as they are."""

    tasks: int
    success: int
    failed: int
    skipped: int
    changes: int = Field(description="Commits")
    success_rate: Share | None = Field(description="1 - failed / tasks; null without any")


class DayOut(TasksOut):
    """One day."""

    date: str = Field(examples=["2026-11-16"])


class ClassReportOut(TasksOut):
    """One class, or all."""

    projects: int = Field(description="Now, as are the next four")
    synced: int
    pending: int
    failing: int
    disabled: int
    lag_average_s: float | None = Field(description="Since the last sync, over the time of the report")
    lag_worst_s: float | None
    equal_share: Share | None = Field(description="Projects verified equal, over the time of the report")


class ClassesOut(BaseModel):
    """By class."""

    critical: ClassReportOut
    high: ClassReportOut
    normal: ClassReportOut
    low: ClassReportOut


class ErrorsOut(BaseModel):
    """Errors of one type."""

    type: ErrorTypeText
    count: int
    affected_projects: int


class FailingOut(BaseModel):
    """A project with errors in this time."""

    project_key: str
    errors: int
    error_type: ErrorTypeText = Field(description="That most of them are of")
    consecutive_failures: int = Field(description="Now")
    paused: bool


class PressureOut(BaseModel):
    """What the sources bore. Shares are of the notes that were taken; null where there are none."""

    notes: int = Field(description="`scheduled_jobs.progress_statistics` says how often one is taken")
    looks: int
    looks_per_hour: float
    looks_per_hour_max: float = Field(description="Of one step of the course")
    source_seconds: float = Field(description="That sources were asked and read from, all together")
    source_connections: float = Field(description="Open at sources at any moment, on the average")
    received_bytes: int
    limit_min: int | None
    limit_max: int | None
    running_average: float | None
    running_max: int | None
    above_limit_share: Share | None = Field(description="More ran than the limit: started by hand")
    at_limit_share: Share | None = Field(description="As many ran as may")
    load_known_share: Share | None
    load_high_share: Share | None = Field(description="Of the notes with a known load")
    load: LoadOut | None = Field(description="Now; null while not known")


class LagOut(BaseModel):
    """Seconds since the last sync, on the average; null: not known."""

    critical: float | None
    high: float | None
    normal: float | None
    low: float | None


class PointOut(BaseModel):
    """One step of the course; null: nothing was noted."""

    at: str = Field(description="When it began")
    limit: float | None
    running: float | None
    running_max: int | None
    queued: float | None
    looks_per_hour: float | None
    source_seconds: float | None
    load_high_share: Share | None
    lag_s: LagOut
    equal_share: Share | None


class ReportOut(BaseModel):
    """Days of pull mirroring."""

    from_: str = Field(serialization_alias="from", description="Midnight in the time zone")
    to: str
    days: int = Field(description="Whole days; today, so far, comes on top")
    time_zone: str
    overall: ClassReportOut
    by_priority: ClassesOut
    by_day: list[DayOut] = Field(description="Oldest first; the last is today, so far")
    errors: list[ErrorsOut] = Field(description="Those that occurred, most first")
    failing: list[FailingOut] = Field(description="At most ten, most errors first")
    pressure: PressureOut
    step_minutes: float
    course: list[PointOut]


@router.get("/api/pull/report", summary="A report on days", responses=problems(Kind.NOT_FOUND, Kind.INVALID))
async def get_report(api: ApiDep, caller: CallerDep, days: DaysQuery = 7) -> ReportOut:
    """Of the last whole days, and today so far; at most a minute old. Private projects are counted, and named
    for token holders only."""
    return _report_out(await pull_of(api).report(days, public=not caller.may(Role.READER)))


def _report_out(report: Report) -> ReportOut:
    span = report.span
    return ReportOut(
        from_=iso(span.begin),
        to=iso(span.end),
        days=span.days - 1,
        time_zone=report.time_zone,
        overall=_class_out(report.overall),
        by_priority=ClassesOut(**{p.value: _class_out(report.by_priority[p]) for p in Priority}),
        by_day=[
            DayOut(date=date, **_tasks(day)) for date, day in zip(report.dates, report.by_day, strict=True)
        ],
        errors=[
            ErrorsOut(type=kind.value, count=n.count, affected_projects=n.affected_projects)
            for kind, n in report.errors.items()
        ],
        failing=[_failing_out(one) for one in report.failing],
        pressure=_pressure_out(report.pressure),
        step_minutes=span.step_s / 60,
        course=[_point_out(point) for point in report.course],
    )


def _tasks(period: Period) -> dict[str, Any]:
    return {
        "tasks": period.tasks,
        "success": period.success,
        "failed": period.failed,
        "skipped": period.skipped,
        "changes": period.changes,
        "success_rate": round(1 - period.failed / period.tasks, 4) if period.tasks else None,
    }


def _class_out(told: ClassReport) -> ClassReportOut:
    now = told.now
    return ClassReportOut(
        **_tasks(told.period),
        projects=now.total,
        synced=now.synced + now.syncing,
        pending=now.pending,
        failing=now.failed,
        disabled=now.disabled,
        lag_average_s=_rounded(told.lag_average_s, 1),
        lag_worst_s=_rounded(told.lag_worst_s, 1),
        equal_share=_rounded(told.equal_share),
    )


def _failing_out(one: Failing) -> FailingOut:
    return FailingOut(
        project_key=printable(one.name),
        errors=one.errors,
        error_type=one.kind.value,
        consecutive_failures=one.failures,
        paused=one.paused,
    )


def _pressure_out(told: PressureReport) -> PressureOut:
    load = told.load
    level: Literal["high", "normal", "low"] | None = load.level.value if load is not None else None
    return PressureOut(
        notes=told.notes,
        looks=told.looks,
        looks_per_hour=round(told.looks_per_hour, 2),
        looks_per_hour_max=round(told.looks_per_hour_max, 2),
        source_seconds=round(told.source_s, 1),
        source_connections=round(told.source_average, 4),
        received_bytes=told.received_bytes,
        limit_min=told.limit_min,
        limit_max=told.limit_max,
        running_average=_rounded(told.running_average, 2),
        running_max=told.running_max,
        above_limit_share=_rounded(told.above_limit_share),
        at_limit_share=_rounded(told.at_limit_share),
        load_known_share=_rounded(told.load_known_share),
        load_high_share=_rounded(told.load_high_share),
        load=LoadOut(level=level, reason=printable(load.reason)) if load and level else None,
    )


def _point_out(point: Point) -> PointOut:
    noted = point.pressure
    lag = {p.value: _rounded(point.lag_average_s.get(p), 1) for p in Priority}
    return PointOut(
        at=iso(point.begin),
        limit=_rounded(noted.limit, 2) if noted else None,
        running=_rounded(noted.running, 2) if noted else None,
        running_max=noted.running_max if noted else None,
        queued=_rounded(noted.queued, 2) if noted else None,
        looks_per_hour=_rounded(point.looks_per_hour, 2),
        source_seconds=_rounded(noted.source_s, 1) if noted else None,
        load_high_share=_rounded(noted.load_high / noted.load_known) if noted and noted.load_known else None,
        lag_s=LagOut(**lag),
        equal_share=_rounded(point.equal_share),
    )


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)
