"""The figures of the whole: what the store counts and what the workers last told, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from evermirror.core.fleet.worker_texts import shown_hosts, shown_warnings
from evermirror.core.watch.lately import Lately, Rates
from evermirror.edge.store.counts import ClassCounts, OverviewCounts
from evermirror.edge.store.store import Store
from evermirror.model.messages import WorkerStatus
from evermirror.model.repo import RepoStatus
from evermirror.model.whole import ClassFreshness, CoursePoint, Work, worst_lag_of
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.counted import Counted, Recounted
from evermirror.nodes.coordinator.course import Course
from evermirror.nodes.service import Overview, Running

RUNNING_MAX = 100  # running syncs that are shown


class Figures:
    """The overview, counted when it is asked for, and its course, when ``run``. ``statuses`` are what the
    workers last told; ``name_of`` tells a worker's name, where it is known, ``untrusted`` that of one that
    is not trusted."""

    def __init__(
        self,
        store: Store,
        statuses: Mapping[WorkerId, WorkerStatus],
        fresh_bound_s: float,
        clock: Callable[[], float],
        name_of: Callable[[WorkerId], str | None] = lambda worker: None,
        untrusted: Callable[[WorkerId], str | None] = lambda worker: None,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._fresh_bound_s = fresh_bound_s
        self._clock = clock
        self._name_of = name_of
        self._untrusted = untrusted
        self._started_at = clock()
        self._warnings: list[Callable[[], tuple[str, ...]]] = []
        self._counted = Counted[Overview](clock)
        self._counts = Recounted[OverviewCounts](clock, self._count_repos)
        self._lately = Lately()
        self._course = Course(store, self.now, lambda: self._lately.total, clock)

    def add_warnings(self, source: Callable[[], tuple[str, ...]]) -> None:
        """Something else that people should be told."""
        self._warnings.append(source)

    def heard(self, worker: WorkerId, status: WorkerStatus) -> None:
        """A worker told its counters."""
        counters = Work(status.polls_total, status.changes_total, status.received_bytes_total)
        self._lately.heard(worker, counters, self._clock())

    async def run(self) -> None:
        """Notes the course, until cancelled."""
        try:
            await self._course.run()
        finally:
            await self._counts.settled()  # before the store is closed

    async def overview(self) -> Overview:
        return await self._counted.get("all", self._count)

    async def course(self, hours: int) -> tuple[CoursePoint, ...]:
        return await self._course.points(hours)

    async def now(self) -> CoursePoint:
        """As the course tells it; without what was done."""
        overview = await self.overview()
        failing = sum(one.repos for one in overview.failures)
        return CoursePoint.of(overview.now, overview.freshness, failing, None)

    async def _count(self) -> Overview:
        counts = await self._counts.get()  # may be a little older than what workers tell
        now = self._clock()
        return overview_of(
            counts=counts,
            statuses=self._statuses,
            name_of=self._name_of,
            untrusted=self._untrusted,
            rates=self._lately.rates(now),
            warnings=[w for more in self._warnings for w in more()],
            fresh_bound_s=self._fresh_bound_s,
            started_at=self._started_at,
            now=now,
        )

    async def _count_repos(self, now: float) -> OverviewCounts:
        """Of a million repos this takes a while."""
        return await self._store.overview_counts(now - self._fresh_bound_s)


def overview_of(
    *,
    counts: OverviewCounts,
    statuses: Mapping[WorkerId, WorkerStatus],
    name_of: Callable[[WorkerId], str | None],
    untrusted: Callable[[WorkerId], str | None],
    rates: Rates,
    warnings: Iterable[str],
    fresh_bound_s: float,
    started_at: float,
    now: float,
) -> Overview:
    """As it is shown; before the workers' first words their figures are 0."""
    told = tuple(statuses.values())
    freshness = {priority: _freshness(one, now) for priority, one in counts.classes.items()}
    running = (Running(sync, name_of(worker)) for worker, s in statuses.items() for sync in s.running)
    return Overview(
        total_repos=counts.total,
        by_status=counts.by_status,
        by_priority=counts.by_priority,
        fresh_repos=counts.fresh,
        worst_lag_s=worst_lag_of(freshness.values()),
        polls_total=sum(s.polls_total for s in told),
        polls_per_second=rates.polls,
        changes_total=sum(s.changes_total for s in told),
        received_bytes_total=sum(s.received_bytes_total for s in told),
        running=tuple(running)[:RUNNING_MAX],
        queued_syncs=sum(s.queued_syncs for s in told),
        hosts=shown_hosts(statuses, untrusted),
        failures=counts.failures,
        disk_free_bytes=sum(s.disk_free_bytes for s in told),
        disk_total_bytes=sum(s.disk_total_bytes for s in told),
        accepting_clones=any(s.accepting_clones for s in told),
        warnings=(*shown_warnings(statuses, untrusted), *_held(counts), *warnings),
        started_at=started_at,
        now=now,
        fresh_bound_s=fresh_bound_s,
        freshness=freshness,
        never_verified=counts.never_verified,
        changes_per_minute=rates.changes * 60.0,
        received_bytes_per_second=rates.received_bytes,
    )


def _freshness(counts: ClassCounts, now: float) -> ClassFreshness:
    oldest = counts.oldest_verified_at
    return ClassFreshness(counts.live, counts.fresh, None if oldest is None else max(0.0, now - oldest))


def _held(counts: OverviewCounts) -> tuple[str, ...]:
    held = counts.by_status.get(RepoStatus.HELD.value, 0)
    if not held:
        return ()
    repos = "1 repo" if held == 1 else f"{held} repos"
    return (f"a guard holds back what upstream did to {repos}: `evermirror repos --status held`",)
