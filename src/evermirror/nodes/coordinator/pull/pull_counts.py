"""How far projects are, and what happened to them in a time: figures that anybody may ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from evermirror.core.watch.progress import overall
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureKind
from evermirror.model.figures import ErrorFilter, KindCount, Period
from evermirror.model.pull import INTERVALS_S, Project
from evermirror.model.repo import Priority, RepoKey
from evermirror.nodes.coordinator.counted import Counted
from evermirror.nodes.pull_service import ErrorStatistics, Progress, TaskPage

HOUR_S = 3600.0
SPANS_MAX = 8  # times that are remembered, or waited for
INTERVALS_FRESH_S = 60.0  # all projects are walked through for them


class PullCounts:
    """Each figure is at most a second old, and a time is one of whole seconds."""

    def __init__(
        self,
        store: Store,
        syncing: Callable[[], Collection[RepoKey]],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._syncing = syncing
        self._clock = clock
        self._progress = Counted[Progress](clock)
        self._periods = Counted[Mapping[Priority, Period]](clock, SPANS_MAX)
        self._errors = Counted[ErrorStatistics](clock, SPANS_MAX)
        self._pages = Counted[TaskPage](clock, SPANS_MAX)
        self._intervals = Counted[Mapping[Priority, float]](clock, 1, INTERVALS_FRESH_S)

    async def progress(self, begin: float | None, end: float | None) -> Progress:
        latest = await self._progress.get("all", self._count)
        if begin is None or end is None:
            return latest
        span = float(math.floor(begin)), float(math.ceil(end))
        counted = await self._periods.get(span, lambda: self._store.periods(*span))
        periods = {p: replace(period, begin=begin, end=end) for p, period in counted.items()}
        return replace(latest, period=_sum(begin, end, periods.values()), periods=periods)

    async def intervals(self, projects: Callable[[], Iterable[Project]]) -> Mapping[Priority, float]:
        """The longest of each class; of one without projects, the default."""
        return await self._intervals.get("all", lambda: _longest(projects()))

    async def errors(self, hours: float) -> ErrorStatistics:
        return await self._errors.get(hours, lambda: self._count_errors(hours))

    async def public_errors(self, which: ErrorFilter) -> TaskPage:
        """Whether each may be shown is looked up one by one: so this is dear as well."""
        return await self._pages.get(which, lambda: errors_of_all(self._store, which, public=True))

    async def _count(self) -> Progress:
        now = self._clock()
        classes = await self._store.pull_progress(now, self._syncing())
        return Progress(now, overall(classes.values()), classes)

    async def _count_errors(self, hours: float) -> ErrorStatistics:
        end = self._clock()
        begin = end - hours * HOUR_S
        kinds: Mapping[FailureKind, KindCount] = await self._store.error_statistics(begin, end)
        return ErrorStatistics(begin, end, sum(kind.count for kind in kinds.values()), kinds)


async def errors_of_all(store: Store, which: ErrorFilter, *, public: bool = False) -> TaskPage:
    items, total = await store.error_page(None, which, public=public)
    records = await store.find_repos([task.repo for task in items], removed=True)
    return TaskPage(items, total, which.page, which.size, records)


async def _longest(projects: Iterable[Project]) -> Mapping[Priority, float]:
    longest: dict[Priority, float] = {}
    for project in projects:
        config = project.config
        if config.enabled:
            longest[config.priority] = max(config.interval_s, longest.get(config.priority, 0.0))
    return INTERVALS_S | longest


def _sum(begin: float, end: float, periods: Collection[Period]) -> Period:
    return Period(
        begin,
        end,
        sum(p.tasks for p in periods),
        sum(p.success for p in periods),
        sum(p.failed for p in periods),
        sum(p.skipped for p in periods),
        sum(p.changes for p in periods),
    )
