"""What happened, for others to follow: numbered, stored in the transaction that made it so, kept for a while.

docs/events.md has the schema of each type. ``EVENTS_VERSION`` changes when a field is removed or gets another
meaning; new types and new fields may come at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from evermirror.model.repo import RepoKey

EVENTS_VERSION = 1

EventId = NewType("EventId", int)  # grows; a number that is not there was never given


class EventType(Enum):
    REFS_CHANGED = "refs.changed"
    SYNC_FAILED = "sync.failed"  # the first failure in a row, then at each doubling
    SYNC_RECOVERED = "sync.recovered"
    SYNC_EXCUSED = "sync.excused"  # the failure was its host's, and is taken back
    TASK_ENDED = "task.ended"  # one that somebody asked for
    PUSH_ENDED = "push.ended"  # to one target, where something was put or went wrong
    PULL_SYNC_SUCCESS = "pull_sync_success"  # a project was pulled, and something had changed
    PULL_SYNC_FAILED = "pull_sync_failed"
    REPO_ADDED = "repo.added"
    REPO_CHANGED = "repo.changed"  # its configuration
    REPO_REMOVED = "repo.removed"
    REPO_GONE = "repo.gone"  # upstream says that it is not there
    REPO_HELD = "repo.held"  # a guard holds a change back
    REPO_RENAMED = "repo.renamed"  # a hook says so; nothing is done by itself
    CATALOG_CHANGED = "catalog.changed"  # very many at once, as figures
    HOOKS_RELIABLE = "hooks.reliable"
    HOOKS_SILENT = "hooks.silent"
    WORKER_JOINED = "worker.joined"
    WORKER_UP = "worker.up"
    WORKER_SUSPECT = "worker.suspect"
    WORKER_DOWN = "worker.down"
    WORKER_CHANGED = "worker.changed"  # drained, resumed, quarantined, retired
    AGGREGATOR_JOINED = "aggregator.joined"
    AGGREGATOR_UP = "aggregator.up"  # after it was down
    AGGREGATOR_DOWN = "aggregator.down"  # nobody can clone from it
    AGGREGATOR_CHANGED = "aggregator.changed"  # retired
    ALERT_RAISED = "alert.raised"
    ALERT_OVER = "alert.over"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """As it is put down. ``data`` holds plain JSON values, bounded by whoever makes it."""

    type: EventType
    at: float
    repo: RepoKey | None = None
    worker: str | None = None  # its name
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """As it is read. ``public``: about a repo that everybody may know of, and might then."""

    id: EventId
    type: str  # an EventType's value; one of a later version is passed on as it is
    at: float
    repo: RepoKey | None
    worker: str | None
    data: Mapping[str, object]
    public: bool
    size: int = field(default=0, compare=False)  # characters of ``data``
