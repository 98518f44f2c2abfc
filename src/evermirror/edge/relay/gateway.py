"""A door for git's own children: plain HTTP on loopback, behind which one holder's repo is, for a while.

    git fetch http://127.0.0.1:PORT/<256-bit secret>/repo ──▶ gateway ──▶ Reach.ask

Only whoever knows the secret gets an answer, only inside the block that opened it, and only git's two
requests for reading. It may come in a header instead of the path (edge/git/environment.py): then it is in no
process's arguments. Bodies are streamed both ways.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from evermirror.edge.git.environment import DOOR_HEADER
from evermirror.edge.git.serve_request import BadRequest, bounded_body
from evermirror.edge.net.accept import Acceptor, listen
from evermirror.edge.relay.ask import (
    PROTOCOL_CHARS_MAX,
    AnswerBroken,
    AnswerTooLarge,
    Ask,
    HolderAway,
    HolderLacks,
    HolderRefused,
    Reach,
    Service,
    no_body,
)
from evermirror.edge.relay.gateway_http import HttpConnection, HttpRequest
from evermirror.edge.relay.limits import GatewayLimits
from evermirror.model.relay import Source

SECRET_BYTES = 32
BACKLOG = 100
_POST_TYPE = "application/x-git-upload-pack-request"


@dataclass(slots=True)
class _Door:
    """One opening."""

    source: Source
    reader_pass: str
    heard: Callable[[Exception], None] | None
    left_bytes: int
    inside: set[HttpConnection] = field(default_factory=set)


class Gateway:
    """``async with``: listens inside the block."""

    def __init__(self, reach: Reach, limits: GatewayLimits | None = None) -> None:
        self._reach = reach
        self._limits = limits if limits is not None else GatewayLimits()
        self._doors: dict[str, _Door] = {}
        self._connections: set[HttpConnection] = set()
        self._server: Acceptor | None = None

    async def __aenter__(self) -> Self:
        self._server = await listen("127.0.0.1", 0, self._new_connection, BACKLOG)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self._doors.clear()
        await asyncio.gather(*(c.end() for c in tuple(self._connections)))

    @asynccontextmanager
    async def open(
        self,
        source: Source,
        reader_pass: str,
        *,
        heard: Callable[[Exception], None] | None = None,
        answer_bytes_max: int | None = None,
    ) -> AsyncIterator[str]:
        """A URL for git. ``heard`` is told why the holder did not answer (HolderAway, HolderRefused,
        AnswerBroken): git's own words only say that something failed."""
        if self._server is None:
            raise RuntimeError("the gateway does not listen yet")
        secret = secrets.token_urlsafe(SECRET_BYTES)
        left = answer_bytes_max if answer_bytes_max is not None else self._limits.answer_bytes_max
        door = self._doors[secret] = _Door(source, reader_pass, heard, left)
        port = self._server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/{secret}/repo"
        finally:
            self._doors.pop(secret, None)
            await asyncio.gather(*(c.end() for c in tuple(door.inside)))

    def _new_connection(self) -> HttpConnection:
        connection = HttpConnection(self._limits, self._answer, self._connections)
        if len(self._connections) > self._limits.connections_max:
            connection.refuse()
        return connection

    async def _answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        secret, path = request.header(DOOR_HEADER.lower()), request.path.removeprefix("/")
        if not secret:
            secret, _, path = path.partition("/")
        door = self._doors.get(secret)
        if door is None:
            await connection.say(404, "Nothing is here.\n")
            return
        match request.method, path:
            case "GET", "repo/info/refs" if request.query == "service=git-upload-pack":
                service: Service = "refs"
                kind, body = "application/x-git-upload-pack-advertisement", no_body()
            case "POST", "repo/git-upload-pack" if request.header("content-type") == _POST_TYPE:
                encoding = request.header("content-encoding").lower() or "identity"
                if encoding not in ("identity", "gzip", "x-gzip"):
                    await connection.say(415, "Only gzip is understood.\n")
                    return
                service, kind = "pack", "application/x-git-upload-pack-result"
                gzipped = encoding != "identity"
                body = bounded_body(connection.body(), self._limits.request_bytes_max, gzipped=gzipped)
            case _:
                await connection.say(404, "Only reading with git's smart HTTP is possible here.\n")
                return
        source = door.source
        protocol = _protocol(request)
        ask = Ask(source.key, source.holder, service, protocol, door.reader_pass, source.ticket)
        door.inside.add(connection)
        try:
            async with aclosing(self._reach.ask(ask, body)) as pieces:
                await self._stream(connection, door, pieces, kind)
        finally:
            door.inside.discard(connection)

    async def _stream(
        self, connection: HttpConnection, door: _Door, pieces: AsyncGenerator[bytes, None], kind: str
    ) -> None:
        try:
            first = await anext(pieces, b"")
        except (HolderAway, HolderRefused, AnswerBroken, BadRequest) as error:
            _tell(door, error)
            status, retry_s = _status_of(error)
            await connection.say(status, f"{error}\n", retry_after_s=retry_s)
            return
        await connection.begin(200, kind)
        try:
            await self._send(connection, door, first)
            async for piece in pieces:
                await self._send(connection, door, piece)
        except AnswerBroken as error:
            _tell(door, error)
            connection.abort()  # an answer without its end: git sees that it is not all
            return
        await connection.finish()

    async def _send(self, connection: HttpConnection, door: _Door, piece: bytes) -> None:
        door.left_bytes -= len(piece)
        if door.left_bytes < 0:
            raise AnswerTooLarge("the holder sends more than is taken")
        if piece:
            await connection.send(piece)


def _tell(door: _Door, error: Exception) -> None:
    if door.heard is not None:
        door.heard(error)


def _status_of(error: Exception) -> tuple[int, float | None]:
    match error:
        case HolderAway():
            return 503, error.retry_after_s
        case HolderLacks():
            return 404, None
        case HolderRefused():
            return 403, None
        case BadRequest():
            return 400, None
        case _:
            return 502, None


def _protocol(request: HttpRequest) -> str:
    value = request.header("git-protocol")
    fine = len(value) <= PROTOCOL_CHARS_MAX and all(c.isalnum() or c in "=:._-" for c in value)
    return value if fine and value.isascii() else ""
