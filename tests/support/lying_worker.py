"""A worker that lies, as a process: everything of it is real but what it reports, or what it serves.

    python lying_worker.py LIE --data FOLDER --listen HOST:PORT

It is joined by the settings worker.coordinator and worker.token. Nothing of the tests is imported here: the
file is run by its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from evermirror.config import Config, load_config
from evermirror.edge.git.command import Git
from evermirror.edge.git.serve import GitServer
from evermirror.edge.relay.ask import ReadRequest
from evermirror.edge.relay.serving import NotHere, ServingLines
from evermirror.edge.rpc.transport import Connection, Dialer
from evermirror.log import setup_logging
from evermirror.model.messages import Declined, HeldRepo, Kept, Report, Synced
from evermirror.model.refs import RefsDigest
from evermirror.model.wire import Access, Compared, Down, Holding, Numbered, Up
from evermirror.nodes import lifecycle
from evermirror.nodes.basics import git_settings
from evermirror.nodes.data_folder import with_absolute_data
from evermirror.nodes.membership_card import LateDialer, card_of
from evermirror.nodes.running import until_stopped
from evermirror.nodes.worker.worker import Worker
from evermirror.nodes.worker.worker_node import working

DATA_BYTES = 65_515  # of a sideband packet, the most that git takes
T = TypeVar("T", Synced, HeldRepo)


class Lie(Enum):
    DIGEST = "digest"  # reports refs that upstream does not have
    REFS = "refs"  # serves other refs than it reports
    CORRUPT = "corrupt"  # gives broken objects
    STALL = "stall"  # falls silent in the midst of a pack
    ENDLESS = "endless"  # one object that never ends


# What it reports


class LyingDialer:
    """``serving`` gets the node's passes in place of the worker, which serves nothing itself."""

    def __init__(self, inner: Dialer, lie: Lie, serving: ServingLines) -> None:
        self._inner = inner
        self._lie = lie
        self._serving = serving

    async def dial(self) -> Connection:
        return _LyingConnection(await self._inner.dial(), self._lie, self._serving)


class _LyingConnection:
    def __init__(self, inner: Connection, lie: Lie, serving: ServingLines) -> None:
        self._inner = inner
        self._lie = lie
        self._serving = serving

    async def receive(self) -> Down:
        while True:
            frame = await self._inner.receive()
            if not isinstance(frame, Access):
                return frame
            self._serving.set_access(frame)

    async def send(self, frame: Up) -> None:
        await self._inner.send(with_false_digests(frame) if self._lie is Lie.DIGEST else frame)

    async def close(self) -> None:
        await self._inner.close()


def with_false_digests(frame: Up) -> Up:
    match frame:
        case Holding(items=items) | Compared(items=items):
            return replace(frame, items=tuple(map(_false, items)))
        case Numbered(reports=reports):
            return replace(frame, reports=tuple(map(_false_report, reports)))
        case _:
            return frame


def _false_report(report: Report) -> Report:
    match report:
        case Synced():
            return _false(report)
        case Kept(items=items) | Declined(items=items):
            return replace(report, items=tuple(map(_false, items)))
        case _:
            return report


def _false(said: T) -> T:
    return replace(said, digest=RefsDigest(hashlib.sha256(f"no refs of {said.key}".encode()).hexdigest()))


# What it serves


class LyingLines:
    """A ``LineService`` over a worker's mirrors."""

    def __init__(self, lie: Lie, config: Config) -> None:
        self._lie = lie
        self._server = GitServer(Git(git_settings(config)))
        self._other = false_repo(config.data.dir / "false.git") if lie is Lie.REFS else None
        self.worker: Worker | None = None

    async def handle(self, request: ReadRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        path = self.worker.mirror_path(request.key) if self.worker is not None else None
        if path is None:
            raise NotHere("not here")
        path = self._other or path
        if request.service == "refs":
            answer = self._server.advertise(path, request.protocol)
        else:
            answer = self._server.upload_pack(path, body, request.protocol)
        async with contextlib.aclosing(answer), contextlib.aclosing(self._spoilt(request, answer)) as spoilt:
            async for chunk in spoilt:
                yield chunk

    async def _spoilt(
        self, request: ReadRequest, answer: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        whole = bytearray()
        async for chunk in answer:
            whole += chunk
        begins = whole.find(b"PACK")
        if request.service == "refs" or begins < 0:  # also an answer to ls-refs
            yield bytes(whole)
            return
        match self._lie:
            case Lie.CORRUPT:
                whole[(begins + len(whole)) // 2] ^= 0xFF
                yield bytes(whole)
            case Lie.STALL:
                yield bytes(whole[: begins + 20])
                await asyncio.Event().wait()
            case Lie.ENDLESS:
                yield b"000dpackfile\n" + _packet(1, _endless_blob())
                block = b"\x00\xff\xff\x00\x00" + os.urandom(0xFFFF)
                stream = block * 16
                while True:
                    for start in range(0, len(stream), DATA_BYTES):
                        yield _packet(1, stream[start : start + DATA_BYTES])
            case _:
                yield bytes(whole)


def _packet(band: int, data: bytes) -> bytes:
    return b"%04x%c%b" % (len(data) + 5, band, data)


def _endless_blob() -> bytes:
    """The head of a pack with one object of 2^40 bytes, and of its zlib stream."""
    size, kind = 1 << 40, 3
    head = bytearray([(kind << 4) | (size & 0x0F)])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(head) + zlib.compress(b"")[:2]


def false_repo(path: Path) -> Path:
    """Some other project."""
    path.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(path), "GIT_CONFIG_NOSYSTEM": "1"}
    stream = (
        b"reset refs/heads/main\n\ncommit refs/heads/main\ncommitter L <l@example.com> 1700000000 +0000\n"
        b"data 4\nlie\n\nM 100644 inline a\ndata 4\nlie\n\ndone\n"
    )
    run = {"cwd": path, "env": env, "check": True}
    subprocess.run(["git", "init", "--quiet", "--bare", "-b", "main", "."], **run)  # type: ignore[call-overload]
    subprocess.run(["git", "fast-import", "--quiet", "--force"], input=stream, **run)  # type: ignore[call-overload]
    return path


async def main(lie: Lie, config: Config) -> int:
    signals = lifecycle.Signals()
    signals.install()
    lines = LyingLines(lie, config)
    serving = ServingLines(lines)
    dialer = LyingDialer(LateDialer(config, card_of(config)), lie, serving)
    async with working(config, dialer) as node:
        lines.worker = node.worker
        task = asyncio.create_task(serving.run())
        try:
            await until_stopped(signals, node.supervisor.lost, lambda: None)
            return 0
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    lie, _, data, _, listen = sys.argv[1:]
    loaded = with_absolute_data(load_config(None, overrides={"data.dir": data, "server.listen": listen}))
    loaded.data.dir.mkdir(parents=True, exist_ok=True)
    setup_logging(loaded.log.level, loaded.log.format, secrets=loaded.secret_values())
    raise SystemExit(asyncio.run(main(Lie(lie), loaded)))
