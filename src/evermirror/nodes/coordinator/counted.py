"""Figures that are dear to count, and that anybody may ask for: counted once for all who ask at a time.

``Recounted`` is for one that is asked for all the time and may take longer to count than anybody should wait:
the one before stands in for it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from evermirror.errors import Unavailable

T = TypeVar("T")

FRESH_S = 1.0  # a figure is counted at most once a second
REST = 20  # what took long to count is not counted again for so many times as long …
REST_MAX_S = 10.0  # … and no longer than this
PATIENCE_S = 0.5  # a new count is waited for so long, where there is one before
STAND_IN_MAX_S = 60.0  # an older one stands in for nothing


@dataclass(slots=True)
class _Count(Generic[T]):
    work: asyncio.Future[T]
    ended_at: float | None = None


class Counted(Generic[T]):
    """Figures by what they are of, the ``most`` latest of them. Who asks while one is being counted waits for
    that count. Different ones take turns; where ``most`` wait for theirs already, it is ``Unavailable``."""

    def __init__(self, clock: Callable[[], float], most: int = 1, fresh_s: float = FRESH_S) -> None:
        self._clock = clock
        self._fresh_s = fresh_s
        self._most = most
        self._counts: dict[Hashable, _Count[T]] = {}
        self._turn = asyncio.Lock()

    async def get(self, of: Hashable, count: Callable[[], Awaitable[T]]) -> T:
        """At most ``fresh_s`` old. What ``count`` raises, all who wait for it get; it is not remembered."""
        found = self._counts.get(of)
        if found is None or not self._is_good(found):
            self._counts.pop(of, None)
            self._make_room()
            found = _Count(asyncio.ensure_future(self._counting(of, count)))
            self._counts[of] = found
        return await asyncio.shield(found.work)  # who goes away takes nothing from the others

    async def _counting(self, of: Hashable, count: Callable[[], Awaitable[T]]) -> T:
        this = self._counts[of]
        try:
            async with self._turn:
                return await count()
        finally:
            this.ended_at = self._clock()

    def _is_good(self, count: _Count[T]) -> bool:
        if count.ended_at is None:
            return True
        failed = count.work.done() and (count.work.cancelled() or count.work.exception() is not None)
        return not failed and 0 <= self._clock() - count.ended_at < self._fresh_s

    def _make_room(self) -> None:
        """The oldest that is counted is forgotten."""
        if len(self._counts) < self._most:
            return
        oldest = next((of for of, count in self._counts.items() if count.ended_at is not None), None)
        if oldest is None:
            raise Unavailable("too much else is being counted", hint="Try again in a moment")
        del self._counts[oldest]


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    figure: T
    begun_at: float
    ended_at: float

    def rests(self, now: float) -> bool:
        rest_s = min(REST_MAX_S, REST * max(0.0, self.ended_at - self.begun_at))
        return 0 <= now - self.ended_at < rest_s

    def may_stand_in(self, now: float) -> bool:
        return 0 <= now - self.begun_at <= STAND_IN_MAX_S


class Recounted(Generic[T]):
    """One figure. ``count`` gets the time at which it begins."""

    def __init__(self, clock: Callable[[], float], count: Callable[[float], Awaitable[T]]) -> None:
        self._clock = clock
        self._count = count
        self._known: _Known[T] | None = None
        self._counting: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The first is waited for. What ``count`` raises, those who wait for it get; it is not remembered."""
        now, known = self._clock(), self._known
        if known is not None and known.rests(now):
            return known.figure
        if self._counting is None:
            self._counting = asyncio.create_task(self._recount(now))
            self._counting.add_done_callback(self._ended)
        counting = self._counting
        stand_in = known if known is not None and known.may_stand_in(now) else None
        await asyncio.wait([counting], timeout=None if stand_in is None else PATIENCE_S)
        return stand_in.figure if stand_in is not None and not counting.done() else counting.result()

    async def settled(self) -> None:
        """No count is under way any more."""
        if self._counting is not None:
            await asyncio.wait([self._counting])

    async def _recount(self, begun_at: float) -> T:
        figure = await self._count(begun_at)
        self._known = _Known(figure, begun_at, self._clock())
        return figure

    def _ended(self, counting: asyncio.Task[T]) -> None:
        self._counting = None
        if not counting.cancelled():
            counting.exception()  # perhaps nobody waited for it
