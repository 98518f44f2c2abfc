"""Pull mirroring in figures: how far projects are, what happened in a time, which errors are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evermirror.model.failure import FailureKind
from evermirror.model.pull import Load
from evermirror.model.repo import Priority, RepoKey

PROJECTS_NAMED = 10  # of those that one kind of error affects


@dataclass(frozen=True, slots=True)
class ClassProgress:
    """Projects of one priority, or all: each is in exactly one of synced, syncing, pending, failed or
    disabled."""

    total: int
    synced: int
    syncing: int
    pending: int
    failed: int
    disabled: int
    average_delay_s: float | None  # over those that were ever synced and are not disabled
    measured: int = 0  # so many the average is over
    worst_delay_s: float | None = None  # of the same
    equal: int = 0  # projects of which all was equal at the last look, here and at every target
    compared: int = 0  # so many that was looked at of; 0: it was not

    @property
    def success_rate(self) -> float:
        return 1.0 - self.failed / self.total if self.total else 1.0

    @property
    def equal_share(self) -> float | None:
        """None: nothing is known of it."""
        return self.equal / self.compared if self.compared else None


@dataclass(frozen=True, slots=True)
class Pressure:
    """What sources bear: how it stands at a time, and what happened since the time before."""

    limit: int  # pulls that may run
    running: int
    queued: int  # due, and waiting for room
    load: Load | None  # None: nothing is known of it
    looks: int = 0  # tasks that ended, whatever came of them
    source_s: float = 0.0  # that sources were asked and read from
    received_bytes: int = 0

    def after(self, before: Pressure | None) -> Pressure:
        """With what happened in the time before, which was not noted."""
        if before is None:
            return self
        return replace(
            self,
            looks=self.looks + before.looks,
            source_s=self.source_s + before.source_s,
            received_bytes=self.received_bytes + before.received_bytes,
        )


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """How far all projects were at a time: one point of the course. Notes of earlier versions have neither
    classes nor pressure."""

    at: float
    overall: ClassProgress
    classes: Mapping[Priority, ClassProgress] = field(default_factory=dict)
    pressure: Pressure | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """Tasks that ended between two times."""

    begin: float
    end: float
    tasks: int
    success: int
    failed: int
    skipped: int
    changes: int  # commits


@dataclass(frozen=True, slots=True)
class ErrorFilter:
    """Which errors a list shows; times are UTC seconds."""

    kind: FailureKind | None = None
    begin: float | None = None
    end: float | None = None
    page: int = 1
    size: int = 10


@dataclass(frozen=True, slots=True)
class KindCount:
    """Errors of one kind. ``projects``: at most ``PROJECTS_NAMED`` of those affected, most errors first."""

    count: int
    affected_projects: int
    projects: tuple[RepoKey, ...] = ()


@dataclass(frozen=True, slots=True)
class PushDay:
    """Pushes of a day, by its number since 1970 (UTC), and the commits that they brought."""

    day: int
    pushes: int
    commits: int


@dataclass(frozen=True, slots=True)
class PushSeen:
    """A change of upstream as it was found."""

    at: float
    commits: int
    refs: int  # that moved


@dataclass(frozen=True, slots=True)
class PushHistory:
    """Only days on which there were any; the newest pushes first. ``since``: all that was before may have
    been forgotten."""

    days: tuple[PushDay, ...]
    recent: tuple[PushSeen, ...]
    since: float | None
