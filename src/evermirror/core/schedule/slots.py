"""Which changed repo gets a git slot next.

Rules
- Order: those somebody waits for, then by priority class, then first come, first served.
- At most `slots` at once, and per host no more than its connections allow to transfers.
- A repo whose host is full does not hold up others. It keeps the next free connection of its host for itself.
- Hosts whose last transfer got no answer try one at a time, and have a quarter of the slots together.
- A host that asked us to wait is left alone by transfers as by polls (`is_open` tells).
- While clones are not allowed (the disk is nearly full) first clones wait, and everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from evermirror.core.schedule.hosts import Connections
from evermirror.model.repo import Host, RepoKey

_Order = tuple[int, int, int]  # not urgent, class rank, arrival


@dataclass(slots=True)
class _Waiting:
    key: RepoKey
    host: Host
    rank: int
    first: bool
    order: _Order


class _Lane:
    """Those who wait for one host; clones apart, as they can be held back."""

    __slots__ = ("clones", "connections", "updates")

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.updates: list[tuple[_Order, RepoKey]] = []
        self.clones: list[tuple[_Order, RepoKey]] = []

    def heap(self, first: bool) -> list[tuple[_Order, RepoKey]]:
        return self.clones if first else self.updates

    def best(self, clones_allowed: bool) -> tuple[_Order, RepoKey] | None:
        heads = [heap[0] for heap in (self.updates, self.clones if clones_allowed else []) if heap]
        return min(heads, default=None)


class SyncSlots:
    """``want`` → ``take`` → ``done``; ``drop`` for one that is no longer wanted before it was taken."""

    __slots__ = ("_arrivals", "_lanes", "_running", "_waiting", "clones_allowed", "slots", "touched")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.clones_allowed = True
        self.touched: set[Host] = set()  # hosts where what is left for polls changed; emptied by the reader
        self._arrivals = 0
        self._lanes: dict[Host, _Lane] = {}
        self._waiting: dict[RepoKey, _Waiting] = {}
        self._running: dict[RepoKey, Connections | None] = {}  # None: it has given its connection back

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def want(
        self, key: RepoKey, host: Host, connections: Connections, *, rank: int, first: bool, urgent: bool
    ) -> None:
        """This repo's refs moved; ``first`` says that there is no mirror of it yet."""
        if key in self._waiting or key in self._running:
            raise ValueError(f"{key} waits for a slot or has one already")
        self._arrivals += 1
        waiting = _Waiting(key, host, rank, first, (not urgent, rank, self._arrivals))
        self._waiting[key] = waiting
        lane = self._lanes.get(host)
        if lane is None:
            lane = self._lanes[host] = _Lane(connections)
        heappush(lane.heap(first), (waiting.order, key))

    def hasten(self, key: RepoKey) -> None:
        """Somebody waits for this repo now."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.order[0]:
            heap = self._lanes[waiting.host].heap(waiting.first)
            heap.remove((waiting.order, key))
            waiting.order = (0, *waiting.order[1:])
            heap.append((waiting.order, key))
            heapify(heap)

    def take(self, is_open: Callable[[Host], bool] = lambda _host: True) -> RepoKey | None:
        """The repo to sync now; it holds a slot and a connection from here until ``done``."""
        taken: RepoKey | None = None
        if len(self._running) < self.slots:
            able = [
                best
                for host, lane in self._lanes.items()
                if self._may_transfer(lane)
                and (best := lane.best(self.clones_allowed)) is not None
                and is_open(host)
            ]
            if able:
                taken = min(able)[1]
                waiting = self._waiting.pop(taken)
                lane = self._lanes[waiting.host]
                heappop(lane.heap(waiting.first))
                lane.connections.transfers += 1
                self._running[taken] = lane.connections
                self.touched.add(waiting.host)
        for host in list(self._lanes):
            self._reserve(host)
        return taken

    def held_up(self) -> list[Host]:
        """Hosts for which a repo could be taken if only they were open."""
        if len(self._running) >= self.slots:
            return []
        return [
            host
            for host, lane in self._lanes.items()
            if self._may_transfer(lane) and lane.best(self.clones_allowed) is not None
        ]

    def _may_transfer(self, lane: _Lane) -> bool:
        if not lane.connections.may_transfer:
            return False
        if not lane.connections.stuck:
            return True
        stuck = sum(1 for held in self._running.values() if held is not None and held.stuck)
        return stuck < max(1, self.slots // 4)

    def leave_host(self, key: RepoKey) -> None:
        """What is left of the sync does not need its host."""
        connections = self._running[key]
        if connections is not None:
            connections.transfers -= 1
            self._running[key] = None

    def done(self, key: RepoKey) -> None:
        """The sync ended, well or not."""
        self.leave_host(key)
        del self._running[key]

    def drop(self, key: RepoKey) -> None:
        """The repo is no longer wanted; nothing happens if it does not wait."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            heap = self._lanes[waiting.host].heap(waiting.first)
            heap.remove((waiting.order, key))
            heapify(heap)
            self._reserve(waiting.host)

    def _reserve(self, host: Host) -> None:
        """Keep a connection for a transfer that only waits for one; forget lanes in which nobody waits."""
        lane = self._lanes[host]
        connections = lane.connections
        waits = (
            len(self._running) < self.slots
            and connections.transfers < connections.transfers_max
            and not connections.may_transfer
            and lane.best(self.clones_allowed) is not None
        )
        if waits != connections.transfer_waits:
            connections.transfer_waits = waits
            self.touched.add(host)
        if not lane.updates and not lane.clones:
            del self._lanes[host]
