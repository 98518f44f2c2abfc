"""Very many open dashboards in one process: each asks what a browser asked when it opened the page, and then
reads its stream. The process is another one than the server's: it is in nobody's figures."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from urllib.parse import urlsplit

from bench.worlds.crowd import more_files

STREAM = "/api/events?progress=true&overview=true"
OPEN_S = 120.0  # the longest that opening all may take
PART_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Seen:
    """What came on the streams since they were asked about last."""

    streams: int
    frames: int
    overviews: int
    received_bytes: int


@dataclass(slots=True)
class _Counts:
    open: int = 0
    frames: int = 0
    overviews: int = 0
    received_bytes: int = 0

    def take(self) -> Seen:
        seen = Seen(self.open, self.frames, self.overviews, self.received_bytes)
        self.frames = self.overviews = self.received_bytes = 0
        return seen


async def _follow(port: int, token: str, counts: _Counts) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {STREAM} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
    told = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in told.split(b"\r\n", 1)[0]:
        raise RuntimeError(f"no stream: {told[:200]!r}")
    counts.open += 1
    try:
        while part := await reader.read(PART_BYTES):
            counts.received_bytes += len(part)
            counts.frames += part.count(b"\ndata:")
            counts.overviews += part.count(b"event: overview")
    finally:
        counts.open -= 1
        writer.close()


def _ask(port: int, token: str, paths: list[str]) -> None:
    """One after the other on one connection; the browser's cache is empty."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        for path in paths:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status}")


async def _run(port: int, token: str, paths: list[str], count: int, over_s: float, pipe: Pipe) -> None:
    counts = _Counts()
    streams: list[asyncio.Task[None]] = []
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(OPEN_S):
        for number in range(count):
            await asyncio.sleep(began + over_s * number / count - asyncio.get_running_loop().time())
            await asyncio.to_thread(_ask, port, token, paths)
            streams.append(asyncio.create_task(_follow(port, token, counts)))
        while counts.open < count:
            await asyncio.sleep(0.05)
            ended = [stream for stream in streams if stream.done()]
            if ended:
                raise RuntimeError(f"a stream ended: {ended[0].exception()!r}")
    pipe.send(True)
    while await asyncio.to_thread(pipe.recv):
        pipe.send(counts.take())
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)


def _main(port: int, token: str, paths: list[str], count: int, over_s: float, pipe: Pipe) -> None:
    more_files()
    asyncio.run(_run(port, token, paths, count, over_s, pipe))


class Dashboards:
    """The measuring process's handle."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def seen(self) -> Seen:
        self._pipe.send(True)
        found: Seen = self._pipe.recv()
        return found


@contextlib.contextmanager
def dashboards(url: str, token: str, paths: list[str], count: int, over_s: float) -> Iterator[Dashboards]:
    """So many are open when the block begins; opening them is spread over ``over_s``."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    port = urlsplit(url).port
    child = spawn.Process(target=_main, args=(port, token, paths, count, over_s, theirs), daemon=True)
    child.start()
    theirs.close()  # so that its end is seen here
    try:
        ours.recv()
        yield Dashboards(ours)
    finally:
        with contextlib.suppress(OSError):
            ours.send(False)
        child.join(30)
        if child.is_alive():
            child.kill()
            child.join()
