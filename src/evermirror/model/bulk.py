"""One action on many repos at once: what was ordered, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

from evermirror.model.failure import FailureKind
from evermirror.model.repo import Priority, RepoKey, RepoStatus

BulkId = NewType("BulkId", int)


class BulkAction(Enum):
    """What is done to each repo."""

    SYNC = "sync"  # looked at now
    RETRY = "retry"  # the same, of those that fail
    RESET = "reset"  # failures forgotten, a project that paused itself is enabled; due at once
    PAUSE = "pause"  # not mirrored until it is resumed
    RESUME = "resume"
    PRIORITY = "priority"


class BulkStatus(Enum):
    RUNNING = "running"  # or in line
    DONE = "done"
    STOPPED = "stopped"  # by a person
    FAILED = "failed"  # more match than were confirmed; or by a mistake of ours, or of another version


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """All repos of the catalog that are so; what is not said does not matter."""

    search: str = ""
    status: RepoStatus | None = None
    host: str = ""
    priority: Priority | None = None
    worker: str = ""
    failure: FailureKind | None = None


@dataclass(frozen=True, slots=True)
class BulkWish:
    """About ``keys``, or all that ``filter`` finds: exactly one of them. ``priority``: the new one."""

    action: BulkAction
    keys: tuple[str, ...] = ()
    filter: BulkFilter | None = None
    priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class BulkOrder:
    """``done`` and ``failed`` are repos; ``unchanged`` of the done needed nothing. ``cursor`` is the last key
    of those; ``working`` are the next ones, which a crash may have cut short. Times are UTC seconds."""

    id: BulkId
    wish: BulkWish
    actor: str
    matched: int
    created_at: float
    updated_at: float
    status: BulkStatus = BulkStatus.RUNNING
    done: int = 0
    unchanged: int = 0
    failed: int = 0
    looks: int = 0  # tasks that it made
    first_error: str = ""
    cursor: RepoKey | None = None
    working: tuple[RepoKey, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.status is not BulkStatus.RUNNING
