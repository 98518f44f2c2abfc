"""Whether a worker's disk has room for another clone, and takes writes at all."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.edge.git.folder import DiskUsage
from evermirror.edge.git.mirror import Mirrors
from evermirror.nodes.worker.shelf import Shelf


class Room:
    """Whoever looks tells the schedule, which holds clones back or lets them go on."""

    def __init__(
        self,
        guard: DiskGuard,
        mirrors: Mirrors,
        shelf: Shelf,
        scheduler: Scheduler,
        *,
        opened: Callable[[], None],
    ) -> None:
        self._guard = guard
        self._mirrors = mirrors
        self._shelf = shelf
        self._scheduler = scheduler
        self._opened = opened  # clones have waited for this

    @property
    def accepting(self) -> bool:
        return self._guard.accepting and self._shelf.writable

    @property
    def why_not(self) -> str:
        """Why no clone begins now."""
        return self._guard.why_closed if self._shelf.writable else "the disk takes no writes"

    def look(self, now: float) -> DiskUsage:
        """A look at the disk."""
        usage = self._mirrors.disk_usage()
        before = self.accepting
        self._guard.observe(usage.used_share, now)
        self._scheduler.allow_clones(self.accepting)
        if self.accepting and not before:
            self._scheduler.room_again(now)
            self._opened()
        return usage

    def write_failed(self, now: float) -> None:
        """git said that there is no room."""
        self._guard.write_failed(now)
        self._scheduler.allow_clones(False)
