"""Reports on days of pull mirroring, made for all who ask: dear to count, and so kept for a minute."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo

from evermirror.core.watch.report import report_of, span_of
from evermirror.edge.store.store import Store
from evermirror.errors import UsageError
from evermirror.model.pull import Load
from evermirror.model.report import DAYS_MAX, Report
from evermirror.nodes.coordinator.counted import Counted
from evermirror.nodes.coordinator.pull.pull_counts import PullCounts
from evermirror.nodes.zone import name_of

FRESH_S = 60.0  # at 100,000 projects a month is half a second's work
REPORTS_MAX = 8  # that are remembered, or waited for


class Reports:
    def __init__(
        self,
        store: Store,
        counts: PullCounts,
        load: Callable[[], Load | None],
        zone: tzinfo,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._counts = counts
        self._load = load
        self._zone = zone
        self._clock = clock
        self._made = Counted[Report](clock, REPORTS_MAX, FRESH_S)

    async def of(self, days: int, *, public: bool) -> Report:
        """Of the last so many days, and today; ``public``: private projects are not named."""
        if not 1 <= days <= DAYS_MAX:
            raise UsageError(f"days must be between 1 and {DAYS_MAX}", hint="For example 7")
        return await self._made.get((days, public), lambda: self._make(days, public=public))

    async def _make(self, days: int, *, public: bool) -> Report:
        span = span_of(self._clock(), days, self._zone)
        facts = await self._store.report_facts(span, public=public)
        progress = await self._counts.progress(None, None)
        return report_of(facts, span, progress.by_priority, self._load(), self._zone, name_of(self._zone))
