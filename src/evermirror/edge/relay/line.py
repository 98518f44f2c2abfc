"""One line: a TLS connection that carries frames, no faster than the slower side takes them.

TLS is done here, over memory, and not by asyncio's own layer: that holds 256 KiB for each connection, and
relays hold thousands that are idle. Received bytes pass through two buffers that all lines of an owner share.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from evermirror.edge.relay.frames import (
    PAYLOAD_BYTES_MAX,
    Body,
    FrameError,
    FrameReader,
    Hello,
    Kind,
    Message,
    Ping,
    Pong,
    Request,
    encode,
    head,
)
from evermirror.edge.relay.limits import LineLimits
from evermirror.errors import EvermirrorError

CHUNK_BYTES = 256 * 1024  # read from a socket at once: its wake-up costs as much as for 4 KiB
PLAIN_BYTES = CHUNK_BYTES + 16 * 1024  # that, and a record whose beginning came before
INBOX_BYTES = 1024 * 1024  # taken in before anybody asks for it; then the sender waits
OUTBOX_BYTES = 512 * 1024  # not yet taken by the socket; then we wait
_MESSAGE_BYTES = 200  # what a frame without anything in it counts for


class LineBroken(EvermirrorError):
    """The line is gone; the message says why."""


class Scratch:
    """Where received bytes are for a moment, before and after they are decrypted."""

    def __init__(self) -> None:
        self.sealed = memoryview(bytearray(CHUNK_BYTES))
        self.plain = memoryview(bytearray(PLAIN_BYTES))


class Line(asyncio.BufferedProtocol):
    """``ready``, then ``send`` and ``next``; ``abort`` or ``close`` at the end."""

    def __init__(
        self,
        context: ssl.SSLContext,
        scratch: Scratch,
        limits: LineLimits,
        *,
        server_side: bool,
        made: Callable[[Line], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._scratch = scratch
        self._limits = limits
        self._made = made
        self._server_side = server_side
        self._sealed_in, self._sealed_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._sealed_in, self._sealed_out, server_side=server_side)
        self._transport: asyncio.Transport | None = None
        self.peer_host = ""  # where it comes from
        self._frames = FrameReader()
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._reading = True
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._shaken: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = self._moved_at = loop.time()
        self.gone: asyncio.Future[None] = loop.create_future()  # done once nothing can be said any more
        self.why = ""
        self.idle = False  # no request is under way: signs of life are due
        self.received_bytes = 0
        self.sent_bytes = 0

    @property
    def fresh(self) -> bool:
        """A request can be sent: nothing is broken, nothing was said that nobody asked for."""
        return not self.why and not self._inbox

    @property
    def peer_certificate(self) -> bytes:
        return self._tls.getpeercert(binary_form=True) or b""

    async def ready(self) -> None:
        """The handshake is done. Raises LineBroken."""
        try:
            async with asyncio.timeout(self._limits.hello_s):
                await asyncio.wait({self._shaken, self.gone}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self.abort(f"no handshake in {self._limits.hello_s:g} s")
        self._check()

    async def next(self, silence_s: float | None) -> Message:
        """What is said next. Raises LineBroken, also where nothing moved on the line for so long."""
        began = self._loop.time()
        while not self._inbox:
            self._check()
            self._arrived.clear()
            left = None if silence_s is None else max(self._moved_at, began) + silence_s - self._loop.time()
            if left is not None and left <= 0:
                self.abort(f"silent for {silence_s:g} s")
                continue
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                continue
        message = self._inbox.popleft()
        self._inbox_bytes -= _weight(message)
        if not self._reading and self._inbox_bytes <= INBOX_BYTES // 2:
            self._reading = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return message

    async def send(self, message: Message) -> None:
        """Returns once there is room for more. Raises LineBroken, also where the other side takes nothing."""
        self._check()
        if isinstance(message, Body):
            view = memoryview(message.data)
            for at in range(0, len(view), PAYLOAD_BYTES_MAX):
                piece = view[at : at + PAYLOAD_BYTES_MAX]
                self._write(head(Kind.BODY, len(piece)), piece)
                await self._room()
        else:
            self._write(encode(message))
            await self._room()

    def abort(self, why: str) -> None:
        """At once; what was not sent yet is lost."""
        self._lost(why)
        if self._transport is not None:
            self._transport.abort()

    def close(self, why: str = "closed") -> None:
        """What was said is still sent, if the other side takes it soon."""
        if self.why:
            return
        self._lost(why)
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(self._limits.hello_s, self._transport.abort)

    def out_of_order(self, message: Message) -> LineBroken:
        """Ends the line: this may not be said now."""
        self.abort(f"{type(message).__name__} out of order")
        return LineBroken(self.why)

    def _check(self) -> None:
        if self.why:
            raise LineBroken(self.why)

    async def _room(self) -> None:
        self._moved_at = self._loop.time()
        if self._transport is not None and self._transport.is_closing():
            await asyncio.sleep(0)  # the loop tells why; who only ever writes would not let it
            self._lost("the connection broke")
            self._check()
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(self._limits.silence_s):
                await self._writable.wait()
        except TimeoutError:
            self.abort(f"the other side took nothing for {self._limits.silence_s:g} s")
        self._moved_at = self._loop.time()
        self._check()

    def _write(self, *parts: bytes | memoryview) -> None:
        for part in parts:
            self._tls.write(part)
        self._flush()

    def _flush(self) -> None:
        if self._sealed_out.pending and self._transport is not None:
            sealed = self._sealed_out.read()
            self.sent_bytes += len(sealed)
            self._transport.write(sealed)

    def _lost(self, why: str) -> None:
        if self.why:
            return
        self.why = why
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        self._arrived.set()
        self._writable.set()

    def _first_byte_due(self) -> None:
        if not self.received_bytes and not self.why:
            self.abort(f"silent for {self._limits.first_byte_s:g} s")

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._limits.ping_s, self._tick)
        if not self.idle or self.why:
            return
        if self._loop.time() - self._heard_at > self._limits.quiet_s:
            self.abort("half open: no sign of life")
        elif self._writable.is_set():
            self._write(encode(Ping()))

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer_host = str((transport.get_extra_info("peername") or ("",))[0])
        self._transport.set_write_buffer_limits(OUTBOX_BYTES)
        self._timer = self._loop.call_later(self._limits.ping_s, self._tick)
        if self._server_side:
            self._loop.call_later(self._limits.first_byte_s, self._first_byte_due)
        if self._made is not None:
            self._made(self)
        self._take()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch.sealed

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        self._heard_at = self._loop.time()
        self._sealed_in.write(self._scratch.sealed[:nbytes])
        self._take()

    def eof_received(self) -> bool:
        return False  # connection_lost follows

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost("the connection broke" if exc is not None else "the other side closed it")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # TLS

    def _take(self) -> None:
        """Everything that arrived, as far as it can be decrypted."""
        if self.why:
            return
        try:
            if not self._shaken.done():
                self._shake()
            if self._shaken.done():
                self._decrypt()
        except FrameError as error:
            self.abort(f"not our protocol: {error}")
        except ssl.SSLError as error:
            self.abort(f"TLS: {error.reason or 'failed'}".lower())
        else:
            self._flush()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError:
            self._flush()  # the alert says why
            raise
        self._shaken.set_result(None)

    def _decrypt(self) -> None:
        plain, size, ended = self._scratch.plain, 0, False
        while not ended:
            try:
                count = cast(int, self._tls.read(PLAIN_BYTES - size, cast(bytearray, plain[size:])))
            except ssl.SSLWantReadError:
                ended, count = True, 0
            except ssl.SSLZeroReturnError:
                count = 0
            if not count and not ended:  # TLS says so in either way
                self._heard(plain[:size])
                self.close("the other side closed it")
                return
            size += count
            if size and (ended or size == PLAIN_BYTES):
                self._heard(plain[:size])
                size = 0

    def _heard(self, data: memoryview) -> None:
        for message in self._frames.feed(data):
            if isinstance(message, Ping):
                if self._writable.is_set():  # who does not read gets no answers
                    self._write(encode(Pong()))
            elif not isinstance(message, Pong):
                self._inbox.append(message)
                self._inbox_bytes += _weight(message)
                self._moved_at = self._heard_at
        if self._inbox:
            self._arrived.set()
        full = self._inbox_bytes >= INBOX_BYTES
        if full and self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()


def _weight(message: Message) -> int:
    """About what it takes in memory: a frame of JSON may hold as much as a body."""
    match message:
        case Body(data):
            return len(data) + _MESSAGE_BYTES
        case Hello():
            return len(message.pass_) + _MESSAGE_BYTES
        case Request():
            said = (message.key, message.holder, message.reader, message.ticket)
            return sum(map(len, said)) + _MESSAGE_BYTES
        case _:
            return _MESSAGE_BYTES
