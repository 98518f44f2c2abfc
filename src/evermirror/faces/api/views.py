"""What clients get: response models, and how the service's records become them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from evermirror.core.fleet.copies import CopyState
from evermirror.faces.api.hook_views import HooksOut, hooks_out
from evermirror.faces.api.plan_views import PlanView, plan_view
from evermirror.faces.api.text import iso, iso_or_none, iso_times, printable, printable_json
from evermirror.model.failure import Failure
from evermirror.model.hook import HookMemory
from evermirror.model.kept import GuardMemory
from evermirror.model.repo import RepoRecord
from evermirror.model.task import TaskRecord, TaskStatus
from evermirror.nodes.service import Holder, PollPlan, Upkeep

StatusText = Literal["pending", "active", "failing", "gone", "auth", "held", "inactive"]
CopyStateText = Literal["planned", "asked", "held", "stopping", "leaving", "deferred"]
TaskStatusText = Literal["pending", "running", "success", "failure", "skipped"]

_COPY_STATE: dict[CopyState, CopyStateText] = {
    CopyState.PLANNED: "planned",
    CopyState.ASKED: "asked",
    CopyState.HELD: "held",
    CopyState.STOPPING: "stopping",
    CopyState.LEAVING: "leaving",
    CopyState.DEFERRED: "deferred",
}
_TASK_STATUS: dict[TaskStatus, TaskStatusText] = {
    TaskStatus.PENDING: "pending",
    TaskStatus.RUNNING: "running",
    TaskStatus.SUCCESS: "success",
    TaskStatus.FAILED: "failure",
    TaskStatus.SKIPPED: "skipped",
}


class TaskSubmitted(BaseModel):
    """A task was taken in."""

    task_id: str
    status: TaskStatusText


class TaskView(BaseModel):
    """One task."""

    task_id: str
    status: TaskStatusText
    progress: str | None = Field(description='"50%" of the whole while known; it never goes back')
    phase: str | None = Field(description="What git does now; null before that, and when ended")
    result: dict[str, Any] | None = Field(
        description="When ended: what moved, duration_s, worker; of a failure error_type, error_message, hint"
    )
    served: bool | None = Field(
        None,
        description="Asked through an aggregator, of a sync that succeeded: whether it has these refs",
    )
    created_at: str
    updated_at: str


class RepoTaskView(TaskView):
    """A task in a repo's list."""

    trigger: str
    started_at: str | None
    completed_at: str | None
    has_changes: bool
    new_commits: int


class RepoTasksView(BaseModel):
    """Newest first."""

    items: list[RepoTaskView]


class GitUrlAnswer(BaseModel):
    """What became of a URL."""

    git_url: str
    status: Literal["added", "updated", "exists"]


class GitUrlRemoved(BaseModel):
    """The URL is no longer mirrored; after a dry run it still is."""

    git_url: str
    status: Literal["removed", "removable"]


class ErrorView(BaseModel):
    """Why the last attempt failed."""

    error_type: str
    error_message: str
    hint: str
    at: str | None


class GitUrlView(BaseModel):
    """One repo in short."""

    key: str
    git_url: str
    additional_info: dict[str, Any]
    last_updated: str = Field(
        description="When the mirror last moved; before its first sync, the entry itself"
    )
    status: StatusText
    priority: Literal["critical", "high", "normal", "low"]
    verified_at: str | None = Field(description="The mirror was equal to upstream at this time")
    last_error: ErrorView | None
    alias: str | None
    host: str = Field(description="Of upstream")
    enabled: bool
    private: bool
    size_bytes: int = Field(description="Of the mirror on the disk")
    changed_at: str | None = Field(description="When a sync last moved a ref")
    consecutive_failures: int


class GitUrlList(BaseModel):
    """A page of repos in the order asked for."""

    items: list[GitUrlView]
    next_cursor: str | None
    total: int | None = Field(None, description="Repos on all pages; left out where it was not asked for")


