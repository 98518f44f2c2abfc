"""Who is due, and who of them is next: so that a decision looks at a few projects and not at all of them.

    enter ──at a later time──▶ timed (by time) ──release──▶ lanes: one a host, in it a heap for each class
      └──────due already────────────────────────────────────▲          │ the front of each lane
                                                                       ▼
                                    take ◀── fronts: a heap for each class ── no room at its host: parked

Rules
- Order within a class: batches that people asked for, first come, first served; then the schedule's, oldest
  sync first, never synced before all; then by key.
- ``release(now)`` says up to when projects are due. Whoever enters with an earlier time is due at once.
- The fronts hold one entry that counts for each lane and class, at or before the lane's true front. A host
  that turns out to have no room when its turn comes is parked: out of the fronts until ``unpark``.
- Entries of who left are not searched for: they are known by an old ticket, and dropped when they surface,
  or all at once when they outnumber the living.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from evermirror.model.repo import Host, Priority, RepoKey

CLASSES = len(Priority)
NEVER = -inf  # the sync of a project that had none
BATCH, SCHEDULED = 0, 1
_COMPACT_MIN = 64  # dropping dead entries all at once is worth it from here on


class Waiter:
    """Who stands in the queue. ``since``: its last sync; of a batch, its place among them."""

    __slots__ = ("batch", "host", "key", "rank", "since", "ticket")

    def __init__(self, key: RepoKey, host: Host) -> None:
        self.key = key
        self.host = host
        self.rank = 0
        self.since: float = NEVER
        self.batch = False
        self.ticket = 0  # 0: not in the queue; negative: timed


_Timed = tuple[float, int, Waiter]
_Ready = tuple[int, float, RepoKey, int, Waiter]


class _Lane:
    """Who is due at one host."""

    __slots__ = ("count", "heaps", "host", "parked", "shown")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.count = 0
        self.parked = False
        self.heaps: tuple[list[_Ready], ...] = tuple([] for _ in range(CLASSES))
        self.shown = [0] * CLASSES  # tickets of the entries in the fronts that count

    def front(self, rank: int) -> _Ready | None:
        heap = self.heaps[rank]
        while heap and heap[0][4].ticket != heap[0][3]:
            heappop(heap)
        return heap[0] if heap else None

    def push(self, entry: _Ready, rank: int) -> None:
        self.count += 1
        heap = self.heaps[rank]
        heappush(heap, entry)
        if len(heap) > _COMPACT_MIN and len(heap) > 2 * self.count:
            heap[:] = [e for e in heap if e[4].ticket == e[3]]
            heapify(heap)


_Front = tuple[int, float, RepoKey, int, _Lane]


class DueQueue:
    """See the module's rules."""

    __slots__ = ("_fronts", "_lanes", "_released", "_tickets", "_timed", "_timed_count", "ready")

    def __init__(self) -> None:
        self._tickets = 0
        self._released = -inf
        self._timed: list[_Timed] = []
        self._timed_count = 0
        self._lanes: dict[Host, _Lane] = {}
        self._fronts: tuple[list[_Front], ...] = tuple([] for _ in range(CLASSES))
        self.ready = [0] * CLASSES  # due and not taken, by class

    # Entering and leaving

    def enter(self, waiter: Waiter, at: float) -> None:
        """With its rank and place as they are in the waiter; it must not be in the queue."""
        self._tickets += 1
        if waiter.batch or at <= self._released:
            self._join(waiter)
            return
        waiter.ticket = -self._tickets
        self._timed_count += 1
        timed = self._timed
        heappush(timed, (at, waiter.ticket, waiter))
        if len(timed) > _COMPACT_MIN and len(timed) > 2 * self._timed_count:
            timed[:] = [e for e in timed if e[2].ticket == e[1]]
            heapify(timed)

    def leave(self, waiter: Waiter) -> None:
        """Wherever it stands, if it does."""
        if waiter.ticket < 0:
            self._timed_count -= 1
        elif waiter.ticket > 0:
            self._left(self._lanes[waiter.host], waiter.rank)
        waiter.ticket = 0

    def release(self, now: float) -> None:
        """Whose time has come is due."""
        self._released = now
        timed = self._timed
        while timed and timed[0][0] <= now:
            _, ticket, waiter = heappop(timed)
            if waiter.ticket == ticket:
                self._timed_count -= 1
                self._tickets += 1
                self._join(waiter)

    def rewind(self, now: float) -> None:
        """The clock went back: who enters from now on is due by the clock as it is."""
        self._released = min(self._released, now)

    def next_at(self) -> float | None:
        """When the next project becomes due."""
        timed = self._timed
        while timed and timed[0][2].ticket != timed[0][1]:
            heappop(timed)
        return timed[0][0] if timed else None

    def _join(self, waiter: Waiter) -> None:
        rank, ticket = waiter.rank, self._tickets
        waiter.ticket = ticket
        lane = self._lanes.get(waiter.host)
        if lane is None:
            lane = self._lanes[waiter.host] = _Lane(waiter.host)
        entry = (BATCH if waiter.batch else SCHEDULED, waiter.since, waiter.key, ticket, waiter)
        lane.push(entry, rank)
        self.ready[rank] += 1
        if not lane.parked and lane.heaps[rank][0] is entry:
            self._show(lane, rank)

    def _left(self, lane: _Lane, rank: int) -> None:
        self.ready[rank] -= 1
        lane.count -= 1
        if not lane.count:
            del self._lanes[lane.host]
            lane.shown = [0] * CLASSES  # what the fronts still have of it no longer counts

    # Who is next

    def take(
        self, ranks: Sequence[int], has_room: Callable[[Host], bool], *, batches_only: bool = False
    ) -> Waiter | None:
        """The next one of these classes at a host that has room, out of the queue."""
        for rank in ranks:
            front = self._first(rank, has_room)
            if front is not None and (front[0] == BATCH or not batches_only):
                waiter = front[4]
                waiter.ticket = 0
                lane = self._lanes[waiter.host]
                heappop(lane.heaps[rank])
                self._left(lane, rank)
                return waiter
        return None

    def _first(self, rank: int, has_room: Callable[[Host], bool]) -> _Ready | None:
        """The first of this class; its lane's entry is then the first of the fronts."""
        fronts = self._fronts[rank]
        while fronts:
            ticket, lane = fronts[0][3:]
            if lane.shown[rank] != ticket:
                heappop(fronts)
            elif (front := lane.front(rank)) is None:
                lane.shown[rank] = 0
                heappop(fronts)
            elif front[3] != ticket:
                lane.shown[rank] = front[3]
                heapreplace(fronts, (*front[:4], lane))
            elif has_room(lane.host):
                return front
            else:
                lane.parked = True
                lane.shown = [0] * CLASSES
        return None

    def _show(self, lane: _Lane, rank: int) -> None:
        front = lane.front(rank)
        if front is None:
            return
        lane.shown[rank] = front[3]
        fronts = self._fronts[rank]
        heappush(fronts, (*front[:4], lane))
        if len(fronts) > _COMPACT_MIN and len(fronts) > 2 * len(self._lanes):
            fronts[:] = [f for f in fronts if f[4].shown[rank] == f[3]]
            heapify(fronts)

    def unpark(self, host: Host) -> None:
        """It may have room again."""
        lane = self._lanes.get(host)
        if lane is not None and lane.parked:
            lane.parked = False
            for rank in range(CLASSES):
                self._show(lane, rank)
