"""One end of a tunnel in a process of its own: ``python -m bench.worlds.relay_process worker|reader FOLDER``.

It prints its URL as a line of JSON, and ends with its stdin. The folder holds what both must agree on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

from evermirror.edge.git.command import Git
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.serve import GitServer
from evermirror.edge.relay.ask import Ask, ReadRequest
from evermirror.edge.relay.certificate import own_certificate
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.relay.seal import Sealer, Unsealer
from evermirror.edge.relay.server import RelayServer
from evermirror.edge.relay.serving import ServingLines
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Pass, RelayAddress, Source
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Access

KEY = RepoKey("example.com/team/big")
WORKER, READER = NodeId("worker/1"), NodeId("aggregator/1")
SOURCE = Source(KEY, WORKER)
HOUR_S = 3600.0


class _OneRepo:
    """git answers for one mirror: over lines, and to whoever asks straight away."""

    def __init__(self, folder: Path) -> None:
        git = Git(GitSettings(folder / "git"), Credentials())
        self._server = GitServer(git)
        self._repo = folder / "big.git"

    def handle(self, request: ReadRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        return self._answer(request.service, request.protocol, body)

    def ask(self, ask: Ask, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        return self._answer(ask.service, ask.protocol, body)

    def reachable(self, holder: NodeId) -> bool:
        return True

    def _answer(self, service: str, protocol: str, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        if service == "refs":
            return self._server.advertise(self._repo, protocol)
        return self._server.upload_pack(self._repo, body, protocol)


async def _worker(folder: Path, sealer: Sealer) -> None:
    """Serves directly by HTTP, and over lines to the reader's relay."""
    repo = _OneRepo(folder)
    until = time.time() + HOUR_S
    relay = RelayAddress(f"127.0.0.1:{(folder / 'port').read_text()}", own_certificate(folder).fingerprint)
    lines = ServingLines(repo)
    pass_ = sealer.seal(Pass(WORKER, Role.WORKER, until))
    lines.set_access(Access(WORKER, pass_, until, sealer.public_key, (relay,)))
    work = asyncio.create_task(lines.run())
    async with Gateway(repo) as gateway, gateway.open(SOURCE, "") as url:
        while not lines.connected:
            await asyncio.sleep(0.01)
        await _tell_and_wait(url)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _reader(folder: Path, sealer: Sealer) -> None:
    """Its relay, and a gateway over that."""
    unsealer = Unsealer(sealer.public_key)
    pass_ = sealer.seal(Pass(READER, Role.AGGREGATOR, time.time() + HOUR_S))
    async with contextlib.AsyncExitStack() as stack:
        relay = RelayServer(("127.0.0.1", 0), own_certificate(folder), lambda: unsealer)
        await stack.enter_async_context(relay)
        (folder / "port").write_text(str(relay.port), "ascii")
        gateway = await stack.enter_async_context(Gateway(relay))
        await _tell_and_wait(await stack.enter_async_context(gateway.open(SOURCE, pass_)))


async def _tell_and_wait(url: str) -> None:
    print(json.dumps({"url": url}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("end", choices=["worker", "reader"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    key = Sealer((given.folder / "seal.key").read_bytes())
    asyncio.run((_worker if given.end == "worker" else _reader)(given.folder, key))
