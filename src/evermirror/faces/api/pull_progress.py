"""How far pull mirroring is: now, in a time, by class, and how it went."""

from __future__ import annotations

import time

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evermirror.faces.api.context import ApiDep, problems, pull_of
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import HOURS_MAX, FromQuery, ToQuery, refused, span_of
from evermirror.faces.api.pull_views import Minutes, WaitingOut, minutes, waiting_out
from evermirror.faces.api.text import iso
from evermirror.model.figures import ClassProgress, Period, ProgressNote
from evermirror.model.repo import Priority
from evermirror.nodes.pull_service import Progress

_HOUR_S = 3_600.0
_COURSE_S = 24 * _HOUR_S  # without from
_NOTES_MAX = 2_000  # of one answer: enough for a chart

router = APIRouter(tags=["pull"])
_REFUSALS = problems(Kind.NOT_FOUND, Kind.INVALID)


class PeriodOut(BaseModel):
    """Tasks that ended between two times."""

    from_: str = Field(serialization_alias="from")
    to: str
    tasks: int
    success: int
    failed: int
    skipped: int
    changes: int = Field(description="Commits")


class OverviewOut(BaseModel):
    """How far all projects are: each is in exactly one of synced, syncing, pending, failed, disabled."""

    total_projects: int
    synced: int
    syncing: int
    pending: int
    failed: int
    success_rate: float = Field(description="1 - failed / total_projects")
    average_delay_minutes: Minutes = Field(description="Since the last sync; 0 where nothing was ever synced")
    disabled: int
    now: str
    waiting: list[WaitingOut] = Field(
        description="Due or asked for, and held back, as their class does not run now"
    )
    period: PeriodOut | None = Field(description="What happened in the time asked about")


class ClassOut(BaseModel):
    """The same of one class."""

    total: int
    synced: int
    success_rate: float
    avg_delay_minutes: Minutes
    syncing: int
    pending: int
    failed: int
    disabled: int
    period: PeriodOut | None


class ByPriorityOut(BaseModel):
    """By class."""

    critical: ClassOut
    high: ClassOut
    normal: ClassOut
    low: ClassOut


class NoteOut(BaseModel):
    """One point of the course."""

    at: str
    total_projects: int
    synced: int
    syncing: int
    pending: int
    failed: int
    disabled: int
    success_rate: float
    average_delay_minutes: Minutes


class CourseOut(BaseModel):
    """How progress went, oldest first."""

    items: list[NoteOut]
    from_: str = Field(serialization_alias="from")
    to: str


@router.get("/api/pull/progress/overview", summary="How far all projects are", responses=_REFUSALS)
async def get_overview(api: ApiDep, begin: FromQuery = None, end: ToQuery = None) -> OverviewOut:
    """As of now; with `from` or `to` also `period`: the tasks that ended in that time."""
    return _overview_out(await pull_of(api).progress(*_period(begin, end)))


@router.get("/api/pull/progress/by-priority", summary="How far each class is", responses=_REFUSALS)
async def get_by_priority(api: ApiDep, begin: FromQuery = None, end: ToQuery = None) -> ByPriorityOut:
    """As of now; with `from` or `to` each class has its `period`."""
    return _by_priority_out(await pull_of(api).progress(*_period(begin, end)))


@router.get("/api/pull/progress/course", summary="How progress went", responses=_REFUSALS)
async def get_course(api: ApiDep, begin: FromQuery = None, end: ToQuery = None) -> CourseOut:
    """As noted every five minutes (`scheduled_jobs.progress_statistics`), oldest first; without `from` of the
    last day before `to`. Of more than 2,000 notes only some are shown, evenly."""
    since, until = span_of(begin, end)
    until = until if until is not None else time.time()
    since = since if since is not None else max(0.0, until - _COURSE_S)
    if until - since > HOURS_MAX * _HOUR_S:
        raise refused("query.from", "is more than a year before the end")
    notes = await pull_of(api).course(since, until)
    step = -(-len(notes) // _NOTES_MAX) or 1
    return CourseOut(items=[_note_out(note) for note in notes[::step]], from_=iso(since), to=iso(until))


def _period(begin: str | None, end: str | None) -> tuple[float | None, float | None]:
    """Both times or none: without `from` since ever, without `to` until now."""
    since, until = span_of(begin, end)
    if since is None and until is None:
        return None, None
    until = until if until is not None else time.time()
    return min(since or 0.0, until), until


def _overview_out(progress: Progress) -> OverviewOut:
    overall = progress.overall
    return OverviewOut(
        total_projects=overall.total,
        synced=overall.synced,
        syncing=overall.syncing,
        pending=overall.pending,
        failed=overall.failed,
        success_rate=_rate(overall),
        average_delay_minutes=_delay(overall),
        disabled=overall.disabled,
        now=iso(progress.now),
        waiting=waiting_out(progress.waiting),
        period=_period_out(progress.period),
    )


def _by_priority_out(progress: Progress) -> ByPriorityOut:
    def of(priority: Priority) -> ClassOut:
        one = progress.by_priority[priority]
        return ClassOut(
            total=one.total,
            synced=one.synced,
            success_rate=_rate(one),
            avg_delay_minutes=_delay(one),
            syncing=one.syncing,
            pending=one.pending,
            failed=one.failed,
            disabled=one.disabled,
            period=_period_out(progress.periods.get(priority)),
        )

    classes = {priority.value: of(priority) for priority in Priority}
    return ByPriorityOut(**classes)


def _note_out(note: ProgressNote) -> NoteOut:
    overall = note.overall
    return NoteOut(
        at=iso(note.at),
        total_projects=overall.total,
        synced=overall.synced,
        syncing=overall.syncing,
        pending=overall.pending,
        failed=overall.failed,
        disabled=overall.disabled,
        success_rate=_rate(overall),
        average_delay_minutes=_delay(overall),
    )


def _period_out(period: Period | None) -> PeriodOut | None:
    if period is None:
        return None
    return PeriodOut(
        from_=iso(period.begin),
        to=iso(period.end),
        tasks=period.tasks,
        success=period.success,
        failed=period.failed,
        skipped=period.skipped,
        changes=period.changes,
    )


def _rate(progress: ClassProgress) -> float:
    return round(progress.success_rate, 4)


def _delay(progress: ClassProgress) -> Minutes:
    return minutes(progress.average_delay_s or 0.0, digits=1)
