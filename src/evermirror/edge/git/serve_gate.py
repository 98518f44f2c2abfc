"""Who may come in: so many at a time in all and of each client, a short line before the door, then no.

While somebody waits, a client that keeps its place and hardly moves a byte is sent away to make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from evermirror.core.fairness import FairShare, Pace, slowest
from evermirror.errors import EvermirrorError

LOOK_S = 0.5  # between two looks for a slow client, while somebody waits


class ServerBusy(EvermirrorError):
    """Too much is asked at once; ``retry_after_s`` is a guess at when it is worth another try."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many clones at once", hint=f"try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


@dataclass(eq=False, slots=True)
class Place:
    """What one client holds. ``paces`` and ``cut`` are set by whoever waits for that client inside."""

    client: str
    paces: tuple[Pace, ...] = ()
    cut: Callable[[], None] | None = None  # ends what is done for the client here


class Gate:
    """First come, first served among those whose client has room. At most half of the line is one's.

    ``fair``: no client has more places than are left. ``pace_bytes_s``: what a client must take or send
    while somebody waits."""

    def __init__(
        self,
        total: int,
        per_client: int,
        queue: int,
        wait_s: float,
        *,
        fair: bool = False,
        pace_bytes_s: float = 0.0,
    ) -> None:
        self._share = FairShare(total, per_client, fair=fair)
        self._queue = queue
        self._wait_s = wait_s
        self._pace_bytes_s = pace_bytes_s
        self._inside: set[Place] = set()
        self._line: list[tuple[Place, asyncio.Future[None]]] = []
        self.refused = 0
        self.cut = 0

    @property
    def running(self) -> int:
        return self._share.used

    @property
    def waiting(self) -> int:
        return len(self._line)

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[Place]:
        """Inside while the block runs, or until the client is cut. Raises ServerBusy."""
        place = Place(client)
        if self._share.take(client):
            self._inside.add(place)
        else:
            await self._stand_in_line(place)
        try:
            yield place
        finally:
            self._leave(place)

    def _leave(self, place: Place) -> None:
        if place not in self._inside:  # it was cut
            return
        self._inside.remove(place)
        self._share.give_back(place.client)
        for next_one in list(self._line):
            if not next_one[1].done() and self._share.take(next_one[0].client):
                self._inside.add(next_one[0])
                next_one[1].set_result(None)
                self._line.remove(next_one)
            elif self._share.used >= self._share.total:
                break

    async def _stand_in_line(self, place: Place) -> None:
        same = sum(1 for other, _ in self._line if other.client == place.client)
        if len(self._line) >= self._queue or same >= max(1, self._queue // 2):
            self.refused += 1
            raise ServerBusy(self._wait_s)
        loop = asyncio.get_running_loop()
        let_in = loop.create_future()
        standing = (place, let_in)
        self._line.append(standing)
        deadline = loop.time() + self._wait_s
        try:
            while not let_in.done() and (left_s := deadline - loop.time()) > 0:
                self._make_room(place.client, loop.time())
                await asyncio.wait({let_in}, timeout=min(left_s, LOOK_S))
        except BaseException:
            if let_in.done():  # let in and cancelled in the same moment
                self._leave(place)
            else:
                self._line.remove(standing)
            raise
        if not let_in.done():
            self._line.remove(standing)
            self.refused += 1
            raise ServerBusy(self._wait_s)

    def _make_room(self, client: str, now: float) -> None:
        """Cut a slow client that is inside, first of those with the most places, where that helps ``client``.

        Its place is free at once: it may be long until whoever sends to that client can be told."""
        if not self._share.fits(client, freed=1):
            return
        inside = ((p, self._share.has(p.client), p.paces if p.cut else ()) for p in self._inside)
        slow = slowest(inside, now, self._pace_bytes_s)
        if slow is not None and slow.cut is not None:
            self.cut += 1
            slow.cut()
            self._leave(slow)
