"""One HTTP/1.1 connection that answers one request at a time: raw asyncio and httptools, nothing between.

    connect ──▶ BUSY ──answer complete, may stay──▶ IDLE ──▶ (taken for the next request) BUSY
                 │                                   │
                 └─ error, late, too much, cut ──▶ CLOSED ◀── server closed, idle too long, too many idle

Every answer is bounded: headers and body in bytes, the whole in time, and it must move on while it lasts.
Large answers need one of a few slots, and are paused until they have one, so that memory stays bounded over
all connections together.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import httptools

from evermirror.model.failure import Failure, FailureError, FailureKind

HEAD_BYTES_MAX = 64 * 1024  # status line and headers, 1xx answers included; servers stay below 16 KiB
FRAMING_MAX = 8  # bytes around each byte of a body: chunks of a single byte have 5; trailers come on top
PROGRESS_CHECK_S = 15.0  # how often a running answer is looked at
PROGRESS_BYTES_MIN = 4096  # in that time; a slower answer would not end within any sensible limit


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one server can cost us, and what we keep open."""

    connect_s: float = 10.0  # for TCP and TLS, over all addresses
    answer_s: float = 60.0  # for a whole answer
    answer_bytes: int = 64_000_000  # as sent and as unpacked
    idle_s: float = 60.0  # most servers close after 60 to 75 s themselves
    idle_max: int = 256  # over all hosts, oldest closed first: a TLS connection holds about 310 KiB
    large_bytes: int = 1_000_000  # an answer above this needs one of the large slots
    large_at_once: int = 4  # so that not every poll in flight can hold answer_bytes at once
    progress_check_s: float = PROGRESS_CHECK_S


class Origin(NamedTuple):
    """Where requests go: ``host`` is the name in the URL, without brackets."""

    scheme: str
    host: str
    port: int


