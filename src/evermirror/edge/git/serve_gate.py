"""Who may come in: so many at a time in all and of each client, a short line before the door, then no."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evermirror.errors import EvermirrorError


class ServerBusy(EvermirrorError):
    """Too much is asked at once; ``retry_after_s`` is a guess at when it is worth another try."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many clones at once", hint=f"try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class Gate:
    """First come, first served among those whose client has room. At most half of the line is one's."""

    def __init__(self, total: int, per_client: int, queue: int, wait_s: float) -> None:
        self._total = total
        self._per_client = per_client
        self._queue = queue
        self._wait_s = wait_s
        self._inside: Counter[str] = Counter()
        self._line: list[tuple[str, asyncio.Future[None]]] = []
        self.running = 0
        self.refused = 0

    @property
    def waiting(self) -> int:
        return len(self._line)

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Inside while the block runs. Raises ServerBusy."""
        if self._has_room(client):
            self._enter(client)
        else:
            await self._stand_in_line(client)
        try:
            yield
        finally:
            self._leave(client)

    def _has_room(self, client: str) -> bool:
        return self.running < self._total and self._inside[client] < self._per_client

    def _enter(self, client: str) -> None:
        self.running += 1
        self._inside[client] += 1

    def _leave(self, client: str) -> None:
        self.running -= 1
        self._inside[client] -= 1
        if not self._inside[client]:
            del self._inside[client]
        for place in list(self._line):
            if self._has_room(place[0]) and not place[1].done():
                self._enter(place[0])
                place[1].set_result(None)
                self._line.remove(place)
            elif self.running >= self._total:
                break

    async def _stand_in_line(self, client: str) -> None:
        same = sum(1 for other, _ in self._line if other == client)
        if len(self._line) >= self._queue or same >= max(1, self._queue // 2):
            self.refused += 1
            raise ServerBusy(self._wait_s)
        place = (client, asyncio.get_running_loop().create_future())
        self._line.append(place)
        try:
            await asyncio.wait({place[1]}, timeout=self._wait_s)
        except BaseException:
            if place[1].done():  # let in and cancelled in the same moment
                self._leave(client)
            else:
                self._line.remove(place)
            raise
        if not place[1].done():
            self._line.remove(place)
            self.refused += 1
            raise ServerBusy(self._wait_s)
