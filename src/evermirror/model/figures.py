"""Pull mirroring in figures: how far projects are, what happened in a time, which errors are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.failure import FailureKind


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

    @property
    def success_rate(self) -> float:
        return 1.0 - self.failed / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """How far all projects were at a time: one point of the course."""

    at: float
    overall: ClassProgress


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
    count: int
    affected_projects: int
