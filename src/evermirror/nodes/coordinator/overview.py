"""The figures of the whole: what the store counts and what the workers last told, put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from evermirror.edge.store.counts import OverviewCounts, Staleness
from evermirror.edge.store.store import Store
from evermirror.model.messages import WorkerStatus
from evermirror.model.repo import RepoStatus
from evermirror.nodes.coordinator.counted import Counted
from evermirror.nodes.service import Overview

RUNNING_MAX = 100  # running syncs that are shown
HOSTS_MAX = 20


class Figures:
    """The overview, counted when it is asked for. ``statuses`` are what the workers last told."""

    def __init__(
        self,
        store: Store,
        statuses: Collection[WorkerStatus],
        fresh_bound_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._fresh_bound_s = fresh_bound_s
        self._clock = clock
        self._started_at = clock()
        self._warnings: list[Callable[[], tuple[str, ...]]] = []
        self._counted = Counted[Overview](clock)

    def add_warnings(self, source: Callable[[], tuple[str, ...]]) -> None:
        """Something else that people should be told."""
        self._warnings.append(source)

    async def overview(self) -> Overview:
        return await self._counted.get("all", self._count)

    async def _count(self) -> Overview:
        now = self._clock()
        return overview_of(
            counts=await self._store.overview_counts(),
            stale=await self._store.worst_verified(),
            fresh_repos=await self._store.count_fresh(now, self._fresh_bound_s),
            statuses=self._statuses,
            warnings=[w for more in self._warnings for w in more()],
            started_at=self._started_at,
            now=now,
        )


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
