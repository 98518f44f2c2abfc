"""Who is reading which mirror now, and when each was last read: nothing is deleted under a reader."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from evermirror.model.repo import RepoKey


class Readers:
    """``reading`` around each answer to a client."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now: Counter[RepoKey] = Counter()
        self._used: dict[RepoKey, float] = {}
        self._waiting: dict[RepoKey, list[asyncio.Future[None]]] = {}

    @contextmanager
    def reading(self, key: RepoKey) -> Iterator[None]:
        self._now[key] += 1
        self.used(key)
        try:
            yield
        finally:
            self._now[key] -= 1
            if not self._now[key]:
                del self._now[key]
                for waiting in self._waiting.pop(key, ()):
                    if not waiting.done():
                        waiting.set_result(None)

    def used(self, key: RepoKey) -> None:
        self._used[key] = self._clock()

    def take_used(self) -> dict[RepoKey, float]:
        """When these were read, since this was last asked."""
        used, self._used = self._used, {}
        return used

    @property
    def now(self) -> Collection[RepoKey]:
        """What is being read."""
        return self._now.keys()

    async def gone(self, key: RepoKey) -> None:
        """Returns once nobody reads it."""
        while key in self._now:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, []).append(waiting)
            await waiting