class HolderView(BaseModel):
    """A worker that holds a copy, or should."""

    worker: str
    primary: bool = Field(description="It looks at upstream; the others follow it")
    state: CopyStateText = Field(
        description="planned: waits for its turn; asked: being cloned; held: complete; the others are going"
    )
    wanted: bool = Field(description="False: to be deleted once others hold the repo")
    reason: str = Field(description="Why it is there")
    digest: str | None = Field(description="Null also where its refs are not the newest known")
    verified_at: str | None


class HoldersView(BaseModel):
    """Who holds a copy of the repo."""

    holders: list[HolderView]
    why: list[str] = Field(description="Why the repo is where it is, for people to read")


class HeldView(BaseModel):
    """What of upstream a guard holds back."""

    reason: Literal["emptied", "shrunken", "unrelated"]
    since: str
    sightings: int = Field(description="Looks at upstream that saw it so")


class UpkeepView(BaseModel):
    """How the mirror lies on the disk."""

    packs: int
    loose_objects: int
    loose_refs: int
    size_bytes: int
    cruft_bytes: int = Field(description="Of what no ref reaches, kept for a while")
    has_bitmap: bool
    repacked_at: str | None
    checked_at: str | None = Field(description="Every object was read and found whole")


class RepoView(GitUrlView):
    """One repo in full."""

    source: str
    mode: Literal["exact", "append-only"]
    interval_s: float | None
    fallbacks: list[str] = Field(description="Asked in this order while git_url does not answer for the repo")
    source_url: str | None = Field(
        description="The address that last answered; null: none since its worker started"
    )
    pins: list[str] = Field(description="Workers that are to hold it, by name or number; empty: any")
    fsck_allow: list[str] = Field(description="Message ids of git fsck that are allowed in its objects")
    fsck_reason: str | None = Field(description="Why they are")
    digest: str | None
    head_commit: str | None
    refs_count: int
    created_at: str
    plan: PlanView
    holders: list[HolderView]
    verified: bool = Field(
        description="False: nobody, or only workers that are not trusted, say that they hold it"
    )
    held: HeldView | None = Field(description="Null while upstream is followed")
    upkeep: UpkeepView | None = Field(description="Null before the first sync")
    hooks: HooksOut | None = Field(
        description="What its forge's hooks taught; null where none ever came, and without the role reader"
    )
    clone_path: str = Field(description="Clone from this path of this server")


class RefView(BaseModel):
    """A branch or tag."""

    name: str
    oid: str


class RefsView(BaseModel):
    """A page of a mirror's branches and tags in name order."""

    key: str
    head: str | None
    digest: str
    total: int
    refs: list[RefView]
    next_cursor: str | None


def task_view(task: TaskRecord, *, served: bool | None = None) -> TaskView:
    return TaskView(**_task_fields(task), served=served)


def repo_task_view(task: TaskRecord) -> RepoTaskView:
    return RepoTaskView(
        **_task_fields(task),
        trigger=task.trigger.value,
        started_at=iso_or_none(task.started_at),
        completed_at=iso_or_none(task.completed_at),
        has_changes=task.has_changes,
        new_commits=task.changes_count,
    )


def submitted_view(task: TaskRecord) -> TaskSubmitted:
    return TaskSubmitted(task_id=str(task.id), status=_TASK_STATUS[task.status])


def _task_fields(task: TaskRecord) -> dict[str, Any]:
    return {
        "task_id": str(task.id),
        "status": _TASK_STATUS[task.status],
        "progress": _progress(task),
        "phase": None if task.status.ended else printable(task.progress_phase) or None,
        "result": _result(task),
        "created_at": iso(task.created_at),
        "updated_at": iso(task.updated_at),
    }


def _progress(task: TaskRecord) -> str | None:
    if task.status in (TaskStatus.SUCCESS, TaskStatus.SKIPPED):
        return "100%"
    if task.status is TaskStatus.RUNNING and task.progress_percent is not None:
        return f"{min(100.0, max(0.0, task.progress_percent)):.0f}%"
    return None


