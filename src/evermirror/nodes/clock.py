"""UTC for the schedule and for what is persisted; and the coordinator's UTC, by which passes are judged.

    wall clock ── set, either way ──▶ SteadyClock follows at once, and says so in the log
    coordinator ── Access(told_at) ──▶ CoordinatorClock, carried on by the uptime

A step forward counts as time that passed: the machine may have been paused. After a step back the machines
that keep times (core/schedule, core/maintain, core/pull, core/collect) move them back with the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from evermirror.model.messages import WorkerStatus

log = structlog.get_logger(__name__)

STEP_S = 30.0  # a wall clock this far from ours was set; smaller differences are left to drift
DISAGREE_S = 60.0  # clocks of two nodes that differ by more are reported to people


def uptime() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """The wall clock, carried on by a clock that cannot be set between two steps of the wall clock."""

    def __init__(self) -> None:
        self._offset = time.time() - uptime()

    def __call__(self) -> float:
        now, wall = self._offset + uptime(), time.time()
        if abs(wall - now) <= STEP_S:
            return now
        self._offset += wall - now
        log.warning("the clock of this machine was set: times follow it", by_s=round(wall - now, 1))
        return wall


class CoordinatorClock:
    """The coordinator's UTC as it was last told; this node's own clock until then.

    Passes and tickets end by the clock of the coordinator that sealed them: a node whose own clock is wrong
    goes on to let others in, and does not let anybody in for longer."""

    def __init__(self, own: Callable[[], float]) -> None:
        self._own = own
        self._offset: float | None = None
        self._disagreed = False

    def told(self, now: float) -> None:
        """The coordinator said that it is ``now``; 0: it is too old to say."""
        if now > 0.0:
            self._offset = now - uptime()

    def __call__(self) -> float:
        return self._own() if self._offset is None else self._offset + uptime()

    def noted(self, status: WorkerStatus, whose: str = "") -> WorkerStatus:
        """This node's status, with a warning while its clock and the coordinator's disagree; the log has it
        once. ``whose`` begins the warning."""
        ahead_s = self._own() - self()
        disagree = abs(ahead_s) > DISAGREE_S
        if disagree and not self._disagreed:
            log.warning("the clocks of this node and its coordinator disagree", ahead_s=round(ahead_s, 1))
        elif self._disagreed and not disagree:
            log.info("the clocks of this node and its coordinator agree again")
        self._disagreed = disagree
        if not disagree:
            return status
        side = "ahead of" if ahead_s > 0 else "behind"
        text = f"{whose}its clock is {abs(ahead_s):.0f} s {side} the coordinator's: set both by NTP"
        return replace(status, warnings=(*status.warnings, text))
