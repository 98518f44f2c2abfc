"""Figures that are dear to count, and that anybody may ask for: counted once for all who ask at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from evermirror.errors import Unavailable

T = TypeVar("T")

FRESH_S = 1.0  # a figure is counted at most once a second


@dataclass(slots=True)
class _Count(Generic[T]):
    work: asyncio.Future[T]
    ended_at: float | None = None


class Counted(Generic[T]):
    """Figures by what they are of, the ``most`` latest of them. Who asks while one is being counted waits for
    that count. Different ones take turns; where ``most`` wait for theirs already, it is ``Unavailable``."""

    def __init__(self, clock: Callable[[], float], most: int = 1) -> None:
        self._clock = clock
        self._most = most
        self._counts: dict[Hashable, _Count[T]] = {}
        self._turn = asyncio.Lock()

    async def get(self, of: Hashable, count: Callable[[], Awaitable[T]]) -> T:
        """At most a second old. What ``count`` raises, all who wait for it get; it is not remembered."""
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
        return not failed and 0 <= self._clock() - count.ended_at < FRESH_S

    def _make_room(self) -> None:
        """The oldest that is counted is forgotten."""
        if len(self._counts) < self._most:
            return
        oldest = next((of for of, count in self._counts.items() if count.ended_at is not None), None)
        if oldest is None:
            raise Unavailable("too much else is being counted", hint="Try again in a moment")
        del self._counts[oldest]
