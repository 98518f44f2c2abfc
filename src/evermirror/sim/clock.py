"""Virtual time: what is due next happens next, in the same order on every run."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class VirtualTime:
    """``at`` and ``after`` put something off; ``run`` does it all in order of time, ties in order of asking.

    Nothing is ever taken back: who may change its mind checks, when called, whether it is still meant."""

    __slots__ = ("_asked", "_due", "now", "steps")

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._asked = 0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: float, do: Callable[..., None], *args: Any) -> None:
        """A time that has passed means now."""
        self._asked += 1
        heappush(self._due, (max(time, self.now), self._asked, do, args))

    def after(self, delay: float, do: Callable[..., None], *args: Any) -> None:
        self._asked += 1
        heappush(self._due, (self.now + delay, self._asked, do, args))

    def run(self, until: float) -> None:
        """Do everything due up to and with ``until``, which is then the time."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, do, args = heappop(due)
            self.steps += 1
            do(*args)
        self.now = max(self.now, until)
