"""The disk guard: may this worker start a new clone?

Rules
    used share ≥ high                    → no new clones (fetches of what is here go on)
    used share < high − HYSTERESIS       → clones again
    in between                           → as before, so that the switch does not flap
    a write failed for lack of room      → no new clones until the share is below the lower mark
                                           *and* HOLD_S has passed (quotas and reserved blocks do not
                                           show in the used share)

        ┌────── used ≥ high, or a write failed ──────┐
        │                                            ▼
    accepting ◀── used < low, and the hold is over ── closed
"""

from __future__ import annotations

import math

HYSTERESIS = 0.02  # of the disk; a clone or two of room before the guard opens again
HOLD_S = 300.0  # seconds a failed write keeps the guard closed; matches the retry of DISK_FULL
SETTING = "fleet.disk_high"  # the one mark of a node's disk, whatever the node does


class DiskGuard:
    """Fed with the disk's used share and with failed writes; answers ``accepting``."""

    __slots__ = ("_accepting", "_closed_until", "_high", "_used_share")

    def __init__(self, high: float) -> None:
        self._high = high
        self._accepting = True
        self._closed_until = 0.0
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
        """A write failed a moment ago, whatever the used share says."""
        return now < self._closed_until

    def observe(self, used_share: float, now: float) -> bool:
        """A look at the disk; returns whether clones are accepted from here on."""
        self._used_share = used_share
        if used_share >= self._high:
            self._accepting = False
        elif used_share < self._high - HYSTERESIS and now >= self._closed_until:
            self._accepting = True
        return self._accepting

    def write_failed(self, now: float) -> None:
        """git said that there is no room."""
        self._accepting = False
        self._closed_until = now + HOLD_S


def percent_full(share: float) -> str:
    """Rounded up, as ``df`` does."""
    return f"{math.ceil(round(share * 100, 6))} %"