class Response(NamedTuple):
    """A complete answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    received_bytes: int  # from the wire, headers included

    def header(self, name: str) -> str:
        """The first header of that (lower-case) name, or an empty text."""
        wanted = name.encode("ascii")
        for key, value in self.headers:
            if len(key) == len(wanted) and key.lower() == wanted:
                return value.decode("latin-1").strip()
        return ""


class ClosedEarly(Exception):
    """A kept-alive connection ended before the first byte of its answer."""


class Owner(Protocol):
    """What a connection tells the client that opened it."""

    limits: HttpLimits

    def opened(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...
    def enter_large(self, connection: Connection) -> bool: ...
    def leave_large(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One connection and the answer it waits for. ``_waiter`` is set exactly while BUSY."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_bytes_max",
        "_check_at",
        "_checked_bytes",
        "_deadline",
        "_headers",
        "_headers_done",
        "_large",
        "_loop",
        "_owner",
        "_parser",
        "_paused",
        "_received",
        "_timer",
        "_transport",
        "_used",
        "_waiter",
        "key",
        "reusable",
    )

    def __init__(self, owner: Owner, key: tuple[Origin, str], loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.reusable = False  # the last answer is complete and both sides may go on
        self._owner = owner
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Response] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._used = False
        self._reset()

    def _reset(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = self._received = self._checked_bytes = 0
        self._headers_done = self._large = self._paused = False

    def send(self, data: bytes, bytes_max: int | None = None) -> asyncio.Future[Response]:
        """Writes a request; the future is its answer, or fails with FailureError or ClosedEarly. A body may
        have ``bytes_max``, where that is less than any answer may have."""
        loop, transport = self._loop, self._transport
        self._waiter = waiter = loop.create_future()
        if transport is None or transport.is_closing():
            self._end(ClosedEarly())
            return waiter
        limits = self._owner.limits
        self._body_bytes_max = limits.answer_bytes if bytes_max is None else bytes_max
        now = loop.time()
        self._deadline = now + limits.answer_s
        self._check_at = now + min(limits.answer_s, limits.progress_check_s)
        if self._timer is None:  # one that an earlier request left comes before this one's, and is set anew
            self._timer = loop.call_at(self._check_at, self._check)
        transport.write(data)
        return waiter

    def close(self) -> None:
        """Ends an idle connection with TLS's farewell, and does not wait for the server's."""
        if self._transport is not None:
            if not self._transport.is_closing():
                self._transport.close()
            self._transport.abort()

    def abort(self) -> None:
        """Ends the connection without TLS's farewell; nobody waits for an answer any more."""
        self._end(None)
        self._abort_soon()

    def fail(self, failure: Failure) -> None:
        """Ends the connection; who waits for its answer gets ``failure``."""
        self._end(FailureError(failure))
        self.abort()

    def resume(self) -> None:
        """A large answer has its slot now."""
        self._paused = False
        self._checked_bytes = self._received - PROGRESS_BYTES_MIN  # the pause was ours, not the server's
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _end(self, outcome: Response | Exception | None) -> None:
        """BUSY is over: the waiter gets its outcome, and everything the answer held is let go."""
        self.reusable = False
        waiter, self._waiter = self._waiter, None
        if self._large:
            self._owner.leave_large(self)
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()  # its end had come already: the next answer is read too
        self._used = True
        self._reset()
        if waiter is None or waiter.done() or outcome is None:
            return
        if isinstance(outcome, Exception):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)

    def _check(self) -> None:
        """Runs a few times during a slow answer: it must move on, and end in time."""
        limits, now = self._owner.limits, self._loop.time()
        self._timer = None
        if self._waiter is None:
            return
        if now < self._check_at:
            self._timer = self._loop.call_at(self._check_at, self._check)
            return
        if now >= self._deadline:
            self.fail(_late(f"no complete answer in {limits.answer_s:g} s"))
            return
        slow = self._received - self._checked_bytes < PROGRESS_BYTES_MIN
        if self._headers_done and slow and not self._paused:
            self.fail(_late(f"answer stalled after {self._received} bytes"))
            return
        self._checked_bytes = self._received
        self._check_at = min(self._deadline, now + limits.progress_check_s)
        self._timer = self._loop.call_at(self._check_at, self._check)

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.abort()  # nobody asked
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.reusable = False
            if self._waiter is not None:
                self.fail(malformed("not HTTP"))
        beside = self._received - self._body_bytes  # headers, the frames of chunks, trailers
        if self._waiter is not None and beside > HEAD_BYTES_MAX + FRAMING_MAX * self._body_bytes:
            self.fail(malformed("endless headers"))

    def eof_received(self) -> None:
        """The server has ended the connection: what it has not read of ours is not waited for."""
        self._abort_soon()

    def _abort_soon(self) -> None:
        # Not now: asyncio's TLS fails when its transport ends while it hands over the last data.
        if self._transport is not None:
            self._loop.call_soon(self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None:
            self._end(self._verdict(exc))
        self._owner.lost(self)

    def _verdict(self, exc: Exception | None) -> Response | Exception:
        if self._received == 0 and self._used:
            return ClosedEarly()
        if exc is None and self._headers_done and not self._has_length():
            return self._response()
        how = "reset" if isinstance(exc, ConnectionError) else "closed"
        when = "before an answer" if self._received == 0 else f"after {self._received} bytes of an answer"
        return FailureError(_late(f"connection {how} {when}"))

    def _has_length(self) -> bool:
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._headers)

    def _response(self) -> Response:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return Response(self._parser.get_status_code(), self._headers, body, self._received)

    # httptools calls these; an exception here would be swallowed, so failures are set, not raised

    def on_message_begin(self) -> None:
        if self._waiter is None:
            self.reusable = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self._headers.clear()  # 100 Continue and its kin: the answer is still to come
        else:
            self._headers_done = True

    def on_body(self, data: bytes) -> None:
        if self._waiter is None:
            return
        self._body.append(data)
        self._body_bytes += len(data)
        limits = self._owner.limits
        if self._body_bytes > self._body_bytes_max:
            self.fail(too_large(self._body_bytes_max))
        elif self._body_bytes > limits.large_bytes and not self._large:
            self._large = True
            self._paused = not self._owner.enter_large(self)
            if self._paused and self._transport is not None:
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._waiter is None or not self._headers_done:
            return
        stays = self._parser.should_keep_alive()
        self._end(self._response())
        self.reusable = stays


def malformed(what: str) -> Failure:
    """An answer that no sound server gives."""
    return Failure(FailureKind.UNKNOWN, f"malformed answer: {what}")


def too_large(limit: int) -> Failure:
    """An answer beyond the bound, packed or unpacked."""
    message = f"answer larger than {limit} bytes"
    return Failure(FailureKind.UNKNOWN, message, hint="limits.answer_bytes is the bound")


def _late(message: str) -> Failure:
    return Failure(FailureKind.NETWORK_TIMEOUT, message)
