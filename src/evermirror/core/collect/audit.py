"""When the next audit is due: a few a minute, evenly, one question to the store at a time.

An audit is a look at upstream for a repo that only untrusted workers hold, compared with their reports: who
presents stale refs as new is found without anybody fetching anything. Which repo it is, chance decides, so
that no worker can know.

In pull-through mode every second audit is a *sample*: a repo of which nothing is here is really fetched from
its holders. What they give is then here, and verified; who gives nothing is found out (suspect.py).
"""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.collect.rows import Doubt, Row
from evermirror.model.repo import Mode


def to_audit(row: Row, now: float) -> Row:
    """Of an append-only mirror only a fetch tells whether all of upstream's refs are there; and of one that
    is not here, whether anybody has it."""
    exact = row.spec.mode is Mode.EXACT and not row.first
    return replace(row, doubt=Doubt(now)) if exact else replace(row, place=now)


class Audits:
    """A pick that was not answered within ``lost_s`` is asked for again; nothing is made up for later."""

    __slots__ = ("_gap_s", "_lost_s", "_next_at", "_picking", "_samples", "sample")

    def __init__(self, per_minute: float, lost_s: float = 60.0, *, samples: bool = False) -> None:
        self._samples = samples
        self.sample = False  # the pick that is due is one of a repo that is not here
        self._gap_s = 60.0 / per_minute if per_minute > 0 else None
        self._lost_s = lost_s
        self._next_at: float | None = None
        self._picking = False

    def due(self, now: float) -> bool:
        """A repo is to be picked now; at most one answer is outstanding."""
        if self._gap_s is None:
            return False
        if self._next_at is None:
            self._next_at = now + self._gap_s
        if now < self._next_at <= now + max(self._gap_s, self._lost_s):
            return False
        self._picking = True
        self.sample = self._samples and not self.sample
        self._next_at = now + max(self._gap_s, self._lost_s)
        return True

    def picked(self, now: float) -> None:
        """The answer came."""
        if self._picking and self._gap_s is not None:
            self._picking = False
            self._next_at = now + self._gap_s
