"""What went wrong in pull mirroring: each error with all that is known of it, counts, projects that fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import ApiDep, CallerDep, KeyPath, problems, pull_of, visible_project
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import (
    HOURS_MAX,
    ErrorTypeText,
    FromQuery,
    PageLimitQuery,
    PageQuery,
    SizeQuery,
    ToQuery,
    size_of,
    span_of,
)
from evermirror.faces.api.pull_paths import BASE, ONE, ProjectRoute
from evermirror.faces.api.pull_public import task_for
from evermirror.faces.api.pull_views import FailedList, TriggerText, failed_list
from evermirror.faces.api.text import iso, printable
from evermirror.model.access import Role
from evermirror.model.failure import HTTP_BODY, HTTP_STATUS, SOURCE_URL, TARGET_URL, Failure, FailureKind
from evermirror.model.figures import ErrorFilter
from evermirror.model.repo import RepoRecord
from evermirror.model.task import TaskRecord
from evermirror.nodes.pull_service import ErrorStatistics, TaskPage

_FAILURES_MAX = 1_000_000
_VERSIONS = {"evermirror": "evermirror", "git": "git_version", "system": "system"}  # by key in the context

router = APIRouter(tags=["pull"], route_class=ProjectRoute)
_REFUSALS = problems(Kind.NOT_FOUND, Kind.INVALID)

TypeQuery = Annotated[ErrorTypeText | None, Query(alias="type", description="Only errors of this type")]
HoursQuery = Annotated[float, Query(gt=0, le=HOURS_MAX, allow_inf_nan=False)]
FailuresQuery = Annotated[int, Query(ge=1, le=_FAILURES_MAX, description="At least so many in a row")]


class ErrorOut(BaseModel):
    """One error. What only helps those who run the server is null for the public."""

    task_id: int
    occurred_at: str
    error_type: ErrorTypeText
    error_message: str
    git_command: str | None
    retry_count: int
    project_key: str
    hint: str
    source_url: str | None
    target_url: str | None = Field(description="Null where the source is meant, and for the public")
    http_status: int | None = Field(description="Of the answer, where a look over HTTP failed")
    http_body: str | None = Field(description="How that answer began")
    stdout: str | None
    stderr: str | None
    versions: dict[str, str] | None = Field(description="Of evermirror, git and the system, where known")
    traceback: str | None = Field(description="Ours, where the fault was ours")
    trigger_type: TriggerText


class ErrorList(BaseModel):
    """A page of errors, newest first."""

    items: list[ErrorOut]
    total: int
    page: int
    size: int


class TypeCount(BaseModel):
    """Errors of one type."""

    count: int
    affected_projects: int


class StatisticsOut(BaseModel):
    """Errors by type."""

    time_range: str = Field(description="In UTC", examples=["2025-12-12T23:55 - 2025-12-13T23:55"])
    total_errors: int
    by_type: dict[ErrorTypeText, TypeCount] = Field(description="Those that occurred, most first")


@router.get(f"{ONE}/errors", summary="Errors of a project, newest first", responses=_REFUSALS)
async def get_project_errors(
    key: KeyPath,
    api: ApiDep,
    caller: CallerDep,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
    page: PageQuery = 1,
    kind: TypeQuery = None,
    begin: FromQuery = None,
    end: ToQuery = None,
) -> ErrorList:
    """Ten to a page. A pull that succeeded is among them where one of several targets did not take it."""
    view = await visible_project(api, caller, key)
    which = _filter(kind, begin, end, page, size_of(limit, size, 10))
    found = await pull_of(api).errors(view.record.key, which)
    return _list_out(found, caller, view.record)


@router.get("/api/pull/errors", summary="Errors of all projects, newest first", responses=_REFUSALS)
async def get_errors(
    api: ApiDep,
    caller: CallerDep,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
    page: PageQuery = 1,
    kind: TypeQuery = None,
    begin: FromQuery = None,
    end: ToQuery = None,
) -> ErrorList:
    """Fifty to a page; those of private projects for token holders only."""
    which = _filter(kind, begin, end, page, size_of(limit, size, 50))
    return _list_out(await pull_of(api).errors(None, which, public=not caller.may(Role.READER)), caller)


@router.get("/api/pull/errors/statistics", summary="Errors by type", responses=_REFUSALS)
async def get_statistics(api: ApiDep, hours: HoursQuery = 24.0) -> StatisticsOut:
    """Of the last `hours`, of all projects."""
    return _statistics_out(await pull_of(api).error_statistics(hours))


@router.get(f"{BASE}/failed", summary="Projects that fail", responses=_REFUSALS)
async def get_failed(
    api: ApiDep,
    caller: CallerDep,
    consecutive_failures_gte: FailuresQuery = 1,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
    page: PageQuery = 1,
) -> FailedList:
    """Most failures in a row first, a hundred to a page; private projects for token holders only."""
    found = await pull_of(api).failed_projects(
        consecutive_failures_gte,
        page=page,
        size=size_of(limit, size, 100),
        public=not caller.may(Role.READER),
    )
    return failed_list(found, caller)


def _filter(kind: str | None, begin: str | None, end: str | None, page: int, size: int) -> ErrorFilter:
    since, until = span_of(begin, end)
    named = FailureKind(kind) if kind is not None else None
    return ErrorFilter(kind=named, begin=since, end=until, page=page, size=size)


def _list_out(found: TaskPage, caller: Caller, record: RepoRecord | None = None) -> ErrorList:
    items = [
        error_out(task, task.failure, record or found.records.get(task.repo), caller)
        for task in (task_for(task, caller) for task in found.items)
        if task.failure is not None
    ]
    return ErrorList(items=items, total=found.total, page=found.page, size=found.size)


def error_out(task: TaskRecord, failure: Failure, record: RepoRecord | None, caller: Caller) -> ErrorOut:
    """Of a task as the caller may see it. ``record`` is None for a repo that left the catalog."""
    inside = caller.may(Role.READER)
    context = failure.context
    source_url = record.spec.url if record is not None else context.get(SOURCE_URL)
    versions = {name: printable(context[key]) for name, key in _VERSIONS.items() if key in context}
    return ErrorOut(
        task_id=task.id,
        occurred_at=iso(task.completed_at or task.updated_at),
        error_type=failure.kind.value,
        error_message=printable(failure.message),
        git_command=_or_none(failure.git_command),
        retry_count=task.retry_count,
        project_key=printable((record.alias if record is not None else None) or task.repo),
        hint=printable(failure.hint),
        source_url=_or_none(source_url),
        target_url=_or_none(context.get(TARGET_URL)),
        http_status=int(context[HTTP_STATUS]) if context.get(HTTP_STATUS, "").isdecimal() else None,
        http_body=_or_none(context.get(HTTP_BODY)) if inside else None,
        stdout=printable(failure.stdout) if inside else None,
        stderr=printable(failure.stderr) if inside else None,
        versions=versions if inside else None,
        traceback=_or_none(context.get("traceback")) if inside else None,
        trigger_type=task.trigger.value,
    )


def _or_none(text: str | None) -> str | None:
    return printable(text) if text else None


def _statistics_out(found: ErrorStatistics) -> StatisticsOut:
    most_first = sorted(found.by_kind.items(), key=lambda item: (-item[1].count, item[0].value))
    return StatisticsOut(
        time_range=f"{_minute(found.begin)} - {_minute(found.end)}",
        total_errors=found.total,
        by_type={
            kind.value: TypeCount(count=n.count, affected_projects=n.affected_projects)
            for kind, n in most_first
        },
    )


def _minute(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).strftime("%Y-%m-%dT%H:%M")
