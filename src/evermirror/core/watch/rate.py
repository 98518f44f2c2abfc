"""At most so many messages in any minute, wherever the minute begins.

times of the last ``limit`` messages:  │t1 t2 … t20│      the next one: not before t1 + 60 s
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

WINDOW_S = 60.0


class Rate:
    """The messages of one channel. ``times``: of those before a restart."""

    __slots__ = ("_limit", "_times")

    def __init__(self, limit: int, times: Iterable[float] = ()) -> None:
        self._limit = limit
        self._times = deque(sorted(times), maxlen=limit)

    def count(self, now: float) -> None:
        """One has gone."""
        self._times.append(now)

    def configure(self, limit: int) -> None:
        """Another limit; what has gone counts."""
        self._limit, self._times = limit, deque(self._times, maxlen=limit)

    def free_at(self, now: float, going: int = 0) -> float:
        """When the next may go, with so many under way; in the past where it may go now. A clock that was set
        back is forgiven."""
        if self._times and self._times[-1] > now:
            self._times = deque((min(at, now) for at in self._times), maxlen=self._limit)
        room = self._limit - going
        if room <= 0:
            return now + WINDOW_S
        return self._times[-room] + WINDOW_S if len(self._times) >= room else -inf
