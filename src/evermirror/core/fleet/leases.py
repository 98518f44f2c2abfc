"""Slots of the pull strategy: a few tasks in the whole fleet at once, each with a lease that ends by itself.

             ask, a slot is free                      give_back, drop_worker
    nothing ────────────────────▶ held ◀─┐ ask again ────────────────────────▶ nothing
       │ ask, none free            ▲ │   └─┘ (renewed)
       ▼            grantable      │ │ not renewed for lease_s
    waiting ───────────────────────┘ └──────────────▶ lapsed ── expire tells it ──▶ nothing

Rules
- Never more than ``limit`` leases are given that have not ended. A lower limit takes nothing away: those who
  hold one may renew it, and there are no new ones until enough are back.
- First come, first served: who asks while others wait stands behind them; asking again keeps the place.
- A slot is free at once when its lease ends, also before ``expire`` tells of it.
- At most ``waiting_max`` wait. One more is not remembered; it gets a place when it asks again later.
- Times are UTC seconds, as leases outlive a restart. A clock set back makes leases longer, never more.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice

from evermirror.model.worker import WorkerId

WAITING_MAX = 4096  # a few tasks of every worker of a large fleet; each is asked for again while it is wanted
_COMPACT_MIN = 64  # ends of leases, below which outdated ones do not matter

LeaseKey = tuple[WorkerId, int]  # the task's id is the second


class Leases:
    """See the module's rules."""

    __slots__ = ("_ends", "_held", "_lapsed", "_lease_s", "_limit", "_waiting", "_waiting_max")

    def __init__(self, lease_s: float, waiting_max: int = WAITING_MAX) -> None:
        self._lease_s = lease_s
        self._waiting_max = waiting_max
        self._limit: int | None = None
        self._held: dict[LeaseKey, float] = {}  # until when
        self._ends: list[tuple[float, LeaseKey]] = []  # a heap; entries that differ from _held are outdated
        self._waiting: dict[LeaseKey, None] = {}  # in order of arrival
        self._lapsed: dict[LeaseKey, None] = {}  # ended by themselves, not yet told

    @property
    def held(self) -> int:
        """Leases given and not known to be over."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def set_limit(self, limit: int | None) -> None:
        """How many at once; None: as many as ask."""
        if limit is not None and limit < 0:
            raise ValueError(f"{limit} leases at once")
        self._limit = limit

    def restore(self, worker: WorkerId, task: int, until_s: float) -> None:
        """From the store: it was given before a restart."""
        self._give((worker, task), until_s)

    def ask(self, worker: WorkerId, task: int, now_s: float) -> float | None:
        """Until when the task may run, newly or again; None: it waits."""
        self._lapse(now_s)
        key = (worker, task)
        if key not in self._held and not self._may_have(key):
            if len(self._waiting) < self._waiting_max:
                self._waiting.setdefault(key)
            return None
        return self._give(key, now_s + self._lease_s)

    def grantable(self, now_s: float) -> list[tuple[WorkerId, int, float]]:
        """Gives the free slots to those who waited longest; who got one, and until when."""
        self._lapse(now_s)
        able = list(islice(self._waiting, self._room()))
        return [(*key, self._give(key, now_s + self._lease_s)) for key in able]

    def give_back(self, worker: WorkerId, task: int) -> bool:
        """The task is done, or no longer wants to run; was there a lease of which no end was told?"""
        key = (worker, task)
        self._waiting.pop(key, None)
        had = key in self._held or key in self._lapsed
        self._held.pop(key, None)
        self._lapsed.pop(key, None)
        return had

    def drop_worker(self, worker: WorkerId) -> list[int]:
        """The worker is gone for good; the tasks whose leases end with it."""
        for key in [key for key in self._waiting if key[0] == worker]:
            del self._waiting[key]
        ended = [key for key in (*self._held, *self._lapsed) if key[0] == worker]
        for key in ended:
            self._held.pop(key, None)
            self._lapsed.pop(key, None)
        return [task for _, task in ended]

    def expire(self, now_s: float) -> list[LeaseKey]:
        """The leases that ended by themselves since this was asked last."""
        self._lapse(now_s)
        lapsed = list(self._lapsed)
        self._lapsed.clear()
        return lapsed

    def _room(self) -> int | None:
        return None if self._limit is None else max(self._limit - len(self._held), 0)

    def _may_have(self, key: LeaseKey) -> bool:
        """Is a slot left for this one, after those who came before it?"""
        room = self._room()
        if room is None or len(self._waiting) < room:
            return True
        return key in islice(self._waiting, room)

    def _give(self, key: LeaseKey, until_s: float) -> float:
        self._waiting.pop(key, None)
        self._lapsed.pop(key, None)
        self._held[key] = until_s
        heappush(self._ends, (until_s, key))
        if len(self._ends) > _COMPACT_MIN and len(self._ends) > 2 * len(self._held):
            self._ends = [(until, key) for key, until in self._held.items()]
            heapify(self._ends)
        return until_s

    def _lapse(self, now_s: float) -> None:
        """A lease ends at its time: from then on it holds no slot."""
        while self._ends and self._ends[0][0] <= now_s:
            until_s, key = heappop(self._ends)
            if self._held.get(key) == until_s:
                del self._held[key]
                self._lapsed[key] = None
