"""How far pull mirroring is: every project is in exactly one state, and the states are counted by class.

A project is a repo with a pull configuration or targets; other repos do not count here. The first line that
holds decides:

| state    | a project                                                                   |
|----------|-----------------------------------------------------------------------------|
| syncing  | its task is running                                                         |
| disabled | not enabled, and nothing says why: a person                                 |
| failed   | paused by itself, or its last task failed                                   |
| pending  | a task of it waits, or none ended well yet, or it is overdue                |
| synced   | the rest                                                                    |

*Overdue*: a whole interval has passed since it was due, ``now > next_sync_at + interval``. A project that
waits for a slot, or for the peak to end, counts as synced until then, and as pending from then on.

*Delay*: ``now - last_sync_at``, and never below 0; the average is over all that were ever synced, without the
disabled ones, whose delay says nothing.

The store counts the same in SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from evermirror.model.figures import ClassProgress
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskStatus


class SyncState(Enum):
    """What a project is counted as."""

    SYNCED = "synced"
    SYNCING = "syncing"
    PENDING = "pending"
    FAILED = "failed"
    DISABLED = "disabled"


def overdue_at(project: Project) -> float:
    return project.next_sync_at + project.config.interval_s


def overdue(project: Project, now: float) -> bool:
    return now > overdue_at(project)


def state_of(project: Project, now: float, syncing: Collection[RepoKey] = ()) -> SyncState:
    """``syncing`` are those whose task is running."""
    if project.key in syncing:
        return SyncState.SYNCING
    if not project.config.enabled and not project.paused:
        return SyncState.DISABLED
    if is_failed(project):
        return SyncState.FAILED
    if project.task is not None or project.last_status is None or overdue(project, now):
        return SyncState.PENDING
    return SyncState.SYNCED


def is_failed(project: Project) -> bool:
    """Paused by itself, or its last task failed; syncing and disabled ones go before."""
    return bool(project.paused) or (project.config.enabled and project.last_status is TaskStatus.FAILED)


def overall(classes: Iterable[ClassProgress]) -> ClassProgress:
    """All classes as one."""
    told = list(classes)
    measured = sum(c.measured for c in told)
    delay_s = sum(c.average_delay_s * c.measured for c in told if c.average_delay_s is not None)
    return ClassProgress(
        total=sum(c.total for c in told),
        synced=sum(c.synced for c in told),
        syncing=sum(c.syncing for c in told),
        pending=sum(c.pending for c in told),
        failed=sum(c.failed for c in told),
        disabled=sum(c.disabled for c in told),
        average_delay_s=delay_s / measured if measured else None,
        measured=measured,
        worst_delay_s=max((c.worst_delay_s for c in told if c.worst_delay_s is not None), default=None),
        equal=sum(c.equal for c in told),
        compared=sum(c.compared for c in told),
    )
