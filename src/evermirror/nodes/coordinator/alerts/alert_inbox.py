"""What waits to be decided about alerts: bounded, and the latest word about an alert is never lost.

As long as there is room, everything is kept in its order. When much waits, as while the database is in
trouble, of each alert the latest word is kept, and of each set of kinds the latest whole truth.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from evermirror.core.watch.events import AlertDecision, AlertEvent, NotSent, Sent, Stand, Told

ROOMY = 1_000  # so many are kept as they came
ALERTS_MAX = 10_000  # that wait, each with its latest word


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, and who waits until what follows from it is stored."""

    event: AlertEvent
    answer: asyncio.Future[AlertDecision] | None = None


class AlertInbox:
    """``lost``: since the start, for want of room: the oldest."""

    def __init__(self, roomy: int = ROOMY, alerts_max: int = ALERTS_MAX) -> None:
        self._roomy = roomy
        self._alerts_max = alerts_max
        self._entries: deque[Entry] = deque()
        self._first: deque[Entry] = deque()  # what became of sends, one for each channel; what people ask
        self._fold_at = roomy
        self.lost = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._entries)

    def __len__(self) -> int:
        return len(self._first) + len(self._entries)

    def put(self, event: AlertEvent, answer: asyncio.Future[AlertDecision] | None = None) -> None:
        if answer is not None or isinstance(event, Sent | NotSent):
            self._first.append(Entry(event, answer))
            return
        self._entries.append(Entry(event))
        if len(self._entries) > self._fold_at:
            self._fold()

    def take(self, most: int) -> list[Entry]:
        taken = [self._first.popleft() for _ in range(min(most, len(self._first)))]
        taken += [self._entries.popleft() for _ in range(min(most - len(taken), len(self._entries)))]
        if len(self._entries) <= self._roomy:
            self._fold_at = self._roomy
        return taken

    def _fold(self) -> None:
        latest: dict[Hashable, Entry] = {}
        for entry in self._entries:
            key = _what(entry.event)
            latest.pop(key, None)  # its place is that of the latest word
            latest[key] = entry
        self._entries = deque(latest.values())
        while len(self._entries) > self._alerts_max:
            self._entries.popleft()
            self.lost += 1
        self._fold_at = max(self._roomy, min(2 * len(self._entries), self._alerts_max + self._roomy))


def _what(event: AlertEvent) -> Hashable:
    match event:
        case Told(alert):
            return alert.identity
        case Stand(kinds):
            return kinds
        case _:
            return event
