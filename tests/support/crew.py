"""More workers for a running all-in-one: real ones over the in-process transport, and hands that say only
what the test has them say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Connection, Identity, PeerGone
from evermirror.model.access import Role
from evermirror.model.messages import HeldRepo, RunningSync, WorkerStatus
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.wire import PROTOCOL, Beat, Down, Hello, Holding, Obeyed, Ordered, Rejected, Welcomed
from evermirror.nodes.all_in_one import Node
from evermirror.nodes.basics import credentials_of, git_settings
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.wiring import make_worker
from evermirror.nodes.worker.worker import Worker


def status_of(repos: int = 0, *, running: Iterable[str] = (), accepting: bool = True) -> WorkerStatus:
    syncs = tuple(RunningSync(RepoKey(key), "receiving", None, 0, 0.0) for key in running)
    return WorkerStatus(repos, 7, 1.5, 0, 0, syncs, 3, (), 40_000, 100_000, accepting, (), 0.0)


@contextlib.asynccontextmanager
async def working(node: Node, config: Config, name: str, token: int) -> AsyncIterator[Worker]:
    """A whole worker on a data folder of its own."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(InProcessServer(node.lead.fleet.serve))
        supervisor = Supervisor()
        credentials = credentials_of(config)
        config.data.dir.mkdir(parents=True, exist_ok=True)
        dialer = server.dialer(Identity(token, name, Role.WORKER, trusted=True))
        worker, uplink, lines = await make_worker(
            config,
            Git(git_settings(config), credentials),
            credentials,
            dialer,
            SteadyClock(),
            stack,
            supervisor,
            alone=False,
        )
        await stack.enter_async_context(supervisor.running("lines", lines.run))
        await stack.enter_async_context(supervisor.running("uplink", uplink.run))
        await stack.enter_async_context(supervisor.running("worker", worker.run))
        yield worker
        assert not supervisor.failures


class Hand:
    """A connection that said hello, told what it holds, and beats until it is told to be silent."""

    def __init__(self, connection: Connection, welcomed: Welcomed) -> None:
        self.connection = connection
        self.id = welcomed.worker
        self.gap_s = welcomed.heartbeat_s / 2
        self.silent = False
        self.status = status_of()
        self.heard: list[Down] = []
        self.over: str | None = None

    async def beat(self) -> None:
        while True:
            if not self.silent:
                await self.connection.send(Beat(self.status))
            await asyncio.sleep(self.gap_s)

    async def listen(self) -> None:
        """Takes in whatever comes, and does nothing of it."""
        try:
            while True:
                frame = await self.connection.receive()
                self.heard.append(frame)
                if isinstance(frame, Ordered):
                    await self.connection.send(Obeyed(frame.seq))
        except PeerGone as gone:
            self.over = str(gone)

    def rejection(self) -> str | None:
        return next((f.reason for f in self.heard if isinstance(f, Rejected)), None)


@contextlib.asynccontextmanager
async def hand(
    node: Node,
    name: str,
    token: int,
    *,
    held: dict[str, str] | None = None,
    trusted: bool = True,
    version: str = "1.2.3",
    boot: int = 1,
    weight: float = 1.0,
    capacity: int | None = None,
) -> AsyncIterator[Hand]:
    """Somebody who joins by hand; ``held`` maps keys to digests."""
    server = InProcessServer(node.lead.fleet.serve)
    async with server:
        connection = await server.dialer(Identity(token, name, Role.WORKER, trusted)).dial()
        await connection.send(
            Hello(PROTOCOL, version, name, boot, generation=token, weight=weight, capacity=capacity)
        )
        welcomed = await connection.receive()
        assert isinstance(welcomed, Welcomed), welcomed
        items = tuple(HeldRepo(RepoKey(k), RefsDigest(d), 1.0) for k, d in (held or {}).items())
        await connection.send(Holding(items, last=True))
        one = Hand(connection, welcomed)
        tasks = [asyncio.create_task(one.beat()), asyncio.create_task(one.listen())]
        try:
            yield one
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()
