"""The part of the store that is about what others are told, and about hooks that tell us."""

from __future__ import annotations

from evermirror.edge.store import events
from evermirror.edge.store.events import EventPage
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.whole import whole
from evermirror.model.event import Event, EventId


class NewsStore(StorePart):
    # Events. What belongs to another write goes with it, as an ``EventWritten`` (writes.py).

    async def events_after(self, number: EventId, limit: int) -> EventPage:
        """The next ones after this number, oldest first; at most 1,000."""
        return await whole(events.after(self._db, number, limit))

    async def events_before(self, number: EventId, limit: int) -> tuple[Event, ...]:
        """Those before this number, newest first; at most 1,000."""
        return await whole(events.before(self._db, number, limit))

    async def latest_event(self) -> EventId:
        """Where there never was one, the number from which on there will be."""
        return await whole(events.latest(self._db))

    async def clean_events(self, before: float, keep: int) -> int:
        """Removes those older than this time (UTC seconds), and all but the newest ``keep``; returns how
        many."""
        return await whole(events.clean(self._db, before, keep))
