"""When to read pending rows from the store: those that found no seat in memory, and all of them at the start.

One scan goes through the rows in their order, a batch whenever half of the seats are free. What was passed
over on the way is found by the next scan, some minutes later. So that those who wait for hours do not keep
everybody else out, they leave their seats where fewer are free; and so do those who wait for one holder
together with many others (queue.py), while there is more to be read.
"""

from __future__ import annotations

from evermirror.core.collect.decisions import LoadPending
from evermirror.core.collect.events import Cursor, PendingLoaded
from evermirror.core.collect.settings import CollectSettings

LOST_S = 60.0  # an answer that did not come by then is asked for again


class Scan:
    """Of the rows of which nothing (``first``), or something, is here."""

    __slots__ = (
        "_asked_at",
        "_cursor",
        "_first",
        "_left",
        "_next_at",
        "_running",
        "_seats_least",
        "_settings",
    )

    def __init__(self, first: bool, settings: CollectSettings) -> None:
        self._first = first
        self._settings = settings
        self._cursor: Cursor | None = None
        self._running = True
        self._left = False  # rows were passed over
        self._asked_at: float | None = None
        self._next_at = 0.0
        self._seats_least = settings.queue_max // 4  # half of the seats of this scan

    def left_some(self, *, soon: bool = False) -> None:
        """Pending rows are in the store alone."""
        self._left = True
        if soon:
            self._next_at = 0.0

    @property
    def has_more(self) -> bool:
        """As far as is known, pending rows are in the store alone."""
        return self._left or (self._running and self._cursor is not None)

    def needs_seats(self, seats: int) -> bool:
        """Sleepers are in the way: with so few free seats, or one less, nothing more is read."""
        return seats <= self._seats_least + 1

    def wish(self, seats: int, now: float) -> LoadPending | None:
        """What to read now, if anything."""
        if self._asked_at is not None and 0.0 <= now - self._asked_at < LOST_S:
            return None
        if not self._running and self._left and not now < self._next_at <= now + self._settings.rescan_s:
            self._running, self._left, self._cursor = True, False, None
        if not self._running or seats <= self._seats_least:
            return None
        self._asked_at = now
        return LoadPending(self._first, self._cursor, min(seats, self._settings.load_batch))

    def loaded(self, event: PendingLoaded, now: float) -> None:
        self._asked_at = None
        if event.rows and event.rows[-1].scan_at is not None:
            self._cursor = (event.rows[-1].scan_at, event.rows[-1].key)
        if event.last or not event.rows:
            self._running, self._cursor = False, None
            self._next_at = now + self._settings.rescan_s
