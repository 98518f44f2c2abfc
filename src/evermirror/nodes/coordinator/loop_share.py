"""A share of the event loop, for work that many ask for at once, and that nothing else may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

SHARE_S = 0.004  # of each turn of the loop, for all of them together

T = TypeVar("T")


class LoopShare:
    """Who has used up a share lets all others have a turn, and then those who wait for the next share."""

    def __init__(self, share_s: float = SHARE_S) -> None:
        self._share_s = share_s
        self._turn = asyncio.Lock()  # of those who wait, the first
        self._until = 0.0

    async def chosen(self, wanted: Callable[[T], bool], items: Iterable[T]) -> list[T]:
        """Those of them that are wanted."""
        now = asyncio.get_running_loop().time
        found: list[T] = []
        for item in items:
            if now() >= self._until:
                async with self._turn:
                    await asyncio.sleep(0)
                    self._until = now() + self._share_s
            if wanted(item):
                found.append(item)
        return found
