"""The limit that follows the source's load, below what the window allows.

| load   | step                                                                       |
|--------|----------------------------------------------------------------------------|
| high   | one fewer; by half where our own polls are what told (AIMD); not below 2   |
| normal | none                                                                       |
| low    | one more; not above 10, nor above the window's figure                      |

Rules
- At most one step in a period, so that the effect of one is seen before the next.
- What the source was found to bear is kept, whatever the window allows: one that was overloaded stays spared
  when a window allows more, and gets that step by step.
- What the window allows is obeyed at once, also below 2.
- Where nothing was ever too much, the window's figure counts, up to 10: more is not found out by steps.
- How the source is doing when *our own* polls get slow is also our doing: then additive increase and
  multiplicative decrease is what finds the fair share. A CPU is loaded by others too: one fewer.
"""

from __future__ import annotations

from math import inf

from evermirror.model.pull import LoadLevel

LIMIT_MIN = 2
LIMIT_MAX = 10


class Adaptive:
    """``step`` is its one door."""

    __slots__ = ("_bearable", "_period_s", "_stepped_at")

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._bearable = LIMIT_MAX
        self._stepped_at = -inf

    def limit(self, figure: int) -> int:
        """How many may run where the window allows so many."""
        return min(figure, self._bearable)

    def step(self, level: LoadLevel, figure: int, now: float, *, halve: bool = False) -> int | None:
        """The new limit; None where nothing changes, or it is too early."""
        if 0 <= now - self._stepped_at < self._period_s:
            return None
        before = self.limit(figure)
        after = self._wanted(level, figure, before, halve)
        if after == before:
            return None
        self._bearable = max(after, LIMIT_MIN)
        self._stepped_at = now
        return after

    def next_step_at(self, level: LoadLevel, figure: int, now: float) -> float | None:
        """When to look again if nobody tells anything: for the next step, or, while the load is high, whether
        it still is."""
        before = self.limit(figure)
        if self._wanted(level, figure, before, False) != before:
            return self._stepped_at + self._period_s
        return now + self._period_s if level is LoadLevel.HIGH else None

    def reset(self) -> None:
        """Adaptive is off: what was learnt is old when it is on again."""
        self._bearable = LIMIT_MAX
        self._stepped_at = -inf

    def _wanted(self, level: LoadLevel, figure: int, before: int, halve: bool) -> int:
        match level:
            case LoadLevel.HIGH:
                return min(before, max(LIMIT_MIN, before // 2 if halve else before - 1))
            case LoadLevel.LOW:
                return min(figure, LIMIT_MAX, before + 1)
            case LoadLevel.NORMAL:
                return before
