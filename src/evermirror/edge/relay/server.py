"""The relay: workers leave lines here, readers ask over them.

    worker ══ serving line ══▶ │ holders ◀── ask (this process)
                               │    ▲
    reader ══ asking line ═══▶ │ ───┘   each request with a ticket, unless the reader is an aggregator

Who a node is says its pass. Holders are told the reader's name and ticket, never its pass: with that they
could pretend to be it. They believe this relay, whose certificate the coordinator told them.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import structlog

from evermirror.edge.git.serve_gate import Gate, ServerBusy
from evermirror.edge.net.accept import Acceptor, listen
from evermirror.edge.relay.ask import Ask, HolderAway, HolderRefused, ReaderRefused
from evermirror.edge.relay.certificate import RelayCertificate, listening_context
from evermirror.edge.relay.exchange import Incoming, answer, question
from evermirror.edge.relay.frames import SERVING, VERSION, Admitted, Hello, Refused, Request
from evermirror.edge.relay.holders import Holders
from evermirror.edge.relay.limits import RelayLimits
from evermirror.edge.relay.line import Line, LineBroken, Scratch
from evermirror.edge.relay.seal import SealInvalid, Unsealer, check_ticket
from evermirror.edge.relay.strangers import Strangers
from evermirror.errors import EnvironmentUnfit
from evermirror.model.access import Role
from evermirror.model.relay import Denial, NodeId, Pass

BACKLOG = 1_024
LATER_S = 10.0  # a node that finds no room tries again then
SOON_S = 0.5  # one that comes before the coordinator's word, at a start
_READERS = (Role.WORKER, Role.AGGREGATOR)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RelayFigures:
    """Now, and since the start."""

    holders: int
    serving_lines: int
    free_lines: int
    asking_lines: int
    running: int
    waiting: int
    refused: int
    answered: int
    passed_bytes: int


class RelayServer:
    """``async with``: listens inside the block. A ``Reach`` for readers in this process."""

    def __init__(
        self,
        listen: tuple[str, int],
        certificate: RelayCertificate,
        unsealer_of: Callable[[], Unsealer | None],
        limits: RelayLimits | None = None,
        clock: Callable[[], float] = time.time,
        *,
        last_port: int = 0,
    ) -> None:
        """Where the system may choose the port, ``last_port`` is taken again if it is free."""
        limits = limits if limits is not None else RelayLimits()
        self._listen = listen
        self._last_port = last_port
        self._context: ssl.SSLContext = listening_context(certificate)
        self._unsealer_of = unsealer_of
        self._limits = limits
        self._clock = clock
        self._holders = Holders(limits)
        self._gate = Gate(limits.asks_max, limits.asks_per_reader, limits.queue, limits.queue_wait_s)
        self._scratch = Scratch()
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: Strangers[Line] = Strangers(limits)
        self._asking: dict[NodeId, set[Line]] = {}
        self._denied: dict[NodeId, float] = {}  # until when
        self._answered = 0
        self._passed_bytes = 0
        self._server: Acceptor | None = None
        self.on_arrival: Callable[[], None] = lambda: None  # a holder can be reached that could not be

    async def __aenter__(self) -> Self:
        host, port = self._listen
        if port == 0 and self._last_port:
            with suppress(OSError):  # somebody else has it now
                self._server = await self._listening(host, self._last_port)
                return self
        try:
            self._server = await self._listening(host, port)
        except OSError as error:
            raise EnvironmentUnfit(
                f"the relay cannot listen on {host}:{port}: {error.strerror or error}",
                hint="Choose another address with relay.listen",
            ) from None
        return self

    async def _listening(self, host: str, port: int) -> Acceptor:
        return await listen(host or None, port, self._new_line, BACKLOG)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """That it listens on."""
        if self._server is None:
            raise RuntimeError("the relay does not listen yet")
        return int(self._server.sockets[0].getsockname()[1])

    def figures(self) -> RelayFigures:
        """For people and for Prometheus."""
        return RelayFigures(
            holders=len(self._holders),
            serving_lines=self._holders.lines,
            free_lines=self._holders.free,
            asking_lines=self._asking_lines,
            running=self._gate.running,
            waiting=self._gate.waiting,
            refused=self._gate.refused,
            answered=self._answered,
            passed_bytes=self._passed_bytes,
        )

    def reachable(self, holder: NodeId) -> bool:
        """It has a line here."""
        return self._holders.has(holder)

    def deny(self, denied: Iterable[Denial]) -> None:
        """Refuse these nodes from now on, and no others, whatever their passes say. All their lines end at
        once, with what they carry."""
        now = self._clock()
        self._denied = {d.node: d.until for d in denied if d.until > now}
        for node in self._denied:
            for line in (*self._holders.of(node), *self._asking.get(node, ())):
                line.abort("this node was shut out")

    # Asking

    async def ask(self, ask: Ask, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """As ``Reach.ask``, over the lines that are here."""
        reader = self._who(ask.reader_pass)
        request = Request(
            ask.key, ask.service, ask.protocol, ask.holder, reader.node, reader.role, ask.ticket
        )
        async with aclosing(self._pass_on(reader, request, body)) as pieces:
            async for piece in pieces:
                yield piece

    async def _pass_on(
        self, reader: Pass, request: Request, body: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """Its words about itself are replaced by what its pass says."""
        self._check(reader, request)
        request = replace(request, reader=reader.node, role=reader.role)
        try:
            async with self._gate.hold(reader.node):
                line = await self._holders.take(request.holder)
                try:
                    pieces = question(line, request, body, self._limits.line.silence_s)
                    async with aclosing(pieces):
                        async for piece in pieces:
                            self._passed_bytes += len(piece)
                            yield piece
                    self._answered += 1
                finally:
                    self._holders.give_back(request.holder, line)
        except ReaderRefused as refused:  # only a relay may say so
            raise HolderRefused(refused.reason) from None
        except ServerBusy as busy:
            raise HolderAway("too many questions at this relay", busy.retry_after_s) from None

    def _who(self, pass_: str) -> Pass:
        if (unsealer := self._unsealer_of()) is None:
            raise _unheard()
        try:
            reader = unsealer.read_pass(pass_, self._clock())
        except SealInvalid as error:
            raise ReaderRefused(error.message) from None
        if reader.role not in _READERS or self._is_denied(reader.node):
            raise ReaderRefused(f"{reader.node} is not let in here")
        return reader

    def _is_denied(self, node: NodeId) -> bool:
        return self._denied.get(node, 0.0) > self._clock()

    def _check(self, reader: Pass, request: Request) -> None:
        now = self._clock()
        if reader.until <= now:
            raise ReaderRefused("the pass has ended")
        if self._is_denied(reader.node):
            raise ReaderRefused(f"{reader.node} is not let in here")
        if reader.role is Role.AGGREGATOR:
            return
        if (unsealer := self._unsealer_of()) is None:
            raise _unheard()
        try:
            ticket = unsealer.read_ticket(request.ticket, now)
            check_ticket(ticket, bearer=reader.node, holder=request.holder, key=request.key)
            if ticket.trusted and not reader.trusted:
                raise SealInvalid("the ticket is a trusted reader's")
        except SealInvalid as error:
            raise ReaderRefused(error.message) from None

    # Lines

    def _new_line(self) -> Line:
        return Line(self._context, self._scratch, self._limits.line, server_side=True, made=self._begin)

    def _begin(self, line: Line) -> None:
        if (other := self._strangers.enter(line, line.peer_host)) is not None:
            other.abort("too many strangers: a newer one has its place")
        task = asyncio.get_running_loop().create_task(self._meet(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _meet(self, line: Line) -> None:
        try:
            try:
                hello, who = await self._admit(line)
            finally:
                self._strangers.leave(line)
            self._strangers.admitted(line.peer_host)
            if self._is_denied(who.node):  # it was shut out while it was let in: nobody ended this line
                raise ReaderRefused(f"{who.node} is not let in here")
            if hello.way == SERVING:
                await self._keep(line, who)
            else:
                await self._listen_to(line, who)
        except LineBroken as broken:
            log.debug("a line ended", why=broken.message)
        except HolderRefused as refused:
            await self._refuse(line, Refused(refused.reason, 0.0))
        except HolderAway as away:
            await self._refuse(line, Refused(away.message, away.retry_after_s))
        finally:
            line.close("over")

    async def _refuse(self, line: Line, refused: Refused) -> None:
        with suppress(LineBroken):
            await line.send(refused)
            line.close("refused")

    async def _admit(self, line: Line) -> tuple[Hello, Pass]:
        await line.ready()
        hello = await line.next(self._limits.line.hello_s)
        if not isinstance(hello, Hello):
            raise line.out_of_order(hello)
        if hello.version != VERSION:
            raise HolderRefused(f"this relay speaks version {VERSION}")
        who = self._who(hello.pass_)
        if hello.way == SERVING:
            if who.role is not Role.WORKER:
                raise HolderRefused("only workers are read from")
            if not self._holders.has_room(who.node):
                raise HolderAway("no room for another line", LATER_S)
        elif not self._has_room_for_asking(who.node):
            raise HolderAway("no room for another line", LATER_S)
        await line.send(Admitted())
        return hello, who

    @property
    def _asking_lines(self) -> int:
        return sum(map(len, self._asking.values()))

    def _has_room_for_asking(self, node: NodeId) -> bool:
        limits, own = self._limits, len(self._asking.get(node, ()))
        return own < limits.asking_per_node and self._asking_lines < limits.asking_lines_max

    async def _keep(self, line: Line, who: Pass) -> None:
        """Until it breaks, or its pass ends and with it the request that it then carries."""
        line.idle = True
        new = not self._holders.has(who.node)
        self._holders.enter(who.node, line)
        if new:
            self.on_arrival()
        try:
            await asyncio.wait({line.gone}, timeout=max(0.0, who.until - self._clock()))
            if not line.gone.done():
                self._holders.retire(who.node, line)
                await asyncio.wait({line.gone})
        finally:
            self._holders.leave(who.node, line)

    async def _listen_to(self, line: Line, who: Pass) -> None:
        self._asking.setdefault(who.node, set()).add(line)
        try:
            while True:
                line.idle = True
                request = await line.next(self._limits.line.quiet_s)
                if not isinstance(request, Request):
                    raise line.out_of_order(request)
                await answer(line, self._limits.line, self._passing(who, request))
        finally:
            self._asking[who.node].discard(line)
            if not self._asking[who.node]:
                del self._asking[who.node]

    def _passing(self, who: Pass, request: Request) -> Callable[[Incoming], AsyncGenerator[bytes, None]]:
        return lambda body: self._pass_on(who, request, body)


def _unheard() -> HolderAway:
    return HolderAway("the relay has not heard from its coordinator yet", SOON_S)
