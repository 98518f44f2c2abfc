"""What clients get of projects: the seed's fields first, then ours. Intervals are minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from evermirror.faces.api.auth import Caller
from evermirror.faces.api.pull_inputs import ErrorTypeText, PriorityText
from evermirror.faces.api.pull_public import project_for
from evermirror.faces.api.text import iso_or_none, printable
from evermirror.model.access import Role
from evermirror.model.failure import Failure
from evermirror.model.pull import MINUTE, Project, Target, Wait, Waiting
from evermirror.model.repo import Priority
from evermirror.model.task import TaskStatus
from evermirror.nodes.pull_service import ProjectPage, ProjectView

EndText = Literal["success", "failed", "skipped"]
TriggerText = Literal["schedule", "manual", "manual_batch", "api", "webhook"]
Minutes = int | float

_ENDS: dict[TaskStatus, EndText] = {
    TaskStatus.SUCCESS: "success",
    TaskStatus.FAILED: "failed",
    TaskStatus.SKIPPED: "skipped",
}


class PullErrorShort(BaseModel):
    """A failure in short."""

    error_type: ErrorTypeText
    error_message: str
    hint: str
    at: str | None


class TargetOut(BaseModel):
    """Where a project is pushed on to, and how it is there."""

    id: int
    url: str
    credential: str | None = Field(description="Its name")
    put_at: str | None = Field(description="When something was last put there")
    commit: str | None = Field(description="Tip of its default branch then")
    failures: int = Field(description="In a row")
    next_attempt_at: str | None = Field(description="Not before; null: with the next pull")
    paused: str | None = Field(description="Why it is left alone until its project's failures are reset")
    adopt: bool = Field(description="The next push may overwrite what is there")
    last_error: PullErrorShort | None


class WaitOut(BaseModel):
    """What a task that was asked for waits for."""

    reason: Literal["peak", "load", "source", "room", "worker"]
    text: str = Field(examples=["waits until 18:00: only critical and high run in peak hours"])
    until: str | None = Field(description="Null where nobody can say")
    clock: str | None = Field(description="The same on the strategy's clock", examples=["18:00"])


class WaitingOut(WaitOut):
    """So many wait for the same."""

    count: int


class ProjectOut(BaseModel):
    """A project: its configuration and how it is."""

    priority: PriorityText
    effective_priority: PriorityText = Field(
        description="What it is scheduled as: one class lower after `pull.demote_after` failures in a row"
    )
    sync_interval: Minutes = Field(description="In minutes; where `configured` is false, the gap aimed at")
    enabled: bool
    max_retries: int
    retry_delay: Minutes = Field(description="In minutes")
    last_sync_at: str | None
    next_sync_at: str | None
    consecutive_failures: int
    project_key: str
    key: str = Field(description="The repo's key")
    source_url: str
    source_credential: str | None = Field(description="Its name; null for the public")
    targets: list[TargetOut] = Field(description="None for the public")
    targets_total: int
    configured: bool = Field(description="False: looked at by the adaptive schedule, and pushed nowhere")
    overrides: list[str] = Field(description="What was set in place of the catalog's word or the default")
    paused: str | None = Field(description="Why it was disabled by itself")
    running: bool
    task_id: int | None = Field(description="Of its task that is pending or runs")
    waiting: WaitOut | None = Field(description="What that task waits for")
    last_status: EndText | None = Field(description="Of its last task that ended")
    last_error: PullErrorShort | None = Field(description="The last one there was, also where it is over")
    private: bool
    created_at: str | None
    updated_at: str | None


class ProjectList(BaseModel):
    """A page of projects, by name."""

    items: list[ProjectOut]
    total: int
    page: int
    size: int


class ProjectRemoved(BaseModel):
    """The project is no longer mirrored; what is at its targets stays."""

    project_key: str
    status: Literal["removed"] = "removed"


class PriorityUpdated(BaseModel):
    """What a batch changed."""

    updated: int
    priority: PriorityText
    not_found: list[str] = Field(description="Keys that nothing is known of")


class FailedOut(BaseModel):
    """A project that fails."""

    project_key: str
    consecutive_failures: int
    last_error_type: ErrorTypeText | None
    last_error_message: str | None
    last_failed_at: str | None
    enabled: bool
    paused: str | None = Field(description="Why it was disabled by itself")
    priority: PriorityText
    effective_priority: PriorityText


class FailedList(BaseModel):
    """A page of failing projects, most failures first."""

    items: list[FailedOut]
    total: int
    page: int
    size: int


def project_out(view: ProjectView, caller: Caller) -> ProjectOut:
    project, record, config = project_for(view.project, caller), view.record, view.project.config
    credential = record.spec.credential if caller.may(Role.READER) else None
    return ProjectOut(
        priority=config.priority.value,
        effective_priority=view.effective_priority.value,
        sync_interval=minutes(config.interval_s),
        enabled=config.enabled,
        max_retries=config.max_retries,
        retry_delay=minutes(config.retry_delay_s),
        last_sync_at=iso_or_none(project.last_sync_at),
        next_sync_at=iso_or_none(project.next_sync_at),
        consecutive_failures=project.failures,
        project_key=printable(project.name),
        key=printable(project.key),
        source_url=printable(record.spec.url),
        source_credential=printable(credential) if credential is not None else None,
        targets=[_target_out(target) for target in project.targets],
        targets_total=len(view.project.targets),
        configured=view.configured,
        overrides=sorted(project.overrides),
        paused=printable(project.paused) or None,
        running=view.running,
        task_id=project.task,
        waiting=wait_out(view.wait),
        last_status=_ENDS.get(project.last_status) if project.last_status is not None else None,
        last_error=_short(project.last_failure, project.last_failure_at),
        private=record.spec.private,
        created_at=iso_or_none(project.created_at),
        updated_at=iso_or_none(project.updated_at),
    )


def project_list(page: ProjectPage, caller: Caller) -> ProjectList:
    items = [project_out(view, caller) for view in page.items]
    return ProjectList(items=items, total=page.total, page=page.page, size=page.size)


def failed_list(page: ProjectPage, caller: Caller) -> FailedList:
    items = [_failed_out(project_for(view.project, caller), view.effective_priority) for view in page.items]
    return FailedList(items=items, total=page.total, page=page.page, size=page.size)


def _failed_out(project: Project, effective: Priority) -> FailedOut:
    failure = project.last_failure
    return FailedOut(
        project_key=printable(project.name),
        consecutive_failures=project.failures,
        last_error_type=failure.kind.value if failure is not None else None,
        last_error_message=printable(failure.message) if failure is not None else None,
        last_failed_at=iso_or_none(project.last_failure_at),
        enabled=project.config.enabled,
        paused=printable(project.paused) or None,
        priority=project.config.priority.value,
        effective_priority=effective.value,
    )


def wait_out(wait: Wait | None) -> WaitOut | None:
    return None if wait is None else WaitOut(**_wait_fields(wait))


def waiting_out(waiting: Sequence[Waiting]) -> list[WaitingOut]:
    return [WaitingOut(**_wait_fields(one.wait), count=one.count) for one in waiting]


def _wait_fields(wait: Wait) -> dict[str, Any]:
    return {
        "reason": wait.reason.value,
        "text": printable(wait.text),
        "until": iso_or_none(wait.until),
        "clock": wait.clock or None,
    }


def _target_out(target: Target) -> TargetOut:
    return TargetOut(
        id=target.id,
        url=printable(target.url),
        credential=printable(target.credential) if target.credential is not None else None,
        put_at=iso_or_none(target.put_at),
        commit=target.commit,
        failures=target.failures,
        next_attempt_at=iso_or_none(target.not_before),
        paused=printable(target.paused) or None,
        adopt=target.adopt,
        last_error=_short(target.last_failure, target.last_failure_at),
    )


def _short(failure: Failure | None, at: float | None) -> PullErrorShort | None:
    if failure is None:
        return None
    return PullErrorShort(
        error_type=failure.kind.value,
        error_message=printable(failure.message),
        hint=printable(failure.hint),
        at=iso_or_none(at),
    )


def minutes(seconds: float, digits: int = 4) -> Minutes:
    """Whole where it is whole: 120, and not 120.0."""
    value = round(seconds / MINUTE, digits)
    return int(value) if value.is_integer() else value
