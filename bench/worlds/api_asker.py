"""Who asks an API again and again beside a load, in a process of its own; and a bystander that is asked too.

The bystander is a process that only answers: the least that the machine takes. One with much to do waits
longer for a core than one that mostly sleeps: this is a part of the machine's share, and not all of it.
Started as ``python -m bench.worlds.api_asker``; each ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASK_EVERY_S = 0.02
TIMEOUT_S = 60.0
_COMMAND = (sys.executable, "-m", "bench.worlds.api_asker")
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Asker:
    """``with Asker(port, paths) as asker: …`` and then ``asker.took_ms``: of each path, and of the bystander
    last."""

    def __init__(self, port: int, paths: Sequence[str]) -> None:
        self._asked = [(port, path) for path in paths]
        self.took_ms: list[list[float]] = []

    def __enter__(self) -> Asker:
        self._bystander = _started("bystander")
        assert self._bystander.stdout is not None
        asked = [*self._asked, (int(self._bystander.stdout.readline()), "/")]
        self._asker = _started("ask", json.dumps(asked))
        assert self._asker.stdout is not None
        self._asker.stdout.readline()  # it has its connections
        return self

    def __exit__(self, *_: object) -> None:
        told, _said = self._asker.communicate(timeout=TIMEOUT_S)
        self._bystander.communicate(timeout=TIMEOUT_S)
        self.took_ms = json.loads(told)


def _started(*how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_COMMAND, *how], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _ask_all(asked: Sequence[tuple[int, str]]) -> list[list[float]]:
    """In turn, until there is something to read: the end."""
    lines = [socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) for port, _ in asked]
    took_ms: list[list[float]] = [[] for _ in asked]
    print("ready", flush=True)
    while not (took_ms[0] and select.select([sys.stdin], [], [], ASK_EVERY_S)[0]):
        for line, (_, path), took in zip(lines, asked, took_ms, strict=True):
            at = time.monotonic()
            _ask(line, path)
            took.append((time.monotonic() - at) * 1000)
    return took_ms


def _ask(line: socket.socket, path: str) -> None:
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    came = b""
    while True:
        came += line.recv(65536)
        head, found, body = came.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            break
    if head[9:12] != b"200":
        raise RuntimeError(f"{path} was answered with {head[:100]!r}")


class _Bystander(asyncio.Protocol):
    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER)


async def _stand_by() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Bystander, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1] == "bystander":
        asyncio.run(_stand_by())
    else:
        print(json.dumps(_ask_all(json.loads(sys.argv[2]))))
