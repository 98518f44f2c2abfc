"""Token buckets by name, in bounded memory: how often each client may do something."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_MAX_NAMES = 10_000  # clients remembered, ~150 bytes each; the longest idle one is forgotten first


@dataclass(frozen=True, slots=True)
class Rate:
    """``burst`` at once, then ``per_s``."""

    per_s: float
    burst: float


class Buckets:
    """Each name has ``burst`` to spend and gets ``per_s`` back every second."""

    def __init__(self, rate: Rate, clock: Callable[[], float], max_names: int = _MAX_NAMES) -> None:
        self._rate = rate
        self._clock = clock
        self._max_names = max_names
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name -> (level, as of)

    def wait_s(self, name: str) -> float:
        """Seconds until ``name`` may spend one; 0 where it may now."""
        return max(0.0, (1.0 - self._level(name)) / self._rate.per_s)

    def spend(self, name: str) -> None:
        """Takes one, down to an empty bucket and not below."""
        self._levels[name] = (max(0.0, self._level(name) - 1.0), self._clock())
        self._levels.move_to_end(name)
        if len(self._levels) > self._max_names:
            self._levels.popitem(last=False)

    def take(self, name: str) -> float:
        """Spends one where there is one (0), else says how long to wait."""
        wait_s = self.wait_s(name)
        if wait_s == 0.0:
            self.spend(name)
        return wait_s

    def _level(self, name: str) -> float:
        level, as_of = self._levels.get(name, (self._rate.burst, 0.0))
        return min(self._rate.burst, level + (self._clock() - as_of) * self._rate.per_s)
