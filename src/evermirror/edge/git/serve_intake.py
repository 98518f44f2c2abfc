"""Requests of git clients, on their way in: held in bounded memory, and scanned beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from evermirror.core.fairness import FairShare
from evermirror.edge.git.pktline import PktError
from evermirror.edge.git.serve_gate import ServerBusy
from evermirror.edge.git.serve_request import BadRequest, RequestScan, filter_is_served, without_filters

HELD_BYTES = (
    1_000_000  # of a request, before git is started: wants of 20,000 refs; more is passed on as it comes
)
HELD_BYTES_TOTAL = 64_000_000  # of all requests, also while they are answered; one client gets half of it
SCANNED_AT_ONCE = 4_096  # bytes, scanned on the event loop in less than a millisecond: most requests
RETRY_S = 5.0  # where there is no room: requests are small, and room is soon there

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Request:
    """The first part of a request, and whether that is all."""

    scan: RequestScan
    held: bytes
    whole: bool


class Intake:
    """Reads requests. One thread scans them: it slows the event loop down, and never stops it."""

    def __init__(self, filters: Collection[str], held_bytes_total: int = HELD_BYTES_TOTAL) -> None:
        self._filters = filters
        self._room = FairShare(held_bytes_total)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="git-requests")

    @asynccontextmanager
    async def read(self, body: AsyncIterator[bytes], client: str) -> AsyncIterator[Request]:
        """What fits into memory, for as long as the block lasts. Raises ServerBusy, BadRequest.

        A filter that is not served is left out: the client gets all objects, as from a server that knows no
        filters. git would refuse it."""
        scan = RequestScan()
        held = bytearray()
        whole = True
        taken = 0
        try:
            async for piece in body:
                if not self._room.take(client, len(piece)):
                    raise ServerBusy(RETRY_S)
                taken += len(piece)
                await self.feed(scan, piece)
                held += piece
                if len(held) > HELD_BYTES:
                    whole = False
                    break
            if not all(filter_is_served(spec, self._filters) for spec in scan.filters):
                held = bytearray(await self._beside(without_filters, bytes(held)))
                scan = RequestScan()
                await self.feed(scan, bytes(held))
            yield Request(scan, bytes(held), whole)
        finally:
            self._room.give_back(client, taken)

    async def feed(self, scan: RequestScan, piece: bytes) -> set[bytes]:
        """As ``RequestScan.feed``; raises BadRequest."""
        try:
            if len(piece) <= SCANNED_AT_ONCE:
                return scan.feed(piece)
            return await self._beside(scan.feed, piece)
        except PktError as error:
            raise BadRequest(f"the request is not git's: {error}") from None

    async def _beside(self, work: Callable[[bytes], _T], data: bytes) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, data)