def _result(task: TaskRecord) -> dict[str, Any] | None:
    if not task.status.ended:
        return None
    result = iso_times(printable_json(dict(task.result or {})))
    assert isinstance(result, dict)  # noqa: S101 - a mapping stays one
    if task.failure is not None:
        result |= {
            "error_type": task.failure.kind.value,
            "error_message": printable(task.failure.message),
            "hint": printable(task.failure.hint),
        }
    return result


def error_view(failure: Failure, at: float | None) -> ErrorView:
    return ErrorView(
        error_type=failure.kind.value,
        error_message=printable(failure.message),
        hint=printable(failure.hint),
        at=iso_or_none(at),
    )


def git_url_view(record: RepoRecord) -> GitUrlView:
    return GitUrlView.model_construct(**_git_url_fields(record))


def _git_url_fields(record: RepoRecord) -> dict[str, Any]:
    failing = (record.last_failure_at or 0.0) > (record.verified_at or 0.0) or record.consecutive_failures > 0
    failure = record.last_failure if failing else None
    return {
        "key": printable(record.key),
        "git_url": printable(record.spec.url),
        "additional_info": printable_json(record.info),
        "last_updated": iso(record.changed_at or record.verified_at or record.created_at),
        "status": record.status.value,
        "priority": record.spec.priority.value,
        "verified_at": iso_or_none(record.verified_at),
        "last_error": error_view(failure, record.last_failure_at) if failure else None,
        "alias": record.alias if record.alias is None else printable(record.alias),
        "host": printable(record.spec.host),
        "enabled": record.enabled,
        "private": record.spec.private,
        "size_bytes": record.size_bytes,
        "changed_at": iso_or_none(record.changed_at),
        "consecutive_failures": record.consecutive_failures,
    }


def repo_view(
    record: RepoRecord,
    plan: PollPlan,
    holders: tuple[Holder, ...],
    guard: GuardMemory | None,
    upkeep: Upkeep | None,
    hooks: HookMemory | None,
) -> RepoView:
    return RepoView(
        **_git_url_fields(record),
        source=printable(record.source),
        mode=record.spec.mode.value,
        interval_s=record.spec.interval_s,
        fallbacks=[printable(url) for url in record.spec.fallbacks],
        source_url=printable(plan.source_url) if plan.source_url is not None else None,
        pins=[printable(name) for name in record.pins],
        fsck_allow=[printable(name) for name in record.spec.fsck_allow],
        fsck_reason=None if record.fsck_reason is None else printable(record.fsck_reason),
        digest=record.digest,
        head_commit=record.head_commit,
        refs_count=record.refs_count,
        created_at=iso(record.created_at),
        plan=plan_view(plan),
        holders=holders_view(holders),
        verified=any(h.verified for h in holders),
        held=_held_view(guard) if guard is not None else None,
        upkeep=_upkeep_view(upkeep) if upkeep is not None else None,
        hooks=hooks_out(hooks) if hooks is not None else None,
        clone_path=f"/git/{printable(record.key)}",
    )


def _held_view(guard: GuardMemory) -> HeldView:
    return HeldView(reason=guard.reason.value, since=iso(guard.since), sightings=guard.sightings)


def _upkeep_view(upkeep: Upkeep) -> UpkeepView:
    return UpkeepView(
        packs=upkeep.packs,
        loose_objects=upkeep.loose_objects,
        loose_refs=upkeep.loose_refs,
        size_bytes=upkeep.size_bytes,
        cruft_bytes=upkeep.cruft_bytes,
        has_bitmap=upkeep.has_bitmap,
        repacked_at=iso_or_none(upkeep.repacked_at),
        checked_at=iso_or_none(upkeep.checked_at),
    )


def copy_state_text(state: CopyState) -> CopyStateText:
    return _COPY_STATE[state]


def holders_view(holders: tuple[Holder, ...]) -> list[HolderView]:
    return [
        HolderView(
            worker=printable(h.worker),
            primary=h.primary,
            state=copy_state_text(h.state),
            wanted=h.wanted,
            reason=printable(h.reason),
            digest=h.digest,
            verified_at=iso_or_none(h.verified_at),
        )
        for h in holders
    ]
