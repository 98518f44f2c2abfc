"""gRPC by itself: TLS streams into a server that does nothing but read, each on a connection of its own.

What a connection costs here is the least that any coordinator over gRPC can pay for its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from bench.worlds.crowd import more_files

METHOD = "/bench.Bare/Talk"
BEAT = b"x" * 120  # as a heartbeat
BEATS = 3  # of each, so that buffers are there that a stream needs
DIALLED_AT_ONCE = 50
ANSWER_S = 120.0


async def _serve(pki: Path, pipe: Pipe) -> None:
    async def talk(_: object, context: Any) -> None:
        while (await context.read()) is not aio.EOF:
            pass

    server = aio.server()
    handlers = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bare", handlers),))
    pair = ((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    pipe.send(port)
    with contextlib.suppress(EOFError):
        while await asyncio.to_thread(pipe.recv) == "memory":
            pipe.send(_rss_mb())
    await server.stop(None)


async def _dial(port: int, ca_pem: bytes, streams: int, pipe: Pipe) -> None:
    credentials = grpc.ssl_channel_credentials(root_certificates=ca_pem)
    open_ones: list[Any] = []

    async def one() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = aio.secure_channel(f"localhost:{port}", credentials, options=options)
        call = channel.stream_stream(METHOD)()
        for _ in range(BEATS):
            await call.write(BEAT)
        open_ones.append((channel, call))

    for first in range(0, streams, DIALLED_AT_ONCE):
        await asyncio.gather(*(one() for _ in range(first, min(streams, first + DIALLED_AT_ONCE))))
    pipe.send(len(open_ones))
    with contextlib.suppress(EOFError):
        await asyncio.to_thread(pipe.recv)


def _server(pki: Path, pipe: Pipe) -> None:
    more_files()
    asyncio.run(_serve(pki, pipe))


def _clients(port: int, ca_pem: bytes, streams: int, pipe: Pipe) -> None:
    more_files()
    asyncio.run(_dial(port, ca_pem, streams, pipe))


def _rss_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024 / 1e6


@contextlib.contextmanager
def _process(target: Any, *args: object) -> Iterator[Pipe]:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=target, args=(*args, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        child.join(5)
        if child.is_alive():
            child.kill()
            child.join()


def _told(pipe: Pipe) -> Any:
    if not pipe.poll(ANSWER_S):
        raise RuntimeError("bare gRPC does not answer")
    return pipe.recv()


def bare_streams_mb(pki: Path, streams: int) -> float:
    """MB that a server grows by with so many streams; ``pki``: a coordinator's own certificates."""
    with _process(_server, pki) as server:
        port = _told(server)
        server.send("memory")
        alone = _told(server)
        with _process(_clients, port, (pki / "ca.pem").read_bytes(), streams) as clients:
            if _told(clients) != streams:
                raise RuntimeError("not all streams of bare gRPC are there")
            server.send("memory")
            return float(_told(server) - alone)
