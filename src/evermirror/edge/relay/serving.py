"""A worker's lines: at least one idle at each relay, and what is asked over them answered.

dial ─▶ idle ─ request ─▶ busy ─ answered ─▶ idle, or closed where another one is
          │                 └▶ at once the next is dialled, up to ``lines_max``
          └ broken ─▶ dial again, after a growing, jittered pause while that fails; it ends when the
                      coordinator names the relay again, as it does when that one is back
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol

import structlog

from evermirror.edge.relay.ask import ReadRequest
from evermirror.edge.relay.certificate import dialling_context
from evermirror.edge.relay.dial import DialFailed, dial
from evermirror.edge.relay.exchange import Busy, Incoming, NotHere, Refused, answer
from evermirror.edge.relay.frames import SERVING, Request
from evermirror.edge.relay.limits import ServingLimits
from evermirror.edge.relay.line import Line, LineBroken, Scratch
from evermirror.edge.relay.seal import SealInvalid, Unsealer, check_ticket
from evermirror.model.access import Role
from evermirror.model.relay import RelayAddress
from evermirror.model.wire import Access

__all__ = ["Busy", "LineService", "NotHere", "Refused", "ServingLines"]

LONG_ENOUGH_S = 5.0  # a line that lived so long was no failure
RELAYS_MAX = 64

log = structlog.get_logger(__name__)


class LineService(Protocol):
    """What a worker answers with: git, for the repos that it holds."""

    def handle(self, request: ReadRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Raises Busy, NotHere, Refused before the first byte. It is closed when the reader leaves."""
        ...


class ServingLines:
    """``set_access`` whenever the coordinator sends one; lines are kept while ``run`` runs."""

    def __init__(
        self,
        service: LineService,
        limits: ServingLimits | None = None,
        *,
        chance: random.Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._limits = limits if limits is not None else ServingLimits()
        self._chance = chance if chance is not None else random.Random()  # noqa: S311
        self._clock = clock
        self._context = dialling_context()
        self._scratch = Scratch()
        self._access: Access | None = None
        self._changed = asyncio.Event()
        self._links: dict[RelayAddress, _Link] = {}

    def set_access(self, access: Access | None) -> None:
        """Who this node is, and where relays are; None: nobody any more, every line is closed."""
        self._access = access
        self._changed.set()

    @property
    def connected(self) -> tuple[RelayAddress, ...]:
        """Relays over which this node can be asked now."""
        return tuple(relay for relay, link in self._links.items() if link.lines)

    async def run(self) -> None:
        """Until cancelled."""
        tasks: dict[RelayAddress, asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                wanted = self._access.relays[:RELAYS_MAX] if self._access is not None else ()
                gone = [relay for relay in tasks if relay not in wanted]
                for relay in gone:
                    tasks[relay].cancel()
                await asyncio.gather(*(tasks.pop(relay) for relay in gone), return_exceptions=True)
                for relay in wanted:
                    if relay not in tasks:
                        link = self._links[relay] = _Link(self, relay)
                        tasks[relay] = asyncio.create_task(link.run())
                    elif (known := self._links.get(relay)) is not None:
                        known.named_again()
                await self._changed.wait()
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def forget(self, relay: RelayAddress) -> None:
        self._links.pop(relay, None)

    def pause_s(self, failures: int, wish_s: float) -> float:
        """Half of it is chance, so that a thousand workers do not come back at once."""
        limits = self._limits
        full = min(limits.pause_last_s, limits.pause_first_s * 2.0 ** min(failures - 1, 30))
        return max(full, min(wish_s, limits.pause_last_s)) * self._chance.uniform(0.5, 1.0)

    @property
    def lines_max(self) -> int:
        return self._limits.lines_max

    async def open(self, relay: RelayAddress) -> Line:
        access = self._access
        if access is None:
            raise DialFailed("not told yet who we are")
        limits = self._limits.line
        return await dial(relay, SERVING, access.pass_, self._context, self._scratch, limits)

    async def serve(self, line: Line, request: Request) -> None:
        """One request, wherever it came from. Raises LineBroken."""
        await answer(line, self._limits.line, lambda body: self._handled(request, body))

    async def _handled(self, request: Request, body: Incoming) -> AsyncGenerator[bytes, None]:
        pieces = self._service.handle(self._checked(request), body)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    def _checked(self, request: Request) -> ReadRequest:
        """The relay has checked the same; a second look is cheap, and ours to answer for."""
        access = self._access
        ticket = None
        if access is None:
            raise Refused("this node has left")
        if request.role is not Role.AGGREGATOR:
            try:
                ticket = Unsealer(access.seal_key).read_ticket(request.ticket, self._clock())
                check_ticket(ticket, bearer=request.reader, holder=access.node, key=request.key)
            except SealInvalid as error:
                raise Refused(error.message) from None
        return ReadRequest(
            request.key, request.service, request.protocol, request.reader, request.role, ticket
        )


class _Link:
    """The lines to one relay."""

    def __init__(self, owner: ServingLines, relay: RelayAddress) -> None:
        self._owner = owner
        self._relay = relay
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = 0
        self._needed = asyncio.Event()
        self._failures = 0
        self._wish_s = 0.0
        self._named = asyncio.Event()
        self.lines = 0

    def named_again(self) -> None:
        """The coordinator says that it is there: what failed before tells nothing of it."""
        self._failures = 0
        self._named.set()

    async def run(self) -> None:
        try:
            while True:
                self._needed.clear()
                if self._idle == 0 and len(self._tasks) < self._owner.lines_max:
                    await self._rest()
                    await self._open()
                else:
                    await self._needed.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._owner.forget(self._relay)

    async def _rest(self) -> None:
        self._named.clear()
        if self._failures:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._owner.pause_s(self._failures, self._wish_s)):
                    await self._named.wait()

    async def _open(self) -> None:
        try:
            line = await self._owner.open(self._relay)
        except DialFailed as failed:
            self._failures += 1
            self._wish_s = failed.retry_after_s
            level = log.warning if self._failures == 1 else log.debug
            level("no line to a relay", relay=self._relay.address, why=failed.message)
            return
        except Exception:  # a bug of ours, or a relay that found one: other relays are served on
            self._failures += 1
            if self._failures == 1:
                log.exception("no line to a relay", relay=self._relay.address)
            return
        self._idle += 1
        task = asyncio.create_task(self._hold(line))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._needed.set()

    async def _hold(self, line: Line) -> None:
        """One line's life; while it is idle it counts as such."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        idle, served = True, False
        self.lines += 1
        try:
            while True:
                request = await line.next(None)
                if not isinstance(request, Request):
                    raise line.out_of_order(request)
                idle = False
                self._idle -= 1
                self._failures = 0
                self._needed.set()
                await self._owner.serve(line, request)
                idle = served = True
                self._idle += 1
        except LineBroken as broken:
            log.debug("a line ended", relay=self._relay.address, why=broken.message)
        finally:
            self.lines -= 1
            if idle:
                self._idle -= 1
                useful = served or loop.time() - began > LONG_ENOUGH_S
                self._failures = 0 if useful else self._failures + 1
                self._wish_s = 0.0
            line.close("over")
