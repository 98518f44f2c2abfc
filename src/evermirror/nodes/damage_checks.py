"""Checks mirrors that could not be served, as if they were damaged, as soon as a client met the damage.

    serving failed ──▶ suspect ──▶ fsck (under the mirror's lock) ──┬─▶ sound: rests
                                                                    ├─▶ mended from what is here
                                                                    └─▶ damaged: ``damaged`` has it replaced

Beside the regular upkeep, and before it: clients wait for these.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from evermirror.core.maintain.facts import Job
from evermirror.core.maintain.suspects import Suspects
from evermirror.edge.git.maintain import JobResult, Maintenance
from evermirror.edge.git.mirror import Mirrors
from evermirror.model.failure import Failure, FailureError
from evermirror.model.repo import RepoKey

log = structlog.get_logger(__name__)

LOOK_S = 1.0  # between two looks at whose turn it is, where nothing wakes us
CHECKS_AT_ONCE = 2  # one may wait long for its mirror's lock


class DamageChecks:
    """``run`` beside other work; ``suspect`` from whoever serves; ``make_way`` before each sync."""

    def __init__(
        self,
        mirrors: Mirrors,
        maintenance: Maintenance,
        damaged: Callable[[RepoKey], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mirrors = mirrors
        self._maintenance = maintenance
        self._damaged = damaged
        self._clock = clock
        self._suspects = Suspects()
        self._news = asyncio.Event()
        self._jobs: dict[RepoKey, asyncio.Task[JobResult]] = {}

    def suspect(self, key: RepoKey, evidence: Failure) -> None:
        """A client could not be served."""
        if self._suspects.suspect(key, self._clock()):
            log.warning("mirror cannot be served: it is checked", repo=key, reason=evidence.message)
            self._news.set()

    def drop(self, key: RepoKey) -> None:
        """The mirror leaves."""
        self._suspects.drop(key)
        if (job := self._jobs.get(key)) is not None:
            job.cancel()

    async def make_way(self, key: RepoKey) -> None:
        """A sync wants the mirror: a check is broken off, or waited for where that was done too often."""
        if (job := self._jobs.get(key)) is not None:
            if self._suspects.may_interrupt(key):
                job.cancel()
            await asyncio.wait({job})

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CHECKS_AT_ONCE):
                group.create_task(self._keep_checking())

    async def _keep_checking(self) -> None:
        while True:
            key = self._suspects.take(self._clock())
            if key is None:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()
            elif self._mirrors.path(key).is_dir():
                await self._check(key)
            else:
                self._suspects.drop(key)

    async def _check(self, key: RepoKey) -> None:
        job = self._jobs[key] = asyncio.create_task(self._fsck(key))
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:  # the node stops, or a loop beside us broke and all are run again
            self._suspects.again(key, self._clock())
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            raise
        finally:
            del self._jobs[key]
        now = self._clock()
        if job.cancelled():
            if self._mirrors.path(key).is_dir():
                self._suspects.again(key, now)
            else:
                self._suspects.drop(key)
        elif (error := job.exception()) is not None:
            if not isinstance(error, FailureError):
                log.error("a check broke", repo=key, exc_info=error)
            else:
                log.warning("mirror not checked", repo=key, reason=error.failure.message)
            self._suspects.checked(key, now, 0.0, damaged=False)
        else:
            self._judge(key, job.result(), now)

    async def _fsck(self, key: RepoKey) -> JobResult:
        async with self._mirrors.locked(key) as lock_fd:
            return await self._maintenance.run(self._mirrors.path(key), Job.FSCK, lock_fd)

    def _judge(self, key: RepoKey, result: JobResult, now: float) -> None:
        self._suspects.checked(key, now, result.duration_s, damaged=result.damaged is not None)
        if result.damaged is not None:
            log.error("mirror damaged: it is replaced", repo=key, reason=result.damaged.message)
            self._damaged(key)
        elif result.failure is not None:
            log.warning("mirror not checked", repo=key, reason=result.failure.message)
        else:
            log.info("mirror checked: it is sound", repo=key, seconds=round(result.duration_s, 3))
