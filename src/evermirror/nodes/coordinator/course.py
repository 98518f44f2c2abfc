"""The course of the whole, noted every few minutes: how fresh everything was, and what workers did between.

        start ─ FIRST_S ─▶ point ── at the next multiple of POINT_S ──▶ point ─ ─ ─▶ now (told, not noted)

What was done before the first point of a process nobody has counted: that point does not tell it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf, nextafter

import structlog

from evermirror.core.watch.steps import POINT_S, in_steps, step_of
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureError
from evermirror.model.whole import CoursePoint, Work
from evermirror.nodes.coordinator.counted import Counted

log = structlog.get_logger(__name__)

FIRST_S = 30.0  # after the start: a chart is there soon
KEEP_S = 8 * 86_400.0  # a week can be asked for
SLEEP_MAX_S = 60.0  # the wall clock may be set: the next time is looked up again this often
HOUR_S = 3600.0
SPANS_MAX = 8  # courses that are remembered for a moment, or waited for


class Course:
    """``run`` beside the rest. ``now`` tells the figures of the moment, ``total`` all that was done."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], Awaitable[CoursePoint]],
        total: Callable[[], Work],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._now = now
        self._total = total
        self._clock = clock
        self._noted: Work | None = None  # as it was in all, at the last point
        self._changing = asyncio.Lock()  # that point, and what is remembered of it, go together
        self._told = Counted[tuple[CoursePoint, ...]](clock, SPANS_MAX)

    async def run(self) -> None:
        """Until cancelled."""
        at = self._clock() + FIRST_S
        while True:
            wait_s = at - self._clock()
            if wait_s > POINT_S:  # the clock was set back
                at = self._clock() + POINT_S
            await asyncio.sleep(max(0.0, min(wait_s, SLEEP_MAX_S)))
            if self._clock() >= at:
                await self._try()
                at = (self._clock() // POINT_S + 1) * POINT_S

    async def _try(self) -> None:
        try:
            await self.note()
        except FailureError as error:
            log.warning("a point of the course was left out", reason=error.failure.message)
        except Exception:  # figures must not stop what they are about; the next point begins anew
            log.exception("a point of the course was refused and left out")
            self._noted = None

    async def note(self) -> None:
        """What the database does not take is in the next point."""
        async with self._changing:
            point, total = await self._latest()
            await self._store.note_course(point, point.at - KEEP_S)
            self._noted = total

    async def points(self, hours: int) -> tuple[CoursePoint, ...]:
        """Of so many hours, oldest first; the last one is now."""
        return await self._told.get(hours, lambda: self._read(hours * HOUR_S))

    async def _read(self, span_s: float) -> tuple[CoursePoint, ...]:
        async with self._changing:
            latest, _ = await self._latest()
            noted = await self._store.course(latest.at - span_s, nextafter(latest.at, inf))
        if noted and noted[-1].at == latest.at:  # it was noted just now, with what was done up to then
            return in_steps(noted, step_of(span_s))
        return (*in_steps(noted, step_of(span_s)), latest)

    async def _latest(self) -> tuple[CoursePoint, Work]:
        point, total = await self._now(), self._total()
        return replace(point, work=None if self._noted is None else total - self._noted), total
