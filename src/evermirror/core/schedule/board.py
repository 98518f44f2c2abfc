"""Which host is asked next: hosts that are open, best first, and alarms for those that time will open.

Every host has at most one living entry among the open ones and one among the alarms; an entry is alive while
its stamp is the host's. Whoever changes anything about a host settles it again.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from evermirror.core.schedule.hosts import HostState, Rank

_Alarm = tuple[float, int, HostState]
_COMPACT_MIN = 64  # dead entries are cleared all at once from here on


class Board:
    """O(log hosts) for every change of a host."""

    __slots__ = ("_alarms", "_hosts", "_open", "_stamps", "_urgent")

    def __init__(self) -> None:
        self._hosts = 0  # on the board; what the heaps may hold alive
        self._stamps = 0
        self._open: list[tuple[Rank, float, int, HostState]] = []
        self._alarms: list[_Alarm] = []
        self._urgent: list[_Alarm] = []  # a request waits for these

    def put(self) -> None:
        """A new host; it is settled when it has repos."""
        self._hosts += 1

    def drop(self, host: HostState) -> None:
        """The host has no repos any more."""
        self._hosts -= 1
        host.stamp = -1

    def settle(self, host: HostState, now: float) -> None:
        """Something about this host changed: judge it anew."""
        self._stamps += 1
        host.stamp = stamp = self._stamps
        rank, key, at, urgent = host.opening(now)
        if rank is not None:
            heappush(self._open, (rank, key, stamp, host))
            if len(self._open) > _COMPACT_MIN and len(self._open) > 4 * self._hosts:
                self._open = [entry for entry in self._open if entry[2] == entry[3].stamp]
                heapify(self._open)
        if at < math.inf:
            alarms = self._urgent if urgent else self._alarms
            heappush(alarms, (at, stamp, host))
            if len(alarms) > _COMPACT_MIN and len(alarms) > 4 * self._hosts:
                alarms[:] = [entry for entry in alarms if entry[1] == entry[2].stamp]
                heapify(alarms)

    def advance(self, now: float) -> None:
        """Settle the hosts whose time has come."""
        for alarms in (self._urgent, self._alarms):
            while alarms and alarms[0][0] <= now:
                _, stamp, host = heappop(alarms)
                if stamp == host.stamp:
                    self.settle(host, now)

    def best(self) -> tuple[Rank, HostState] | None:
        """The host to ask and for what; it stays on the board until it is settled."""
        heap = self._open
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        return (heap[0][0], heap[0][3]) if heap else None

    def next_alarm(self, *, urgent: bool) -> float:
        """When the next shut host opens by itself; infinity if none does."""
        alarms = self._urgent if urgent else self._alarms
        while alarms and alarms[0][1] != alarms[0][2].stamp:
            heappop(alarms)
        return alarms[0][0] if alarms else math.inf
