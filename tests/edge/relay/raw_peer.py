"""A peer that says what a test wants it to, frame by frame, over a real TLS connection."""

from __future__ import annotations

import asyncio
import contextlib

from evermirror.edge.relay.certificate import dialling_context
from evermirror.edge.relay.frames import FrameReader, Hello, Message, Ping, Pong, encode


class RawPeer:
    """Not ours: asyncio's own TLS, and no manners."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._said: list[Message] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def dial(cls, port: int, *, limit: int = 2**16):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=dialling_context(), limit=limit)
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    @classmethod
    @contextlib.asynccontextmanager
    async def admitted(cls, port: int, way: str, pass_: str):
        async with cls.dial(port) as peer:
            peer.say(Hello(1, way, pass_))
            assert type(await peer.hear()).__name__ == "Admitted"
            yield peer

    def say(self, *messages: Message) -> None:
        self.raw(b"".join(map(encode, messages)))

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self, *, pings: bool = False) -> Message | None:
        """The next frame; None where the line was closed."""
        while True:
            while self._said:
                message = self._said.pop(0)
                if pings or not isinstance(message, Ping | Pong):
                    return message
            try:
                data = await asyncio.wait_for(self._reader.read(65_536), 10)
            except (ConnectionError, OSError):
                return None
            if not data:
                return None
            self._said += self._frames.feed(memoryview(data))

    async def read_slowly(self) -> bytes:
        return await self._reader.read(1)
