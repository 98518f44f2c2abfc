"""Notices a clock that was set back: whoever keeps times then moves them back with it.

Without that, everything that was put off while a clock was ahead would wait until the clock is there again.
"""

from __future__ import annotations

BACK_S = 20.0  # less is no step: a time may be handed on a little late; clocks follow steps of 30 s and more


class SetBack:
    """``by_s`` with each time that comes by."""

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest = 0.0  # 0: none yet

    def by_s(self, now: float) -> float:
        """How far the clock was set back before ``now``; 0 where it was not. ``latest`` goes back with it."""
        if now >= self.latest:
            self.latest = now
        elif now < self.latest - BACK_S:
            step_s, self.latest = self.latest - now, now
            return step_s
        return 0.0
