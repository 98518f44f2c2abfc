"""Upkeep of what an aggregator has collected: mirrors that fetches added to are repacked between fetches.

Only mirrors that changed since the start are known here: one that nothing is added to needs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from evermirror.core.maintain.plan import chance_of
from evermirror.core.maintain.queue import UpkeepQueue
from evermirror.edge.git.maintain import Maintenance, Tended
from evermirror.edge.git.mirror import Mirrors
from evermirror.model.failure import FailureError
from evermirror.model.repo import RepoKey
from evermirror.nodes.damage_checks import DamageChecks

log = structlog.get_logger(__name__)

SETTLE_S = 60.0  # after a fetch: others may follow at once
IDLE_S = 1.0  # between two looks at whose turn it is
AFTER_TROUBLE_S = 3600.0
KNOWN_MAX = 200_000  # mirrors in line; the others come with their next change


class CollectedCare:
    """``run`` beside the collecting; ``fetched`` and ``make_way`` around each fetch."""

    def __init__(
        self,
        mirrors: Mirrors,
        maintenance: Maintenance,
        *,
        slots: int,
        retention_s: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._mirrors = mirrors
        self._maintenance = maintenance
        self._slots = slots
        self._retention_s = retention_s
        self._clock = clock
        self._queue = UpkeepQueue()
        self._jobs: dict[RepoKey, asyncio.Task[Tended]] = {}
        self._changed: set[RepoKey] = set()  # while they were tended
        self.on_damage: Callable[[RepoKey], None] = lambda key: None
        self.checks = DamageChecks(mirrors, maintenance, lambda key: self.on_damage(key))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._slots):
                group.create_task(self._keep_tending())
            group.create_task(self.checks.run())

    def fetched(self, key: RepoKey) -> None:
        """Something new is in the mirror."""
        if key in self._jobs:
            self._changed.add(key)
        elif key in self._queue:
            self._queue.changed(key, self._clock())
        elif len(self._queue) < KNOWN_MAX:
            self._queue.look_at(key, self._clock() + SETTLE_S)

    def gone(self, key: RepoKey) -> None:
        """The mirror leaves."""
        self._queue.drop(key)
        self.checks.drop(key)
        if (job := self._jobs.get(key)) is not None:
            job.cancel()

    async def make_way(self, key: RepoKey) -> None:
        """A fetch wants the mirror: upkeep is broken off, or waited for where that was done too often."""
        await self.checks.make_way(key)
        job = self._jobs.get(key)
        if job is not None:
            if self._queue.may_interrupt(key):
                job.cancel()
            await asyncio.wait({job})

    async def _keep_tending(self) -> None:
        while True:
            key = self._queue.take(self._clock())
            if key is None:
                await asyncio.sleep(IDLE_S)
            elif self._mirrors.path(key).is_dir():
                await self._tend(key)

    async def _tend(self, key: RepoKey) -> None:
        job = self._jobs[key] = asyncio.create_task(self._locked_tend(key))
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:  # the aggregator stops
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            raise
        finally:
            del self._jobs[key]
        if job.cancelled():
            if self._mirrors.path(key).is_dir():
                self._queue.interrupted(key, self._clock())
        elif (error := job.exception()) is not None:
            log.warning("mirror not tended", repo=key, reason=str(error))
            self._queue.look_at(key, self._clock() + AFTER_TROUBLE_S)
        else:
            self._told(key, job.result())
        if key in self._changed:
            self._changed.discard(key)
            self._queue.look_at(key, self._clock() + SETTLE_S)

    async def _locked_tend(self, key: RepoKey) -> Tended:
        try:
            await self._mirrors.expire_kept(key, self._clock(), self._retention_s)
        except FailureError as error:
            log.warning("old kept tips not forgotten", repo=key, reason=error.failure.message)
        async with self._mirrors.locked(key) as lock_fd:
            return await self._maintenance.tend(self._mirrors.path(key), lock_fd, chance_of(key))

    def _told(self, key: RepoKey, tended: Tended) -> None:
        self._queue.put(key, tended.due)
        result = tended.result
        if result is None:
            return
        if result.damaged is not None:  # the mirror is marked: its next fetch replaces it
            log.error("mirror damaged", repo=key, reason=result.damaged.message, alert=True)
            self.on_damage(key)
        elif result.failure is not None:
            log.warning("upkeep failed", repo=key, job=result.job.value, reason=result.failure.message)
        else:
            log.info("tended", repo=key, job=result.job.value, seconds=round(result.duration_s, 3))
