"""The timer wheel: every timeout of the coordinator, to the precision of one tick.

     turned to
         ▼
    ── 41 ──── 42 ── 43 ── 44 ── 45 ── … ── 1841 ──▶ ticks
       {a}          {b, c}      {d}         {e}

Rules
- A timer stands in the slot of the first tick at or after its deadline; one that is late already, in the slot
  that the wheel is turned to. It is due once the wheel is turned to its slot: never early, late by less than
  one tick and the gap between two turns.
- A key has one timer. Set again, the old one is gone at once: nothing is left behind to be skipped later.
- Slots are made when first used and thrown away when empty, so the wheel has no circumference: a far deadline
  waits in its slot and is not looked at before its time.
- Turning looks at each tick passed, or, where more ticks passed than slots are in use (a coordinator paused
  for hours), at each slot in use. A turn by which nothing is due costs the same with ten timers as with a
  million.
- Seconds are those of the caller, monotonic or lived; a turn backwards does nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil, floor
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_BEFORE_ALL = -(2**63)  # the tick of a wheel that was never turned: earlier than any deadline


class TimerWheel(Generic[K]):
    """``set`` a timer, ``cancel`` it, or get its key from ``advance``."""

    __slots__ = ("_slots", "_tick_s", "_timers", "_turned")

    def __init__(self, tick_s: float) -> None:
        if not tick_s > 0:
            raise ValueError(f"a tick takes time, got {tick_s} s")
        self._tick_s = tick_s
        self._turned = _BEFORE_ALL
        self._slots: dict[int, dict[K, float]] = {}  # tick → key → deadline, in the order set
        self._timers: dict[K, int] = {}  # key → tick

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: K) -> bool:
        return key in self._timers

    def set(self, key: K, at_s: float) -> None:
        """Ring for ``key`` at ``at_s``, and no longer at the time it was set to before."""
        tick = max(ceil(at_s / self._tick_s), self._turned)
        self.cancel(key)
        self._timers[key] = tick
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = {}
        slot[key] = at_s

    def cancel(self, key: K) -> None:
        """No timer for ``key`` any more, if there was one."""
        tick = self._timers.pop(key, None)
        if tick is not None:
            slot = self._slots[tick]
            del slot[key]
            if not slot:
                del self._slots[tick]

    def advance(self, now_s: float) -> list[K]:
        """Turn the wheel to ``now_s``; the keys that are due, by deadline, then in the order set."""
        now = floor(now_s / self._tick_s)
        if now < self._turned:
            return []
        if now - self._turned < len(self._slots):
            passed = [tick for tick in range(self._turned, now + 1) if tick in self._slots]
        else:
            passed = [tick for tick in self._slots if tick <= now]
        self._turned = now
        due = [timer for tick in passed for timer in self._slots.pop(tick).items()]
        due.sort(key=lambda timer: timer[1])  # stable; timers of one deadline share a slot
        for key, _ in due:
            del self._timers[key]
        return [key for key, _ in due]
