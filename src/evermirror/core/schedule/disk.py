"""The disk guard: may this worker start a new clone?

Rules
    used share ≥ high                    → no new clones (fetches of what is here go on)
    used share < high − HYSTERESIS       → clones again
    in between                           → as before, so that the switch does not flap
    a write failed for lack of room      → no new clones until the share is below the lower mark *and*
                                           somebody made room since, or HOLD_S has passed (quotas do not
                                           show in the used share)
    room that our own failed write gives → is nobody's: what is freed within SETTLE_S of it does not count
    back                                   as room that somebody made

        ┌────── used ≥ high, or a write failed ──────┐
        │                                            ▼
    accepting ◀── used < low, and the hold is over ── closed
"""

from __future__ import annotations

import math

HYSTERESIS = 0.02  # of the disk; a clone or two of room before the guard opens again
HOLD_S = 300.0  # seconds a failed write keeps the guard closed; matches the retry of DISK_FULL
SETTLE_S = 5.0  # for git and for us to remove what a failed write left behind
SETTING = "fleet.disk_high"  # the one mark of a node's disk, whatever the node does


class DiskGuard:
    """Fed with the disk's used share and with failed writes; answers ``accepting``."""

    __slots__ = ("_accepting", "_failed_at", "_failed_share", "_high", "_used_share")

    def __init__(self, high: float) -> None:
        self._high = high
        self._accepting = True
        self._failed_at: float | None = None  # a write
        self._failed_share = 0.0  # that was used when it had failed
        self._used_share = 0.0

    @property
    def accepting(self) -> bool:
        return self._accepting

    @property
    def why_closed(self) -> str:
        """With the figure and the setting; of use while it does not accept."""
        used, mark = f"the disk is {percent_full(self._used_share)} full", f"{SETTING} = {self._high:g}"
        if self._used_share >= self._high:
            return f"{used}, above {mark}"
        if self._used_share >= self._high - HYSTERESIS:
            return f"{used}, still near {mark}: it has to be {percent_full(HYSTERESIS)} below"
        return f"a write failed for lack of room a moment ago, though {used}: look for a quota"

    def lacked_room(self, now: float) -> bool:
        """A write failed a moment ago, whatever the used share says. A clock that was set ends it."""
        return self._failed_at is not None and self._failed_at <= now < self._failed_at + HOLD_S

    def observe(self, used_share: float, now: float) -> bool:
        """A look at the disk; returns whether clones are accepted from here on."""
        self._used_share = used_share
        if self.lacked_room(now) and self._was_freed(used_share, now):
            self._failed_at = None
        if used_share >= self._high:
            self._accepting = False
        elif used_share < self._high - HYSTERESIS and not self.lacked_room(now):
            self._accepting = True
        return self._accepting

    def _was_freed(self, used_share: float, now: float) -> bool:
        if self._failed_at is not None and now < self._failed_at + SETTLE_S:
            self._failed_share = min(self._failed_share, used_share)
            return False
        return used_share <= self._failed_share - HYSTERESIS

    def write_failed(self, now: float) -> None:
        """git said that there is no room."""
        self._accepting = False
        self._failed_at, self._failed_share = now, self._used_share


def percent_full(share: float) -> str:
    """Rounded up, as ``df`` does."""
    return f"{math.ceil(round(share * 100, 6))} %"
