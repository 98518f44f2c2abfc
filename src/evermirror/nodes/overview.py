"""The figures of the whole: what the store counts and what the worker last told, put together."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.edge.store.repos import OverviewCounts, Staleness
from evermirror.model.messages import WorkerStatus
from evermirror.model.repo import RepoStatus
from evermirror.nodes.service import Overview


def overview_of(
    *,
    counts: OverviewCounts,
    fresh_repos: int,
    stale: Staleness,
    status: WorkerStatus | None,
    warnings: Iterable[str],
    started_at: float,
    now: float,
) -> Overview:
    """As it is shown; before the worker's first word its figures are 0."""
    oldest = stale.oldest_verified_at
    return Overview(
        total_repos=counts.total,
        by_status=counts.by_status,
        by_priority=counts.by_priority,
        fresh_repos=fresh_repos,
        worst_lag_s=None if oldest is None else max(0.0, now - oldest),
        polls_total=status.polls_total if status else 0,
        polls_per_second=status.polls_per_second if status else 0.0,
        changes_total=status.changes_total if status else 0,
        received_bytes_total=status.received_bytes_total if status else 0,
        running=status.running if status else (),
        queued_syncs=status.queued_syncs if status else 0,
        hosts=status.hosts if status else (),
        failures_by_kind=counts.failures_by_kind,
        disk_free_bytes=status.disk_free_bytes if status else 0,
        disk_total_bytes=status.disk_total_bytes if status else 0,
        accepting_clones=status.accepting_clones if status else False,
        warnings=(*(status.warnings if status else ()), *_held(counts), *warnings),
        started_at=started_at,
        now=now,
    )


def _held(counts: OverviewCounts) -> tuple[str, ...]:
    held = counts.by_status.get(RepoStatus.HELD.value, 0)
    if not held:
        return ()
    repos = "1 repo" if held == 1 else f"{held} repos"
    return (f"a guard holds back what upstream did to {repos}: `evermirror repos --status held`",)
