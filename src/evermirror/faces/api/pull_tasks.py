"""Pulls: what became of them, and pulls that people ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from evermirror.errors import NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import (
    WRITE_PROBLEMS,
    ApiDep,
    CallerDep,
    KeyPath,
    no_such_project,
    problems,
    pull_of,
    shown_to,
    visible_project,
)
from evermirror.faces.api.inputs import LimitQuery, task_id_in
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.pull_errors import ErrorOut, error_out
from evermirror.faces.api.pull_inputs import (
    ErrorTypeText,
    PageLimitQuery,
    PageQuery,
    SizeQuery,
    TriggerBatchIn,
    TriggerIn,
    refused,
    size_of,
)
from evermirror.faces.api.pull_paths import ONE, ProjectRoute
from evermirror.faces.api.pull_public import task_for
from evermirror.faces.api.pull_views import TriggerText, WaitingOut, WaitOut, wait_out, waiting_out
from evermirror.faces.api.text import iso_or_none, printable, printable_json
from evermirror.model.access import Role
from evermirror.model.pull import Target, Wait
from evermirror.model.repo import Priority, RepoRecord
from evermirror.model.task import SyncPhase, TaskId, TaskRecord, TaskStatus

router = APIRouter(tags=["pull"], route_class=ProjectRoute)

PullStatusText = Literal["pending", "running", "success", "failed", "skipped"]
StatusQuery = Annotated[PullStatusText | None, Query(description="Only pulls of this status")]
BeforeQuery = Annotated[int | None, Query(ge=1, lt=2**63, description="The `next_before` of the page before")]

_PROGRESS = {
    TaskStatus.PENDING: "Waiting for its turn",
    TaskStatus.SUCCESS: "Done",
    TaskStatus.FAILED: "Failed",
    TaskStatus.SKIPPED: "Nothing had changed",
}
_PULLING = "Pulling changes..."
_PHASES: dict[SyncPhase | None, str] = {
    **dict.fromkeys(SyncPhase, _PULLING),
    SyncPhase.PUSHING: "Pushing changes...",
    SyncPhase.SEARCHING: "Waiting for the commit",
}
_NOT_FOUND_SHOWN = 10  # keys that a refusal names


class PullTaskOut(BaseModel):
    """One pull."""

    task_id: int
    status: PullStatusText
    scheduled_at: str | None
    started_at: str | None
    completed_at: str | None
    duration_seconds: float | None = Field(description="Null until it has ended")
    has_changes: bool
    changes_count: int = Field(description="New commits")
    source_commit_sha: str | None
    target_commit_sha: str | None
    trigger_type: TriggerText
    trigger_user: str | None = Field(description="Name of the token; null for the public")
    retry_count: int
    repeated: int = Field(description="Further scheduled looks without a change that this stands for")
    error_type: ErrorTypeText | None
    error_message: str | None
    hint: str | None
    received_bytes: int | None


class PullTaskList(BaseModel):
    """A page of pulls, newest first."""

    items: list[PullTaskOut]
    total: int
    page: int
    size: int


class NamedTaskOut(PullTaskOut):
    """One pull, in a list over all projects."""

    project_key: str


class NewestTasksOut(BaseModel):
    """Pulls of all projects, newest first."""

    items: list[NamedTaskOut]
    next_before: int | None = Field(description="Ask on with `before`; null: there are no more")


class PullTaskDetail(PullTaskOut):
    """One pull in full."""

    project_key: str
    progress: str = Field(examples=["Pulling changes... 42 %"])
    waiting: WaitOut | None = Field(description="What it waits for while it is pending")
    error: ErrorOut | None
    pushes: list[dict[str, Any]] = Field(
        description="What became of each target that was served; none for the public"
    )


class Triggered(BaseModel):
    """A pull was taken in."""

    task_id: int
    status: PullStatusText
    message: str


class BatchOut(BaseModel):
    """What a batch created."""

    created_tasks: int
    skipped_running: int
    already_pending: int = Field(description="Projects whose task was there, and is among `task_ids`")
    task_ids: list[int]
    not_found: list[str] = Field(description="Keys that nothing is known of")
    disabled: list[str] = Field(description="Not pulled: enable them, or reset their failures")
    waiting: list[WaitingOut] = Field(description="What those wait for that have not begun, and how many")


@router.get(
    f"{ONE}/tasks",
    summary="Pulls of a project, newest first",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def get_project_tasks(
    key: KeyPath,
    api: ApiDep,
    caller: CallerDep,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
    page: PageQuery = 1,
) -> PullTaskList:
    """Ten to a page. Scheduled looks in a row that saw no change are one item."""
    view = await visible_project(api, caller, key)
    found = await pull_of(api).tasks(view.record.key, page=page, size=size_of(limit, size, 10))
    return PullTaskList(
        items=[PullTaskOut(**_fields(task_for(task, caller), caller)) for task in found.items],
        total=found.total,
        page=found.page,
        size=found.size,
    )


@router.post(
    f"{ONE}/trigger",
    summary="Pull now",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def trigger(key: KeyPath, api: ApiDep, caller: CallerDep, asked: TriggerIn | None = None) -> Triggered:
    """At once, however many run. Of a project whose pull is pending the answer is that task; 409 while one
    runs, and for a disabled project. The body may be left out."""
    caller.need(Role.SUBMITTER)
    view = await visible_project(api, caller, key)
    force = asked.force if asked is not None else False
    task, new = await pull_of(api).trigger(view.record.key, force=force, actor=caller.name)
    message = "Pull task created successfully" if new else "A pull task was pending already"
    return Triggered(task_id=task.id, status=task.status.value, message=message)


@router.post(
    "/api/pull/trigger/batch",
    summary="Pull many now",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def trigger_batch(asked: TriggerBatchIn, api: ApiDep, caller: CallerDep) -> BatchOut:
    """By name, or all projects of a class; they start as there is room and their class may run, and `waiting`
    says what keeps the others. Those that run are left out and counted. 404 where no name is known."""
    caller.need(Role.OPERATOR)
    names = tuple(dict.fromkeys(asked.project_keys or ()))
    priority = Priority(asked.priority) if asked.priority is not None else None
    if not names and priority is None:
        raise refused("body.project_keys", "names no project, and no priority is given")
    made = await pull_of(api).trigger_batch(names, priority, force=asked.force, actor=caller.name)
    if priority is None:
        refuse_all_unknown(names, made.unknown)
    return BatchOut(
        created_tasks=len(made.task_ids) - made.already_pending,
        skipped_running=made.skipped_running,
        already_pending=made.already_pending,
        task_ids=list(made.task_ids),
        not_found=[printable(name) for name in made.unknown],
        disabled=[printable(name) for name in made.disabled],
        waiting=waiting_out(made.waiting),
    )


@router.get(
    "/api/pull/tasks",
    summary="Pulls of all projects, newest first",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def get_newest_tasks(
    api: ApiDep,
    caller: CallerDep,
    status: StatusQuery = None,
    before: BeforeQuery = None,
    limit: LimitQuery = 50,
) -> NewestTasksOut:
    """Scheduled looks in a row that saw no change are one item. Needs the role reader."""
    caller.need(Role.READER)
    wanted = TaskStatus(status) if status is not None else None
    found = await pull_of(api).newest_tasks(wanted, TaskId(before) if before is not None else None, limit)
    items = [_named(task, found.records.get(task.repo), caller) for task in found.items]
    return NewestTasksOut(items=items, next_before=items[-1].task_id if len(items) == limit else None)


@router.get(
    "/api/pull/tasks/{task_id}",
    summary="What became of a pull",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def get_task(task_id: str, api: ApiDep, caller: CallerDep) -> PullTaskDetail:
    """`progress` is for people to read. Of a project that has left the catalog for token holders only."""
    number = task_id_in(task_id)
    if number is None:
        raise _no_such_task(task_id)
    try:
        task, view = await pull_of(api).task(number)
    except NotFound:
        raise _no_such_task(task_id) from None
    if not (shown_to(caller, view.record) if view is not None else caller.may(Role.READER)):
        raise _no_such_task(task_id)
    task, record = task_for(task, caller), view.record if view is not None else None
    wait = view.wait if view is not None and task.status is TaskStatus.PENDING else None
    return PullTaskDetail(
        **_fields(task, caller),
        project_key=printable(view.project.name if view is not None else task.repo),
        progress=_progress(task, wait),
        waiting=wait_out(wait),
        error=error_out(task, task.failure, record, caller) if task.failure is not None else None,
        pushes=_pushes(task, view.project.targets if view is not None else ()),
    )


def refuse_all_unknown(names: tuple[str, ...], unknown: tuple[str, ...]) -> None:
    """The 404 of a batch of which nothing is known."""
    if not names or len(unknown) < len(names):
        return
    if len(names) == 1:
        raise no_such_project(names[0])
    shown = ", ".join(repr(name) for name in unknown[:_NOT_FOUND_SHOWN])
    more = ", …" if len(unknown) > _NOT_FOUND_SHOWN else ""
    raise ApiProblem(
        Kind.NOT_FOUND,
        f"None of these {len(names)} projects is known: {shown}{more}",
        hint="Look for them by GET /api/pull/projects?search=",
    )


def _no_such_task(task_id: str) -> ApiProblem:
    return ApiProblem(
        Kind.NOT_FOUND,
        f"There is no task {task_id!r}",
        hint="GET /api/pull/projects/{key}/tasks lists them",
    )


def _named(task: TaskRecord, record: RepoRecord | None, caller: Caller) -> NamedTaskOut:
    """``record`` is None for a repo that left the catalog long ago."""
    name = (record.alias if record is not None else None) or task.repo
    return NamedTaskOut(**_fields(task, caller), project_key=printable(name))


def _fields(task: TaskRecord, caller: Caller) -> dict[str, Any]:
    failure, result = task.failure, task.result or {}
    received = result.get("received_bytes")
    ran_s = None
    if task.started_at is not None and task.completed_at is not None:
        ran_s = round(max(0.0, task.completed_at - task.started_at), 3)
    return {
        "task_id": task.id,
        "status": task.status.value,
        "scheduled_at": iso_or_none(task.scheduled_at or task.created_at),
        "started_at": iso_or_none(task.started_at),
        "completed_at": iso_or_none(task.completed_at),
        "duration_seconds": ran_s,
        "has_changes": task.has_changes,
        "changes_count": task.changes_count,
        "source_commit_sha": task.source_commit,
        "target_commit_sha": task.target_commit,
        "trigger_type": task.trigger.value,
        "trigger_user": (printable(task.user) or None) if caller.may(Role.READER) else None,
        "retry_count": task.retry_count,
        "repeated": task.folded,
        "error_type": failure.kind.value if failure is not None else None,
        "error_message": printable(failure.message) if failure is not None else None,
        "hint": printable(failure.hint) if failure is not None else None,
        "received_bytes": received if isinstance(received, int) else None,
    }


def _progress(task: TaskRecord, wait: Wait | None) -> str:
    if wait is not None:
        return printable(wait.text[:1].upper() + wait.text[1:])
    if task.status is not TaskStatus.RUNNING:
        return _PROGRESS[task.status]
    doing = _PHASES.get(SyncPhase.of(task.progress_phase), _PULLING)
    if task.progress_percent is None:
        return doing
    return f"{doing} {min(100.0, max(0.0, task.progress_percent)):.0f} %"


def _pushes(task: TaskRecord, targets: Sequence[Target]) -> list[dict[str, Any]]:
    """As the task's result has them, with the address of each target that is still one of the project's."""
    told = printable_json((task.result or {}).get("pushes"))
    urls = {int(target.id): printable(target.url) for target in targets}
    pushes = [push for push in told if isinstance(push, dict)] if isinstance(told, list) else []
    return [{**push, "target_url": urls.get(push.get("target", 0))} for push in pushes]
