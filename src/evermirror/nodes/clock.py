"""UTC that never goes back: what the schedule and everything it persists are timed by."""

from __future__ import annotations

import time

STEP_S = 30.0  # a wall clock this far ahead of ours was set right; smaller differences are left to drift


def uptime() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """The wall clock as it was at start, carried on by a clock that cannot be set.

    A wall clock that is set back is not followed until the next start; one that is set forward is."""

    def __init__(self) -> None:
        self._offset = time.time() - uptime()

    def __call__(self) -> float:
        now = self._offset + uptime()
        wall = time.time()
        if wall > now + STEP_S:
            self._offset += wall - now
            return wall
        return now
