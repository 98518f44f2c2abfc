"""Room on the aggregator's disk: whether something new may be fetched, and what has to leave.

Full mode refuses what is not here yet above the mark; pull-through mode evicts as well, and refuses only
until that has made room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evermirror.core.collect.decisions import Alert, AlertKind, Evict, Withdraw
from evermirror.core.collect.draft import Draft
from evermirror.core.collect.events import DiskTold
from evermirror.core.collect.evict import to_evict
from evermirror.core.collect.rows import Row
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.core.schedule.disk import DiskGuard
from evermirror.model.repo import RepoKey


class Room:
    """Fed with looks at the disk and failed writes."""

    def __init__(self, settings: CollectSettings) -> None:
        self._settings = settings
        self._guard = DiskGuard(settings.disk_high)
        self._leaving: dict[RepoKey, int] = {}  # bytes that are being deleted
        self._full_told = False

    @property
    def accepting(self) -> bool:
        """First fetches may be started."""
        return self._guard.accepting

    def is_leaving(self, key: RepoKey) -> bool:
        return key in self._leaving

    def looked(self, disk: DiskTold, now: float, draft: Draft) -> None:
        self._guard.observe(disk.used_share, now)
        self._tell(draft)

    def write_failed(self, now: float, draft: Draft) -> None:
        self._guard.write_failed(now)
        self._tell(draft)

    def to_evict(self, disk: DiskTold, busy: Callable[[RepoKey], bool]) -> list[Row]:
        """In pull-through mode, what has to leave now."""
        if self._settings.mode is not CollectMode.PULL_THROUGH:
            return []
        leaving = sum(self._leaving.values())
        return to_evict(disk, leaving, lambda key: key in self._leaving or busy(key), self._settings)

    def evict(self, row: Row, draft: Draft) -> None:
        if row.here is None:
            return
        self._leaving[row.key] = row.here.size_bytes
        draft.put(
            replace(row, here=None, taken=None, place=None, failures=0, retry_at=0.0, doubt=None, guard=None)
        )
        draft.act(Withdraw(row.key, "evicted: the disk is full, and it was the least used"))
        draft.act(Evict(row.key))

    def evicted(self, key: RepoKey) -> None:
        self._leaving.pop(key, None)

    def _tell(self, draft: Draft) -> None:
        full = not self._guard.accepting
        if full != self._full_told:
            self._full_told = full
            text = "no room for repos that are not here yet" if full else "there is room again"
            draft.act(Alert(AlertKind.NO_ROOM, "disk", text, over=not full))
