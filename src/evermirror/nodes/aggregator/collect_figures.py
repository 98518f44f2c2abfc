"""How an aggregator is doing: for people, for Prometheus, and for its coordinator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from evermirror.core.collect.events import End
from evermirror.edge.git.folder import DiskUsage
from evermirror.edge.store.collected import CollectedFigures
from evermirror.model.messages import RunningSync, WorkerStatus
from evermirror.model.repo import RepoKey

TOLD_MAX = 100  # fetches under way, and warnings


@dataclass(frozen=True, slots=True)
class CollectingFigures:
    """Now, and since the start."""

    repos: CollectedFigures
    fetching: Mapping[RepoKey, float]  # since when, UTC seconds
    waiting: int  # repos that clients wait for
    attempts: Mapping[End, int]
    changes: int
    accused: int
    disk: DiskUsage
    accepting: bool  # something new may be fetched


def status_of(figures: CollectingFigures, warnings: Collection[str], now: float) -> WorkerStatus:
    """For the coordinator; an aggregator polls nothing."""
    running = list(figures.fetching.items())[:TOLD_MAX]
    return WorkerStatus(
        repos=figures.repos.here,
        polls_total=0,
        polls_per_second=0.0,
        changes_total=figures.changes,
        received_bytes_total=0,
        running=tuple(RunningSync(key, "fetching", None, 0, since) for key, since in running),
        queued_syncs=0,
        hosts=(),
        disk_free_bytes=figures.disk.free_bytes,
        disk_total_bytes=figures.disk.total_bytes,
        accepting_clones=figures.accepting,
        warnings=tuple(warnings)[:TOLD_MAX],
        at=now,
    )
