"""A server that says exactly what a test tells it to, byte by byte: for answers that no real server gives."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Talk = Callable[["Conversation"], Awaitable[None]]


class Conversation:
    """One accepted connection. ``number`` counts from 1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def request(self) -> bytes:
        """The next request, head and body; raises EOFError where the client went away."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(x[15:]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0
        )
        return head + await self.reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """The client sees a connection reset."""
        self.writer.transport.abort()


class RawServer:
    """Where it listens, and what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []


@asynccontextmanager
async def raw_server(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Runs ``talk`` for every connection; its end closes the connection."""
    state = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        state.connections += 1
        try:
            await talk(Conversation(reader, writer, state.connections))
        except (EOFError, OSError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def http(
    body: bytes, *, status: int = 200, kind: str = "application/x-git-upload-pack-result", more: str = ""
) -> bytes:
    """A plain answer with a length. ``more`` are further header lines, each ending in CRLF."""
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode("latin-1") + body


def always(*answers: bytes) -> Talk:
    """Answers every request on a connection with the next of ``answers``; the last one again and again."""

    async def talk(c: Conversation) -> None:
        left = list(answers)
        while True:
            await c.request()
            await c.say(left.pop(0) if len(left) > 1 else left[0])

    return talk
