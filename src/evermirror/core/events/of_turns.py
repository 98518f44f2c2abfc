"""What others are told when something stored becomes other than it was: repos, tasks, workers, alerts."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.events.of_reports import TEXT_MAX, failure_data
from evermirror.core.events.schema import iso
from evermirror.model.alert import AlertRecord
from evermirror.model.duration import took_s
from evermirror.model.event import EventType, NewEvent
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import RepoKey, RepoStatus
from evermirror.model.task import TaskId, TaskStatus, Trigger
from evermirror.model.worker import AggregatorRecord, Duty, Liveness, WorkerRecord

_TROUBLED = frozenset({RepoStatus.FAILING, RepoStatus.GONE, RepoStatus.AUTH, RepoStatus.HELD})
_OF_STATUS = {RepoStatus.GONE: EventType.REPO_GONE, RepoStatus.HELD: EventType.REPO_HELD}


@dataclass(frozen=True, slots=True)
class RepoBefore:
    """What was known of a repo's syncs; ``told``: the status that others know of, until it is over."""

    status: RepoStatus
    consecutive_failures: int
    kind: FailureKind | None
    told: str | None = None


def recovered(key: RepoKey, before: RepoBefore, at: float) -> NewEvent | None:
    """It is as upstream has it again; None where nothing was wrong with it."""
    if before.status not in _TROUBLED and not before.consecutive_failures:
        return None
    data = {
        "was": before.status.value,
        "error_type": None if before.kind is None else before.kind.value,
        "consecutive_failures": before.consecutive_failures,
    }
    return NewEvent(EventType.SYNC_RECOVERED, at, key, data=data)


def excused(key: RepoKey, before: RepoBefore, at: float) -> NewEvent:
    """Its first failure in a row was its host's bad hour, and is taken back: nobody knows yet how it is."""
    data = {
        "was": before.status.value,
        "error_type": None if before.kind is None else before.kind.value,
    }
    return NewEvent(EventType.SYNC_EXCUSED, at, key, data=data)


def tells_status(status: RepoStatus | None) -> bool:
    """Whether others are told when a repo comes into this status."""
    return status in _OF_STATUS


def status_changed(
    key: RepoKey, before: RepoBefore, after: RepoStatus | None, failure: Failure, at: float
) -> NewEvent | None:
    """Upstream says that it is not there, or a guard holds a change back: told when it becomes so, and not
    again before it is over, whatever other failures come between."""
    if after not in _OF_STATUS or after.value == before.told or before.status is RepoStatus.INACTIVE:
        return None
    return NewEvent(_OF_STATUS[after], at, key, data=failure_data(failure))


def was_asked_for(trigger: Trigger) -> bool:
    """Neither a look of the schedule nor one that a forge's hook made: of these, what moved is told."""
    return trigger in (Trigger.API, Trigger.MANUAL, Trigger.MANUAL_BATCH)


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """A task that was open, and has ended."""

    id: TaskId
    repo: RepoKey
    trigger: Trigger
    status: TaskStatus
    started_at: float
    ended_at: float
    has_changes: bool
    commits: int
    source_commit: str | None
    failure: Failure | None
    target_commit: str | None = None
    retry_count: int = 0


def task_ended(task: TaskEnd) -> NewEvent:
    data: dict[str, object] = {
        "task_id": str(task.id),
        "status": "failure" if task.status is TaskStatus.FAILED else task.status.value,  # as GET /api/tasks
        "trigger": task.trigger.value,
        "has_changes": task.has_changes,
        "commits": task.commits,
        "source_commit": task.source_commit,
        "duration_s": took_s(task.started_at, task.ended_at),
        "failure": None if task.failure is None else failure_data(task.failure),
    }
    return NewEvent(EventType.TASK_ENDED, task.ended_at, task.repo, data=data)


def pull_ended(task: TaskEnd) -> NewEvent | None:
    """Of a project's task, whoever wanted it: how the pull ended. None: nothing had changed."""
    if task.status not in (TaskStatus.SUCCESS, TaskStatus.FAILED):
        return None
    data: dict[str, object] = {
        "task_id": str(task.id),
        "trigger_type": task.trigger.value,
        "has_changes": task.has_changes,
        "changes_count": task.commits,
        "source_commit_sha": task.source_commit,
        "target_commit_sha": task.target_commit,
        "retry_count": task.retry_count,
        "duration_s": took_s(task.started_at, task.ended_at),
        "failure": None if task.failure is None else failure_data(task.failure),
    }
    failed = task.status is TaskStatus.FAILED
    type_ = EventType.PULL_SYNC_FAILED if failed else EventType.PULL_SYNC_SUCCESS
    return NewEvent(type_, task.ended_at, task.repo, data=data)


@dataclass(frozen=True, slots=True)
class WorkerBefore:
    """What was stored of a worker; another ``joined_at``: the id was another's."""

    liveness: Liveness
    duty: Duty
    joined_at: float


_OF_LIVENESS = {
    Liveness.ALIVE: EventType.WORKER_UP,
    Liveness.SUSPECT: EventType.WORKER_SUSPECT,
    Liveness.DOWN: EventType.WORKER_DOWN,
}


def worker_turned(before: WorkerBefore | None, after: WorkerRecord, at: float) -> tuple[NewEvent, ...]:
    name, data = after.facts.name, {"id": after.id}
    if before is None or before.joined_at != after.joined_at:
        joined = {**data, "trusted": after.facts.trusted}
        return (NewEvent(EventType.WORKER_JOINED, at, worker=name, data=joined),)
    told: list[NewEvent] = []
    if before.liveness is not after.liveness:
        was = {**data, "was": before.liveness.value}
        told.append(NewEvent(_OF_LIVENESS[after.liveness], at, worker=name, data=was))
    if before.duty is not after.duty:
        duty = {**data, "duty": after.duty.value, "was": before.duty.value}
        told.append(NewEvent(EventType.WORKER_CHANGED, at, worker=name, data=duty))
    return tuple(told)


def aggregator_turned(
    before: AggregatorRecord | None, after: AggregatorRecord, at: float
) -> tuple[NewEvent, ...]:
    """Of one that is back in a moment nobody is told."""
    data = {"id": after.token_id, "name": after.name, "url": after.http_url or None}
    if before is None:
        return (NewEvent(EventType.AGGREGATOR_JOINED, at, data=data),)
    if before.retired is not after.retired:
        data |= {"status": after.status, "was": before.status}
        return (NewEvent(EventType.AGGREGATOR_CHANGED, at, data=data),)
    if before.liveness is not Liveness.DOWN and after.liveness is Liveness.DOWN:
        return (NewEvent(EventType.AGGREGATOR_DOWN, at, data=data),)
    if before.liveness is Liveness.DOWN and after.liveness is Liveness.ALIVE:
        return (NewEvent(EventType.AGGREGATOR_UP, at, data=data),)
    return ()


def alert_turned(after: AlertRecord, *, stood: bool) -> NewEvent | None:
    """``stood``: whether it did, by what was stored."""
    if after.stands is stood:
        return None
    alert = after.alert
    data: dict[str, object] = {
        "id": after.id,
        "kind": alert.kind,
        "about": alert.about,
        "level": alert.level.value,
        "text": (alert.text if after.stands else after.end_text)[:TEXT_MAX],
        "raised_at": iso(after.raised_at),
    }
    if after.ended_at is None:
        return NewEvent(EventType.ALERT_RAISED, after.raised_at, data=data)
    return NewEvent(EventType.ALERT_OVER, after.ended_at, data=data)
