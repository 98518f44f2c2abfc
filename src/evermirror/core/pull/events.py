"""What the pull machine hears, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evermirror.model.alert import Alert
from evermirror.model.failure import Failure
from evermirror.model.pull import Load, Project, Strategy
from evermirror.model.push import Pushed, PushTo
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskStatus, Trigger

# Events


@dataclass(frozen=True, slots=True)
class ProjectPut:
    """A project is new, or a person changed it: as it is in the store."""

    project: Project


@dataclass(frozen=True, slots=True)
class ProjectRemoved:
    key: RepoKey


@dataclass(frozen=True, slots=True)
class StrategySet:
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class LoadSeen:
    load: Load


@dataclass(frozen=True, slots=True)
class TaskOpened:
    """A task of a project is in the store. MANUAL, API and WEBHOOK start at once, outside the limit;
    MANUAL_BATCH waits for room; SCHEDULE answers an ``OpenTask`` and has its room already.
    After a restart every open task comes again, also those of SCHEDULE, which then wait for room too."""

    key: RepoKey
    task_id: TaskId
    trigger: Trigger
    priority_rank: int | None = None  # of this request; None: the project's own


@dataclass(frozen=True, slots=True)
class TaskBegan:
    """A worker works on it. Where it was not started (after a restart, or set aside), it is started now,
    outside the limit."""

    key: RepoKey
    task_id: TaskId
    at: float


@dataclass(frozen=True, slots=True)
class TaskSetAside:
    """Nobody can do a task that was started: its repo has no worker. It takes no room until TaskTakenUp."""

    key: RepoKey
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class TaskTakenUp:
    """There is somebody for a task that was set aside: it may start when there is room."""

    key: RepoKey
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """``counted``: a failure of the project itself, and not of its host. ``look_s``: how long the source took
    to answer; None where it did not. ``refused``: nobody looked (its worker was taken away, had no room, or
    the commit asked for is not there): it says nothing about the project or its source. ``told``: what its
    worker was last told of the targets, as far as that is known."""

    key: RepoKey
    task_id: TaskId
    status: TaskStatus
    started_at: float
    ended_at: float
    failure: Failure | None = None
    counted: bool = True
    pushes: tuple[Pushed, ...] = ()
    look_s: float | None = None
    refused: bool = False
    told: tuple[PushTo, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureExcused:
    """A failure that was counted turned out to be the host's weather: one is taken back."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that was asked for has come, or a cron's."""

    cron: bool = False


Event = (
    ProjectPut
    | ProjectRemoved
    | StrategySet
    | LoadSeen
    | TaskOpened
    | TaskBegan
    | TaskSetAside
    | TaskTakenUp
    | TaskEnded
    | FailureExcused
    | Woke
)


# Decisions


@dataclass(frozen=True, slots=True)
class OpenTask:
    """Create a task of the schedule: with ``project`` saved in the same transaction. Answered by TaskOpened,
    or by ProjectPut where that was impossible."""

    project: Project  # with its next_sync_at
    retry_count: int  # failures before this attempt
    trigger: Trigger = Trigger.SCHEDULE  # others: a person asked, and not the machine
    user: str = ""
    params: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class StartTask:
    """Give the task to the worker; these targets are to be served."""

    key: RepoKey
    task_id: TaskId
    push: tuple[PushTo, ...]


@dataclass(frozen=True, slots=True)
class PullDecision:
    """First all saves and opens in the store, then the rest."""

    opens: tuple[OpenTask, ...] = ()
    saves: tuple[Project, ...] = ()
    starts: tuple[StartTask, ...] = ()
    alerts: tuple[Alert, ...] = ()
    logs: tuple[str, ...] = ()  # changes of the limit, and why
