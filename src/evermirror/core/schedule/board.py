"""Which host is asked next: hosts that are open, best first, and alarms for those that time will open.

Hosts that did not answer at their last try, or were not tried yet, stand apart from those that did: they must
not take all that may be under way. Every host has at most one living entry among the open ones and one among
the alarms; an entry is alive while its stamp is the host's. Whoever changes anything about a host settles it
again.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from evermirror.core.schedule.hosts import HostState, Rank

_Open = tuple[Rank, float, int, HostState]
_Alarm = tuple[float, int, HostState]
_COMPACT_MIN = 64  # dead entries are cleared all at once from here on


class _Side:
    """The hosts that answer, or those that do not."""

    __slots__ = ("alarms", "open", "urgent")

    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.alarms: list[_Alarm] = []
        self.urgent: list[_Alarm] = []  # a request waits for these

    def first(self) -> _Open | None:
        while self.open and self.open[0][2] != self.open[0][3].stamp:
            heappop(self.open)
        return self.open[0] if self.open else None

    def next_alarm(self, *, urgent: bool) -> float:
        alarms = self.urgent if urgent else self.alarms
        while alarms and alarms[0][1] != alarms[0][2].stamp:
            heappop(alarms)
        return alarms[0][0] if alarms else math.inf


class Board:
    """O(log hosts) for every change of a host."""

    __slots__ = ("_answering", "_hosts", "_silent", "_stamps")

    def __init__(self) -> None:
        self._hosts = 0  # on the board; what the heaps may hold alive
        self._stamps = 0
        self._answering = _Side()
        self._silent = _Side()

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
        side = self._silent if host.weather.silent else self._answering
        rank, key, at, urgent = host.opening(now)
        if rank is not None:
            heappush(side.open, (rank, key, stamp, host))
            if len(side.open) > _COMPACT_MIN and len(side.open) > 4 * self._hosts:
                side.open = [entry for entry in side.open if entry[2] == entry[3].stamp]
                heapify(side.open)
        if at < math.inf:
            alarms = side.urgent if urgent else side.alarms
            heappush(alarms, (at, stamp, host))
            if len(alarms) > _COMPACT_MIN and len(alarms) > 4 * self._hosts:
                alarms[:] = [entry for entry in alarms if entry[1] == entry[2].stamp]
                heapify(alarms)

    def advance(self, now: float) -> None:
        """Settle the hosts whose time has come."""
        for side in (self._answering, self._silent):
            for alarms in (side.urgent, side.alarms):
                while alarms and alarms[0][0] <= now:
                    _, stamp, host = heappop(alarms)
                    if stamp == host.stamp:
                        self.settle(host, now)

    def best(self, *, silent: bool) -> tuple[Rank, HostState] | None:
        """The host to ask and for what, among those that answer and, if so wished, the silent ones; it stays
        on the board until it is settled."""
        firsts = [first for side in self._sides(silent) if (first := side.first()) is not None]
        if not firsts:
            return None
        rank, _, _, host = min(firsts)
        return rank, host

    def next_alarm(self, *, urgent: bool, silent: bool) -> float:
        """When the next shut host opens by itself; infinity if none does."""
        return min(side.next_alarm(urgent=urgent) for side in self._sides(silent))

    def _sides(self, silent: bool) -> tuple[_Side, ...]:
        return (self._answering, self._silent) if silent else (self._answering,)
