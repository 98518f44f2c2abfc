"""Reads: answered from memory while that is fresh, else asked for once for all who want the same.

The first who wants something asks; the others wait for what it gets:
    a whole answer      everybody gets it
    large, or no 200    meant for the one who asked: each of the others asks for itself
    away                everybody is told
    the first gave up   the next one asks
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from enum import Enum

from evermirror.faces.pass_on.headers import value_of
from evermirror.faces.pass_on.kept import ANSWER_BYTES_MAX, Answer, Kept, Key
from evermirror.faces.pass_on.upstream import Asked, CoordinatorAway, Opened, Upstream

READ_S = 15.0  # for an answer to a read to begin, and again for all of one that is kept
REST_S = 2.0  # after no answer came, what is kept is given at once for so long

_EVENTS = b"text/event-stream"


class _Ended(Enum):
    ALONE = "the others ask for themselves"
    AGAIN = "nobody has asked"


_Told = Answer | CoordinatorAway | _Ended


class Reads:
    """``get`` raises CoordinatorAway; then ``kept.stale`` may have something."""

    def __init__(
        self,
        upstream: Upstream,
        kept: Kept,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        self._upstream = upstream
        self._kept = kept
        self._clock = clock
        self._utc = utc
        self._flights: dict[tuple[Key, int], asyncio.Future[_Told]] = {}
        self._rest_until = float("-inf")

    async def get(self, key: Key, asked: Asked) -> Answer | Opened:
        while True:
            if (found := self._kept.fresh(key)) is not None:
                return found
            if self._clock() < self._rest_until and self._kept.stale(key) is not None:
                raise CoordinatorAway(self._upstream.state.reason)
            flight = self._flights.get((key, self._kept.writes))
            if flight is None:
                return await self._first(key, asked)
            told = await asyncio.shield(flight)
            match told:
                case Answer():
                    return told
                case CoordinatorAway():
                    raise CoordinatorAway(str(told))
                case _Ended.ALONE:
                    return await self._opened(key, asked)

    async def _first(self, key: Key, asked: Asked) -> Answer | Opened:
        writes = self._kept.writes
        flight = self._flights[key, writes] = asyncio.get_running_loop().create_future()
        told: _Told = _Ended.AGAIN
        try:
            opened = await self._opened(key, asked)
            got = await self._whole(opened, writes)
            if isinstance(got, Answer):
                self._kept.keep(key, got)
                told = got
            else:
                told = _Ended.ALONE
            return got
        except CoordinatorAway as away:
            self._rest_until = self._clock() + REST_S
            told = away
            raise
        finally:
            del self._flights[key, writes]
            flight.set_result(told)

    async def _opened(self, key: Key, asked: Asked) -> Opened:
        opened = await self._upstream.ask(asked, within_s=READ_S)
        if opened.status == 401 and key.token:
            self._kept.refused(key.token)
        return opened

    async def _whole(self, opened: Opened, writes: int) -> Answer | Opened:
        """All of it, where it is one to be kept; else the part that was read, and the rest as it comes."""
        events = value_of(opened.headers, b"content-type").startswith(_EVENTS)
        if opened.status != 200 or events or (opened.length or 0) > ANSWER_BYTES_MAX:
            return opened
        handed_on = False
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(READ_S):
                async for part in opened.body:
                    parts.append(part)
                    size += len(part)
                    if size > ANSWER_BYTES_MAX:
                        handed_on = True
                        return replace(opened, body=_joined(parts, opened.body))
        except TimeoutError:
            raise CoordinatorAway("it does not answer in time") from None
        finally:
            if not handed_on:
                await opened.close()
        return Answer(opened.headers, b"".join(parts), self._clock(), self._utc(), writes)


async def _joined(parts: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"".join(parts)
    async for part in rest:
        yield part
