"""Upstream hosts that asked us to wait: none of their repos is asked for meanwhile, not only the one at which
they said so.

A host that names no time is left alone for ``LIMITED_S``.
"""

from __future__ import annotations

from evermirror.core.collect.events import Attempt, End
from evermirror.model.failure import FailureKind
from evermirror.model.repo import Host

LIMITED_S = 60.0


def limited_s(attempt: Attempt, most_s: float) -> float:
    """So long does this repo's host want to be left alone; 0: it did not say so."""
    if attempt.end is not End.UPSTREAM_AWAY:
        return 0.0
    if attempt.retry_after_s is not None:
        return min(max(attempt.retry_after_s, 0.0), most_s)
    refused = attempt.failure is not None and attempt.failure.kind is FailureKind.RATE_LIMITED
    return min(LIMITED_S, most_s) if refused else 0.0


class LimitedHosts:
    """Until when each is left alone, for ``most_s`` at most: also where the clock went back."""

    __slots__ = ("_most_s", "_until")

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._until: dict[Host, float] = {}

    def add(self, host: Host, for_s: float, now: float) -> None:
        self._until = {each: at for each, at in self._until.items() if self._counts(at, now)}
        self._until[host] = max(now + for_s, self._until.get(host, 0.0))

    def until(self, host: Host, now: float) -> float:
        """0: it may be asked."""
        at = self._until.get(host, 0.0)
        return at if self._counts(at, now) else 0.0

    def _counts(self, at: float, now: float) -> bool:
        return now < at <= now + self._most_s
