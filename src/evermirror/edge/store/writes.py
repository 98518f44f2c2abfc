"""What may be written to the database in batches: a small closed set of facts, each about one row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evermirror.core.events.of_reports import events_of, refs_changed
from evermirror.core.fleet import decisions
from evermirror.edge.store.outcomes import Outcome as Outcome
from evermirror.edge.store.outcomes import moved, outcome_of
from evermirror.model.activity import Activity
from evermirror.model.event import NewEvent
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import (
    Declined,
    Deferred,
    Excused,
    Failed,
    HandedBack,
    Kept,
    Progress,
    Refused,
    Released,
    Report,
    Restored,
    Started,
    Synced,
    Verified,
    WorkerStatus,
)
from evermirror.model.pull import Project
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.repo import RepoKey, RepoStatus
from evermirror.model.task import TaskId, Trigger
from evermirror.model.worker import WorkerId


@dataclass(frozen=True, slots=True)
class RepoSynced:
    """The mirror equals upstream as of ``verified_at``; ``changed_at`` is None where no ref moved. What is
    older than what is known changes nothing. ``news`` is told where others were not told of this digest;
    ``copied``: by one who follows, and cannot know what moved: the primary tells it better."""

    key: RepoKey
    digest: RefsDigest
    head_commit: Oid | None
    refs_count: int
    size_bytes: int
    verified_at: float
    changed_at: float | None
    activity: Activity
    news: NewEvent | None = None
    copied: bool = False


@dataclass(frozen=True, slots=True)
class RepoVerified:
    """A poll saw no change. Older times than the known one change nothing."""

    key: RepoKey
    at: float


@dataclass(frozen=True, slots=True)
class RepoFailed:
    """``status`` is None where the failure says nothing about the repo (the host's weather)."""

    key: RepoKey
    failure: Failure
    status: RepoStatus | None
    consecutive_failures: int
    at: float


@dataclass(frozen=True, slots=True)
class RepoExcused:
    """The latest counted failure was the host's weather: it is taken back."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class RepoHeld:
    """A worker has a mirror with this digest; older knowledge than the known changes nothing."""

    key: RepoKey
    digest: RefsDigest
    verified_at: float


@dataclass(frozen=True, slots=True)
class TaskStarted:
    id: TaskId
    at: float


@dataclass(frozen=True, slots=True)
class TaskProgressed:
    id: TaskId
    phase: str
    percent: float | None
    at: float


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task that was created before has ended. One that had ended already stays as it is. A look of the
    schedule that saw no change takes over the one before it, if that was such a look too (folding.py)."""

    id: TaskId
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TaskRecorded:
    """A worker did this on its own; it gets its id here, already ended."""

    repo: RepoKey
    outcome: Outcome
    trigger: Trigger = Trigger.SCHEDULE


@dataclass(frozen=True, slots=True)
class SkipsFolded:
    """Scheduled looks without a change: added to the repo's newest row where that is such a run."""

    repo: RepoKey
    count: int
    at: float  # of the last one


@dataclass(frozen=True, slots=True)
class ProjectSaved:
    """The state of a project and its targets. What people set stays, and so does everything where they
    changed it meanwhile: then the row's ``updated_at`` is newer."""

    project: Project


@dataclass(frozen=True, slots=True)
class TokenUsed:
    id: int
    at: float


@dataclass(frozen=True, slots=True)
class WorkerBound:
    """Who shows this token is this worker from now on. A token has one worker, and a worker one token."""

    worker: WorkerId
    token_id: int


@dataclass(frozen=True, slots=True)
class EventWritten:
    """Others are told of something that this transaction makes so. ``reported``: by a worker, which may not
    have heard yet that the repo left the catalog: then nobody is told."""

    event: NewEvent
    reported: bool = False


RowWrite = (
    RepoSynced
    | RepoVerified
    | RepoFailed
    | RepoExcused
    | RepoHeld
    | TaskStarted
    | TaskProgressed
    | TaskEnded
    | TaskRecorded
    | SkipsFolded
    | ProjectSaved
    | TokenUsed
    | EventWritten
)
Write = RowWrite | WorkerBound


@dataclass(frozen=True, slots=True)
class Decided:
    """What the fleet's machine decided at one event, and what else belongs to it: all of it or nothing."""

    fleet: tuple[decisions.Write, ...]
    others: tuple[Write, ...] = ()


Entry = Write | Decided


def writes_of(
    report: Report, *, worker: str = "", teller: str | None = None, follows: bool = False
) -> tuple[Write, ...]:
    """What the report of the ``worker`` of this name leaves in the database. ``teller``: the same name, where
    others are to be told of it; None: nobody is. ``follows``: another is the repo's primary, and tells of
    all but refs that others were not told of yet."""
    if teller is None:
        return _writes(report, worker)
    writes: tuple[Write, ...] = _writes(report, worker)
    if isinstance(report, Synced):
        news, copied = refs_changed(report, teller), follows and report.first
        writes = tuple(
            replace(w, news=news, copied=copied) if isinstance(w, RepoSynced) else w for w in writes
        )
    return (
        writes if follows else (*writes, *(EventWritten(e, reported=True) for e in events_of(report, teller)))
    )


def _writes(report: Report, worker: str) -> tuple[Write, ...]:
    match report:
        case Started():
            return tuple(TaskStarted(i, report.at) for i in report.task_ids)
        case Progress():
            return tuple(TaskProgressed(i, report.phase, report.percent, report.at) for i in report.task_ids)
        case Synced():
            return _synced(report, worker)
        case Failed():
            return _failed(report, worker)
        case Refused() | Restored():
            outcome = outcome_of(report, worker)
            return tuple(TaskEnded(i, outcome) for i in report.task_ids)
        case Excused():
            return tuple(RepoExcused(key) for key in report.keys)
        case Verified():
            return tuple(RepoVerified(key, at) for key, at in report.items)
        case Kept() | Declined():
            return tuple(
                RepoHeld(h.key, h.digest, h.verified_at)
                for h in report.items
                if h.digest is not None and h.verified_at is not None
            )
        case Released() | HandedBack() | Deferred() | WorkerStatus():
            return ()  # placement, which the fleet's machine decides, and the moment's figures


# What a person is told of a repo after a failure that is its own.
_STATUS_AFTER = {
    FailureKind.NOT_FOUND: RepoStatus.GONE,
    FailureKind.AUTH_FAILED: RepoStatus.AUTH,
    FailureKind.CONFLICT: RepoStatus.HELD,
}


def _synced(report: Synced, worker: str) -> tuple[Write, ...]:
    repo = RepoSynced(
        key=report.key,
        digest=report.digest,
        head_commit=report.head_commit,
        refs_count=report.refs_count,
        size_bytes=report.size_bytes,
        verified_at=report.verified_at,
        changed_at=report.ended_at if moved(report) else None,
        activity=report.activity,
    )
    if not report.task_ids and not moved(report):
        return (repo,)
    return (repo, *_ends(report.key, report.task_ids, outcome_of(report, worker)))


def _failed(report: Failed, worker: str) -> tuple[Write, ...]:
    held_back = report.failure.kind is FailureKind.CONFLICT  # no fault of the repo, but people must know
    told = report.counted or held_back
    status = _STATUS_AFTER.get(report.failure.kind, RepoStatus.FAILING) if told else None
    repo = RepoFailed(report.key, report.failure, status, report.consecutive_failures, report.ended_at)
    if not report.task_ids and not report.counted:
        return (repo,)  # a host's bad hour over thousands of repos would be as many rows that say the same
    return (repo, *_ends(report.key, report.task_ids, outcome_of(report, worker)))


def _ends(key: RepoKey, ids: tuple[TaskId, ...], outcome: Outcome) -> tuple[Write, ...]:
    if ids:
        return tuple(TaskEnded(i, outcome) for i in ids)
    return (TaskRecorded(key, outcome),)
