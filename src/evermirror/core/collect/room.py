"""Room on the aggregator's disk: whether something new may be fetched, and what has to leave.

Full mode refuses what is not here yet above the mark. Pull-through mode evicts there, and takes in what a
client waits for as long as it fits: the mark is where it begins to tidy up, not where people are refused.
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

RESERVE_SHARE = 0.05  # of the disk: stays free when something is taken in above the mark
GROWTH = 2  # times its reported size: what a mirror takes while it is fetched and repacked


class Room:
    """Fed with looks at the disk and failed writes."""

    def __init__(self, settings: CollectSettings) -> None:
        self._settings = settings
        self._guard = DiskGuard(settings.disk_high)
        self._leaving: dict[RepoKey, int] = {}  # bytes that are being deleted
        self._full_told = False
        self._spare_bytes = 0.0  # beyond the reserve

    @property
    def accepting(self) -> bool:
        """First fetches may be started, whoever wants them."""
        return self._guard.accepting

    @property
    def why_not(self) -> str:
        """Why nothing new comes in."""
        return self._guard.why_closed

    def takes(self, row: Row, now: float, *, waits: bool) -> bool:
        """Whether a repo may be fetched for the first time; ``waits``: a client waits for it."""
        if self._guard.accepting:
            return True
        if not waits or self._settings.mode is not CollectMode.PULL_THROUGH or self._guard.lacked_room(now):
            return False
        return GROWTH * row.size_bytes <= self._spare_bytes

    def is_leaving(self, key: RepoKey) -> bool:
        return key in self._leaving

    def looked(self, disk: DiskTold, now: float, draft: Draft) -> None:
        self._guard.observe(disk.used_share, now)
        self._spare_bytes = (1.0 - RESERVE_SHARE - disk.used_share) * disk.total_bytes
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
        draft.act(Withdraw(row.key, f"evicted as the least used: {self._guard.why_closed}"))
        draft.act(Evict(row.key))

    def evicted(self, key: RepoKey) -> None:
        self._leaving.pop(key, None)

    def _tell(self, draft: Draft) -> None:
        full = not self._guard.accepting
        if full != self._full_told:
            self._full_told = full
            text = (
                f"no room for repos that are not here yet: {self.why_not}" if full else "there is room again"
            )
            draft.act(Alert(AlertKind.NO_ROOM, "disk", text, over=not full))
