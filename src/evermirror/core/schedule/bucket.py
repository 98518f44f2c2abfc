"""A token bucket without a clock: at most ``burst`` at once and ``rate`` a second in the long run.

Kept as one number, the time at which the bucket will be full again. A token is there when that time is at
most ``(burst - 1) / rate`` ahead; so ``ready_at`` is exact, and a sleeper that wakes then always finds its
token.
"""

from __future__ import annotations

import math


class TokenBucket:
    """``rate`` is tokens per second, None for no limit; ``burst`` is a second's worth unless told."""

    __slots__ = ("_full_at", "_step_s", "_tolerance_s")

    def __init__(self, rate: float | None, burst: float | None = None) -> None:
        self._full_at = -math.inf
        self._step_s = 0.0
        self._tolerance_s = 0.0
        self.set_rate(rate, burst)

    def set_rate(self, rate: float | None, burst: float | None = None, *, now: float | None = None) -> None:
        """Change the rate; tokens already spent stay spent. With ``now`` they come back at the new rate, and
        no more of them are owed than the bucket holds."""
        old_step_s = self._step_s
        self._step_s = 0.0 if rate is None else 1.0 / rate
        self._tolerance_s = 0.0 if rate is None else (max(1.0, rate if burst is None else burst) - 1.0) / rate
        if rate is None:
            self._full_at = -math.inf
        elif now is not None and self._full_at > now and old_step_s not in (0.0, self._step_s):
            owed = (self._full_at - now) / old_step_s
            self._full_at = now + min(owed * self._step_s, self._tolerance_s + self._step_s)

    def set_back(self, step_s: float) -> None:
        """The clock was, by so much: what was taken comes back no later for it."""
        self._full_at -= step_s

    def ready_at(self) -> float:
        """The time from which a token is there (may lie in the past)."""
        return self._full_at - self._tolerance_s

    def take(self, now: float) -> bool:
        """Take a token if there is one."""
        if self._full_at - self._tolerance_s > now:
            return False
        if self._step_s:
            self._full_at = (self._full_at if self._full_at > now else now) + self._step_s
        return True
