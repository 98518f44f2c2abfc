"""What every part of the store has. The parts are many methods over one database, a file for each subject."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.edge.store.database import Database


class StorePart:
    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._db = database
        self._clock = clock
        self.on_change: Callable[[], None] = lambda: None  # there may be changes that were not told yet
        self.on_event: Callable[[], None] = lambda: None  # there may be events that were not read yet

    def _changed(self) -> None:
        self.on_change()
        self.on_event()
