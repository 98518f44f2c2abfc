"""What a worker does for its mirrors besides following upstream: upkeep, restoring, forgetting old kept tips.

    UpkeepQueue ──take──▶ tend (under the mirror's lock) ──▶ due again later
                            ├── a sync wants the mirror ──▶ broken off, later again
                            └── fsck found damage ────────▶ the next round replaces the mirror

Rules
- Upkeep begins only while no sync waits for a slot.
- Whatever one mirror brings about stays with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from evermirror.core.maintain.plan import chance_of
from evermirror.core.maintain.queue import UpkeepQueue
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.edge.git.maintain import Maintenance, Tended
from evermirror.edge.git.mirror import Mirrors
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import Refused, Restored, RestoreTip, Started
from evermirror.model.repo import RepoKey
from evermirror.nodes.damage_checks import DamageChecks
from evermirror.nodes.service import Upkeep
from evermirror.nodes.worker.ports import WorkerPort
from evermirror.nodes.worker.shelf import Shelf

log = structlog.get_logger(__name__)

DAY_S = 86_400.0
SPREAD_S = 3600.0  # mirrors that were here at the start are looked at over this long
SETTLE_S = 60.0  # a fresh mirror's upkeep waits until the rush it came in is over
IDLE_S = 1.0  # between two looks at whether syncs wait
NAP_MAX_S = 60.0
UNASSIGNED_S = 2.0  # between two looks at whether a mirror that is here is ours
AFTER_TROUBLE_S = 3600.0  # a mirror that could not even be looked at
RESTORES_MAX = 100  # under way at once; each waits for its mirror's lock


@dataclass(frozen=True, slots=True)
class CareSettings:
    """``slots`` mirrors are tended at a time, 0: none; kept tips are forgotten after ``retention_s``."""

    slots: int = 1
    retention_s: float | None = None  # None: never


class Caretaker:
    """``run`` beside the worker's other loops; ``restore`` at any time."""

    def __init__(
        self,
        settings: CareSettings,
        *,
        port: WorkerPort,
        scheduler: Scheduler,
        mirrors: Mirrors,
        maintenance: Maintenance,
        shelf: Shelf,
        clock: Callable[[], float],
        damaged: Callable[[RepoKey], None],
    ) -> None:
        self._settings = settings
        self._port = port
        self._scheduler = scheduler
        self._mirrors = mirrors
        self._maintenance = maintenance
        self._shelf = shelf
        self._clock = clock
        self._damaged = damaged  # its mirror must be replaced
        self.checks = DamageChecks(mirrors, maintenance, damaged)
        self._queue = UpkeepQueue()
        self._jobs: dict[RepoKey, asyncio.Task[Tended]] = {}
        self._restores: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()  # the queue's first may be another now

    # Life

    async def run(self) -> None:
        """Works until cancelled. Called again, it goes on with the queue, and puts those in line again whose
        upkeep was cut short."""
        now = self._clock()
        for key in self._shelf.here:
            if key not in self._queue:
                self._queue.look_at(key, now + SPREAD_S * chance_of(key))
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.slots):
                group.create_task(self._keep_tending())
            group.create_task(self.checks.run())
            if self._settings.retention_s is not None:
                group.create_task(self._keep_forgetting())

    async def stop(self, grace_s: float) -> None:
        """Gives restores a moment; what is not done is asked for again after the next start."""
        if self._restores:
            await asyncio.wait(self._restores, timeout=grace_s)
        for job in list(self._restores):
            job.cancel()
        await asyncio.gather(*self._restores, return_exceptions=True)

    # What syncs tell

    def synced(self, key: RepoKey, *, moved: bool) -> None:
        """A sync ended well."""
        if key not in self._queue and key not in self._jobs:
            self._queue.look_at(key, self._clock() + SETTLE_S)
        elif moved:
            self._queue.changed(key, self._clock())
        self._news.set()

    def released(self, key: RepoKey) -> None:
        """No longer ours; what is under way is broken off."""
        self._queue.drop(key)
        self.checks.drop(key)
        if (job := self._jobs.get(key)) is not None:
            job.cancel()

    async def make_way(self, key: RepoKey) -> None:
        """A sync wants the mirror: upkeep is broken off, or waited for where that was done too often."""
        await self.checks.make_way(key)
        job = self._jobs.get(key)
        if job is not None:
            if self._queue.may_interrupt(key):
                job.cancel()
            await asyncio.wait({job})

    # Upkeep

    async def _keep_tending(self) -> None:
        while True:
            now = self._clock()
            if self._scheduler.syncs_waiting:
                await asyncio.sleep(IDLE_S)
            elif (key := self._queue.take(now)) is None:
                await self._nap(min(max(self._queue.next_at() - now, IDLE_S), NAP_MAX_S))
            elif key in self._shelf.repos and key in self._shelf.here:
                await self._tend(key)
            elif key in self._shelf.here:  # not assigned yet: nobody could mend what were found
                self._queue.look_at(key, now + UNASSIGNED_S)

    async def _nap(self, pause_s: float) -> None:
        """So long, or until a sync brought something."""
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._news.wait()

    async def _tend(self, key: RepoKey) -> None:
        job = self._jobs[key] = asyncio.create_task(self._locked_tend(key))
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:  # the worker stops
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            raise
        finally:
            del self._jobs[key]
        if key not in self._shelf.here:
            return
        if job.cancelled():
            self._queue.interrupted(key, self._clock())
            return
        if (error := job.exception()) is not None:
            if not isinstance(error, FailureError):
                log.error("upkeep broke", repo=key, exc_info=error)
            else:
                log.warning("mirror not tended", repo=key, reason=error.failure.message)
            self._queue.look_at(key, self._clock() + AFTER_TROUBLE_S)
            return
        tended = job.result()
        self._queue.put(key, tended.due)
        self._tell(key, tended)

    async def _locked_tend(self, key: RepoKey) -> Tended:
        async with self._mirrors.locked(key) as lock_fd:
            return await self._maintenance.tend(self._mirrors.path(key), lock_fd, chance_of(key))

    def _tell(self, key: RepoKey, tended: Tended) -> None:
        result = tended.result
        if result is None:
            return
        if result.damaged is not None:
            log.error("mirror damaged: it is replaced", repo=key, reason=result.damaged.message)
            self._damaged(key)
        elif result.failure is not None:
            log.warning("upkeep failed", repo=key, job=result.job.value, reason=result.failure.message)
        else:
            log.info("tended", repo=key, job=result.job.value, seconds=round(result.duration_s, 3))

    async def upkeep(self, key: RepoKey) -> Upkeep | None:
        """The figures now; None where there is no mirror."""
        if key not in self._shelf.here:
            return None
        try:
            facts = await self._maintenance.facts(self._mirrors.path(key))
        except FailureError:  # it is being replaced or removed
            return None
        return Upkeep(
            packs=facts.pack_count,
            loose_objects=facts.loose_objects,
            loose_refs=facts.loose_refs,
            size_bytes=facts.size_bytes,
            cruft_bytes=facts.cruft_bytes,
            has_bitmap=facts.has_bitmap,
            repacked_at=facts.last_repack_at,
            checked_at=facts.last_fsck_at,
        )

    # Kept tips

    async def _keep_forgetting(self) -> None:
        """Each mirror once a day, spread over the day."""
        while True:
            keys = sorted(self._shelf.here)
            for key in keys:
                await self._forget_old(key)
                await asyncio.sleep(DAY_S / len(keys))
            if not keys:
                await asyncio.sleep(NAP_MAX_S)

    async def _forget_old(self, key: RepoKey) -> None:
        if key not in self._shelf.here:
            return
        try:
            forgotten = await self._mirrors.expire_kept(key, self._clock(), self._settings.retention_s)
        except FailureError as error:
            log.warning("old kept tips not forgotten", repo=key, reason=error.failure.message)
            return
        if forgotten:
            log.info("old kept tips forgotten", repo=key, tips=forgotten)

    async def restore(self, command: RestoreTip) -> None:
        """Begins it; the report tells how it ended."""
        if command.key not in self._shelf.here:
            await self._refuse(
                command, Failure(FailureKind.NOT_FOUND, "there is no mirror of this repo here")
            )
        elif len(self._restores) >= RESTORES_MAX:
            failure = Failure(FailureKind.CONFLICT, "too many restores are under way", hint="Ask again later")
            await self._refuse(command, failure)
        else:
            task = asyncio.create_task(self._restore(command))
            self._restores.add(task)
            task.add_done_callback(self._restores.discard)

    async def _restore(self, command: RestoreTip) -> None:
        key, started_at = command.key, self._clock()
        await self._port.report(Started(key, (command.task_id,), started_at))
        await self.make_way(key)
        try:
            ref = await self._mirrors.restore(key, command.kept, command.as_name)
            oid = next(tip.old for tip in await self._mirrors.history(key) if tip.name == command.kept)
        except FailureError as error:
            await self._refuse(command, error.failure)
        except Exception as error:
            log.exception("a restore broke", repo=key)
            await self._refuse(command, Failure(FailureKind.UNKNOWN, f"internal error: {error!r}"))
        else:
            log.info("restored", repo=key, ref=ref, oid=oid)
            await self._port.report(Restored(key, (command.task_id,), ref, oid, started_at, self._clock()))

    async def _refuse(self, command: RestoreTip, failure: Failure) -> None:
        now = self._clock()
        await self._port.report(Refused(command.key, (command.task_id,), failure, now, now))
