"""The figures of the whole: what the store counts and what the workers last told, put together."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from evermirror.edge.store.counts import OverviewCounts, Staleness
from evermirror.model.messages import WorkerStatus
from evermirror.model.repo import RepoStatus
from evermirror.nodes.service import Overview

RUNNING_MAX = 100  # running syncs that are shown
HOSTS_MAX = 20


def overview_of(
    *,
    counts: OverviewCounts,
    fresh_repos: int,
    stale: Staleness,
    statuses: Collection[WorkerStatus],
    warnings: Iterable[str],
    started_at: float,
    now: float,
) -> Overview:
    """As it is shown; before the workers' first words their figures are 0."""
    oldest = stale.oldest_verified_at
    return Overview(
        total_repos=counts.total,
        by_status=counts.by_status,
        by_priority=counts.by_priority,
        fresh_repos=fresh_repos,
        worst_lag_s=None if oldest is None else max(0.0, now - oldest),
        polls_total=sum(s.polls_total for s in statuses),
        polls_per_second=sum(s.polls_per_second for s in statuses),
        changes_total=sum(s.changes_total for s in statuses),
        received_bytes_total=sum(s.received_bytes_total for s in statuses),
        running=tuple(r for s in statuses for r in s.running)[:RUNNING_MAX],
        queued_syncs=sum(s.queued_syncs for s in statuses),
        hosts=tuple(h for s in statuses for h in s.hosts)[:HOSTS_MAX],
        failures_by_kind=counts.failures_by_kind,
        disk_free_bytes=sum(s.disk_free_bytes for s in statuses),
        disk_total_bytes=sum(s.disk_total_bytes for s in statuses),
        accepting_clones=any(s.accepting_clones for s in statuses),
        warnings=(*dict.fromkeys(w for s in statuses for w in s.warnings), *_held(counts), *warnings),
        started_at=started_at,
        now=now,
    )


def _held(counts: OverviewCounts) -> tuple[str, ...]:
    held = counts.by_status.get(RepoStatus.HELD.value, 0)
    if not held:
        return ()
    repos = "1 repo" if held == 1 else f"{held} repos"
    return (f"a guard holds back what upstream did to {repos}: `evermirror repos --status held`",)
