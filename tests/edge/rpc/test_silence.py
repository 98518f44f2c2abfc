"""A network that swallows everything: both sides notice, though nobody closed anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.limits import RpcLimits
from evermirror.edge.rpc.transport import PeerGone
from evermirror.model.wire import Obeyed, Taken
from tests.edge.rpc.conftest import Start

pytestmark = pytest.mark.timeout(60)


class Cable:
    """Carries bytes between a client and a server until it is cut; then it swallows them."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._cut = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def plugged(self) -> AsyncIterator[Cable]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(0.05)

    def cut(self) -> None:
        self._cut.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self._cut.is_set():
                    writer.write(data)


async def test_a_cable_that_was_cut_is_noticed_at_both_ends(start: Start):
    limits = RpcLimits(keepalive_s=1.0, keepalive_answer_s=3.0)  # a busy machine answers late
    async with (
        start(keepalive_s=1.0, keepalive_answer_s=3.0) as served,
        Cable(served.server.port).plugged() as cable,
    ):
        token = await served.token()
        dialer = GrpcDialer(f"127.0.0.1:{cable.port}", token, ca_pem=served.ca.ca_pem, limits=limits)
        connection = await dialer.dial()
        await connection.send(Obeyed(1))
        assert await connection.receive() == Taken(0, 1)
        await asyncio.sleep(3)  # quiet is no reason to end: pings are answered
        assert served.gone == []
        cable.cut()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(PeerGone):
            await connection.receive()
        assert loop.time() - began < 15
        while not served.gone:
            await asyncio.sleep(0.05)
        assert loop.time() - began < 15
        await connection.close()


def test_by_default_a_cut_is_noticed_within_half_a_minute():
    limits = RpcLimits()
    assert limits.keepalive_s + limits.keepalive_answer_s < 30
