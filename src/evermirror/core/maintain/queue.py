"""Whose turn it is: the mirror that has been due for longest, in O(log n).

    put ──▶ waits (heap by time) ──take──▶ out ──put──▶ waits again
              ▲
              └─ changed: earlier, once enough syncs brought something

Rules
- Everything a repo needs is known from its last look (``Due``); between two looks no disk is touched.
- Entries of repos that left or moved are known by an old ticket and dropped when they surface, or all at once
  when they outnumber the living.
- A sync that wants a mirror that is being maintained goes first: the job is broken off. After
  INTERRUPTIONS_MAX of those the job is let through, or a busy mirror would never be repacked.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from evermirror.core.maintain.facts import HOUR_S
from evermirror.core.maintain.plan import Due
from evermirror.core.set_back import SetBack
from evermirror.model.repo import RepoKey

INTERRUPTIONS_MAX = 3
AFTER_INTERRUPTION_S = HOUR_S  # the repo is busy just now
_COMPACT_MIN = 64
_NO_CHANGES_COUNT = 1_000_000  # more syncs than ever come before it is looked at


class _Waiting:
    __slots__ = ("at", "changed_at", "changes_left", "ticket")

    def __init__(self, at: float, changed_at: float, changes_left: int, ticket: int) -> None:
        self.at = at
        self.changed_at = changed_at
        self.changes_left = changes_left
        self.ticket = ticket


class UpkeepQueue:
    """``put`` → ``take`` → ``put`` with what the look found; ``drop`` for a repo that is no longer held."""

    __slots__ = ("_heap", "_interruptions", "_set_back", "_tickets", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, RepoKey]] = []
        self._waiting: dict[RepoKey, _Waiting] = {}
        self._interruptions: dict[RepoKey, int] = {}
        self._tickets = 0
        self._set_back = SetBack()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: RepoKey) -> bool:
        return key in self._waiting

    def look_at(self, key: RepoKey, at: float) -> None:
        """A mirror of which nothing is known yet: to be looked at then."""
        self._enter(key, at, at, 1)

    def put(self, key: RepoKey, due: Due) -> None:
        """What the last look at this mirror found."""
        self._interruptions.pop(key, None)
        self._enter(key, due.at, due.changed_at, due.after_changes)

    def changed(self, key: RepoKey, now: float) -> None:
        """A sync brought something. Nothing happens where the repo does not wait."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        waiting.changes_left -= 1
        at = now if waiting.changes_left <= 0 else waiting.changed_at
        if at < waiting.at:
            self._enter(key, at, at, waiting.changes_left)

    def interrupted(self, key: RepoKey, now: float) -> None:
        """The job under way was broken off for a sync: later again."""
        self._interruptions[key] = self._interruptions.get(key, 0) + 1
        self._enter(key, now + AFTER_INTERRUPTION_S, math.inf, _NO_CHANGES_COUNT)

    def may_interrupt(self, key: RepoKey) -> bool:
        """Whether a sync may break off this repo's job, or must wait for its end."""
        return self._interruptions.get(key, 0) < INTERRUPTIONS_MAX

    def take(self, now: float) -> RepoKey | None:
        """The repo that has been due for longest; it is out of the queue until it is put back."""
        if step_s := self._set_back.by_s(now):
            self._go_back(step_s)
        if self.next_at() > now:
            return None
        key = heappop(self._heap)[2]
        del self._waiting[key]
        return key

    def next_at(self) -> float:
        """When the first repo is due; infinity where none ever is."""
        heap = self._heap
        while heap and not self._lives(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else math.inf

    def drop(self, key: RepoKey) -> None:
        """The mirror is no longer here."""
        self._waiting.pop(key, None)
        self._interruptions.pop(key, None)

    def _go_back(self, step_s: float) -> None:
        """The clock was set back by so much: nobody waits longer for it."""
        self._heap = [(at - step_s, ticket, key) for at, ticket, key in self._heap]
        for waiting in self._waiting.values():
            waiting.at -= step_s
            waiting.changed_at -= step_s

    def _enter(self, key: RepoKey, at: float, changed_at: float, changes_left: int) -> None:
        self._tickets += 1
        self._waiting[key] = _Waiting(at, changed_at, changes_left, self._tickets)
        heappush(self._heap, (at, self._tickets, key))
        if len(self._heap) > _COMPACT_MIN and len(self._heap) > 2 * len(self._waiting):
            self._heap = [entry for entry in self._heap if self._lives(entry)]
            heapify(self._heap)

    def _lives(self, entry: tuple[float, int, RepoKey]) -> bool:
        waiting = self._waiting.get(entry[2])
        return waiting is not None and waiting.ticket == entry[1]
