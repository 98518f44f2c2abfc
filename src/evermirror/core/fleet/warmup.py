"""The warm-up: a fleet that starts from nothing lets its workers gather before it places the first repo.

    warming ── a worker is there, and warm_up_s was lived or min_workers are there ──▶ over, for good

Rules
- Without it the first worker to join would be given everything, and each later one would take its part away.
- Where a cache of the placement exists there is nothing to wait for: workers are confirmed, not reshuffled.
- The time is lived time: a coordinator that sleeps does not gather workers meanwhile.
- Once over it stays over; workers that leave later are losses like any other.
"""

from __future__ import annotations


class WarmUp:
    """Ask ``over`` before placing; it remembers its first yes."""

    __slots__ = ("_min_workers", "_over", "_warm_up_s")

    def __init__(self, warm_up_s: float, min_workers: int | None, has_cache: bool) -> None:
        self._warm_up_s = warm_up_s
        self._min_workers = min_workers
        self._over = has_cache

    def over(self, lived_s: float, alive: int) -> bool:
        """``lived_s`` since the coordinator's start; ``alive``: workers that are there now."""
        if not self._over and alive > 0:
            gathered = self._min_workers is not None and alive >= self._min_workers
            self._over = gathered or lived_s >= self._warm_up_s
        return self._over
