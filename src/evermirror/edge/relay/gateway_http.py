"""One connection of git to the gateway: HTTP/1.1, one request after the other, both bodies streamed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias, cast

import httptools

from evermirror.edge.git.serve_request import BadRequest
from evermirror.edge.relay.limits import GatewayLimits

BODY_BYTES = 512 * 1024  # of a request that wait to be passed on; then git waits
OUTBOX_BYTES = 1024 * 1024  # not yet taken by git
HEADERS_MAX = 64


class ConnectionGone(ConnectionError):
    """git has left."""


@dataclass(slots=True)
class HttpRequest:
    """What is asked, without its body."""

    method: str
    path: str
    query: str
    headers: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


Answerer: TypeAlias = Callable[["HttpConnection", HttpRequest], Awaitable[None]]


class HttpConnection(asyncio.Protocol):
    """Registers itself in ``siblings`` for as long as it is open."""

    def __init__(self, limits: GatewayLimits, answer: Answerer, siblings: set[HttpConnection]) -> None:
        self._limits = limits
        self._answer = answer
        self._siblings = siblings
        siblings.add(self)
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._gone = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._url = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._pieces: deque[bytes] = deque()
        self._pieces_bytes = 0
        self._whole = False  # the request has ended
        self._arrived = asyncio.Event()
        self._chunk_end = b""

    def refuse(self) -> None:
        """There are too many."""
        self._refused = True

    def abort(self) -> None:
        """At once, so that no answer looks complete."""
        self._gone = True
        if self._transport is not None:
            self._transport.abort()

    async def end(self) -> None:
        """Nothing of it is left afterwards."""
        self.abort()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # The request's body, and the answer

    async def body(self) -> AsyncIterator[bytes]:
        """As it arrives."""
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._pieces_bytes -= len(piece)
                if self._pieces_bytes < BODY_BYTES // 2 and self._transport is not None and not self._gone:
                    self._transport.resume_reading()
                yield piece
            if self._whole:
                return
            if self._gone:
                raise BadRequest("the request was cut short")
            self._arrived.clear()
            async with asyncio.timeout(self._limits.silence_s):
                await self._arrived.wait()

    async def say(self, status: int, text: str, *, retry_after_s: float | None = None) -> None:
        """A whole answer; the connection ends with it unless the request was read to its end."""
        raw = text.encode()
        more = b"Retry-After: %d\r\n" % (int(retry_after_s) + 1) if retry_after_s is not None else b""
        self._write(
            b"HTTP/1.1 %d %b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n%b\r\n%b"
            % (status, HTTPStatus(status).phrase.encode(), len(raw), more, raw)
        )

    async def begin(self, status: int, kind: str) -> None:
        """An answer that is streamed."""
        self._chunk_end = b""
        phrase = HTTPStatus(status).phrase
        lines = [
            f"HTTP/1.1 {status} {phrase}",
            f"Content-Type: {kind}",
            "Cache-Control: no-cache",
            "Transfer-Encoding: chunked",
        ]
        self._write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def send(self, piece: bytes) -> None:
        """Some of it; waits while git is behind."""
        self._write(b"%b%x\r\n" % (self._chunk_end, len(piece)))
        self._write(piece)
        self._chunk_end = b"\r\n"  # told with the next chunk: one write less
        if not self._writable.is_set():
            async with asyncio.timeout(self._limits.silence_s):
                await self._writable.wait()
            if self._gone:
                raise ConnectionGone

    async def finish(self) -> None:
        """That was all."""
        self._write(self._chunk_end + b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._gone or self._transport.is_closing():
            raise ConnectionGone
        self._transport.write(data)

    async def _run(self, request: HttpRequest) -> None:
        try:
            await self._answer(self, request)
        except (ConnectionGone, TimeoutError, BadRequest):
            self.abort()
        except BaseException:
            self.abort()
            raise
        if not self._whole:
            if self._transport is not None:
                self._transport.close()
            return
        self._pieces.clear()
        self._pieces_bytes = 0
        self._task = None
        self._rest()

    def _rest(self) -> None:
        """Until the next request, but not forever."""
        self._timer = asyncio.get_running_loop().call_later(self._limits.idle_s, self.abort)

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(OUTBOX_BYTES)
        if self._refused:
            self.abort()
        else:
            self._rest()

    def data_received(self, data: bytes) -> None:
        if self._task is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.abort()
        if self._task is None and self._head_bytes > self._limits.head_bytes_max:
            self.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._siblings.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._arrived.set()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # httptools calls these

    def on_message_begin(self) -> None:
        self._url, self._headers, self._whole = b"", {}, False
        if self._task is not None:
            self.abort()  # git waits for an answer before it asks again

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._headers) >= HEADERS_MAX:
            self.abort()
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._gone or self._task is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._head_bytes = 0
        path, _, query = self._url.decode("latin-1").partition("?")
        request = HttpRequest(self._parser.get_method().decode("ascii"), path, query, self._headers)
        if request.header("expect").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._task = asyncio.get_running_loop().create_task(self._run(request))

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._pieces_bytes += len(data)
        self._arrived.set()
        if self._pieces_bytes >= BODY_BYTES and self._transport is not None and not self._gone:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._whole = True
        self._arrived.set()
