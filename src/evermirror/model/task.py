"""The record of one poll and sync that somebody asked for, or that moved something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NewType

from evermirror.model.failure import Failure
from evermirror.model.repo import RepoKey

TaskId = NewType("TaskId", int)


class TaskStatus(Enum):
    """Stored as the pull API prints it; the task API prints FAILED as "failure"."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"  # looked, and nothing had changed

    @property
    def ended(self) -> bool:
        return self in (TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.SKIPPED)


class SyncPhase(StrEnum):
    """What is done now, in a task that runs. Workers tell it, and all that shows it reads it from here."""

    STARTING = "starting"
    COUNTING = "counting"
    COMPRESSING = "compressing"
    RECEIVING = "receiving"
    RESOLVING = "resolving"
    CHECKING = "checking"
    PUSHING = "pushing"
    SEARCHING = "waiting for the commit"  # it is not at upstream yet

    def to(self, host: str) -> str:
        """As it is told where a target's host is known: ``pushing to HOST``."""
        return f"{self.value} to {host}"

    @classmethod
    def of(cls, told: str) -> SyncPhase | None:
        """The phase in what was told; None for one that another version knows."""
        words = told.partition(" to ")[0]
        return next((phase for phase in cls if phase == words), None)


class Trigger(Enum):
    """Who asked."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    MANUAL_BATCH = "manual_batch"
    API = "api"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task. Times are UTC seconds since the epoch."""

    id: TaskId
    repo: RepoKey
    status: TaskStatus
    trigger: Trigger
    user: str = ""
    scheduled_at: float = 0.0
    started_at: float | None = None
    completed_at: float | None = None
    source_commit: str | None = None
    has_changes: bool = False
    changes_count: int = 0  # new commits
    progress_percent: float | None = None
    progress_phase: str = ""
    result: Mapping[str, object] | None = None
    failure: Failure | None = None
    retry_count: int = 0
    params: Mapping[str, object] | None = None  # wait, min_commit, force, priority as asked
    folded: int = 0  # further scheduled looks without a change that this row stands for
    created_at: float = 0.0
    updated_at: float = 0.0
    target_commit: str | None = None  # at the first target that it was pushed to
