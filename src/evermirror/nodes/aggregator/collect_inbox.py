"""What waits to be handled by the one who collects, in the order in which it came.

Of what comes all the time on its own (the clock, the disk, who can be reached) only the latest word waits:
while the disk takes no writes nothing is handled, and nothing may pile up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from evermirror.core.collect.decisions import LoadPending, PickAudit
from evermirror.core.collect.events import DiskTold, Event, Reachability, Ticked
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Changes


@dataclass(frozen=True, slots=True)
class Told:
    """Changes, and who waits until they are on the disk."""

    changes: Changes
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Wish:
    """A client waits for this repo."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Read:
    """Rows that the machine asked for: read when it is their turn, so that nothing is decided in between."""

    asked: LoadPending | PickAudit


Item = Event | Told | Wish | Read

_LATEST = (Ticked, DiskTold, Reachability)


class Inbox:
    """``come`` waits until there is something."""

    def __init__(self) -> None:
        self._items: deque[Item | type[Item]] = deque()  # of kinds in ``_latest`` their place in the order
        self._latest: dict[type[Item], Item] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        kind = type(item)
        if kind not in _LATEST:
            self._items.append(item)
        elif self._latest.get(kind) is None:
            self._items.append(kind)
        if kind in _LATEST:
            self._latest[kind] = item
        self._news.set()

    def take(self) -> Item:
        """The first; there must be one."""
        first = self._items.popleft()
        return self._latest.pop(first) if isinstance(first, type) else first

    async def come(self) -> None:
        await self._news.wait()
        self._news.clear()
