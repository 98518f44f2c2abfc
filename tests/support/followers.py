"""Scripted nodes for a running coordinator: an aggregator and workers that say what the test has them say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from evermirror.config import Config, load_config
from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.pki import open_ca
from evermirror.edge.rpc.transport import Connection, Identity, PeerGone
from evermirror.model.access import Role
from evermirror.model.activity import Activity
from evermirror.model.messages import AssignRepos, HeldRepo, Report, Synced
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import RelayAddress
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    PROTOCOL,
    Beat,
    Changes,
    Down,
    Follow,
    Followed,
    Hello,
    Holding,
    Numbered,
    Obeyed,
    Ordered,
    Rejected,
    Taken,
    Up,
    Welcomed,
)
from evermirror.nodes.coordinator.coordinator_node import CoordinatorNode, coordinating
from evermirror.nodes.coordinator.own_ca import pki_folder
from tests.support.crew import status_of

F = TypeVar("F")


class Talk:
    """One end of a connection: frames are kept as they come."""

    def __init__(self, connection: Connection) -> None:
        self.unreached: tuple[str, ...] = ()  # as its heartbeats say
        self.connection = connection
        self.heard: list[Down] = []
        self.over: str | None = None
        self._moved = asyncio.Event()

    async def listen(self) -> None:
        try:
            while True:
                frame = await self.connection.receive()
                self.heard.append(frame)
                self._moved.set()
                await self.answer(frame)
        except PeerGone as gone:
            self.over = str(gone)
            self._moved.set()

    async def answer(self, frame: Down) -> None:
        """Nothing, where nobody says otherwise."""

    async def say(self, *frames: Up) -> None:
        for frame in frames:
            await self.connection.send(frame)

    def all(self, kind: type[F]) -> list[F]:
        return [frame for frame in self.heard if isinstance(frame, kind)]

    async def next(self, kind: type[F], seen: int = 0, within_s: float = 30.0) -> F:
        """The frame of that kind behind the first ``seen`` ones, once it has come."""
        async with asyncio.timeout(within_s):
            while len(self.all(kind)) <= seen:
                assert self.over is None, self.over
                self._moved.clear()
                await self._moved.wait()
        return self.all(kind)[seen]

    async def ends(self, within_s: float = 30.0) -> str:
        async with asyncio.timeout(within_s):
            while self.over is None:
                self._moved.clear()
                await self._moved.wait()
        return self.over


class Aggregator(Talk):
    """Follows, and acknowledges by itself where it is told to."""

    acknowledges = True

    async def answer(self, frame: Down) -> None:
        if isinstance(frame, Changes) and self.acknowledges:
            await self.say(Followed(frame.upto))

    def told(self) -> list[RepoKey]:
        return [change.key for frame in self.all(Changes) for change in frame.items]

    async def until_told(self, keys: int) -> None:
        async with asyncio.timeout(20):
            while len(self.told()) < keys:
                await asyncio.sleep(0.01)


class Worker(Talk):
    """Obeys at once, and reports what the test says."""

    number = 0
    reports = 0

    async def answer(self, frame: Down) -> None:
        if isinstance(frame, Ordered):
            await self.say(Obeyed(frame.seq))

    def assigned(self) -> set[RepoKey]:
        orders = [o.command for o in self.all(Ordered) if isinstance(o.command, AssignRepos)]
        return {spec.key for order in orders for spec in order.repos}

    async def until_assigned(self, *keys: str) -> None:
        async with asyncio.timeout(20):
            while not set(keys) <= self.assigned():
                await asyncio.sleep(0.01)

    async def report(self, report: Report) -> None:
        self.reports += 1
        await self.say(Numbered(1, self.reports, (report,)))

    async def synced(self, key: str, digest: str, at: float = 1000.0, *, first: bool = False) -> None:
        await self.report(
            Synced(
                RepoKey(key), (), RefsDigest(digest), None, 1, (), 1, 1, 0, 77, first, at, at, at, Activity()
            )
        )

    async def settle(self) -> None:
        """Until everything reported is on the coordinator's disk."""
        async with asyncio.timeout(20):
            while not any(t.seq >= self.reports for t in self.all(Taken)):
                await asyncio.sleep(0.005)


class House:
    """A coordinator, and how nodes come to it: in the process, or over gRPC with tokens."""

    def __init__(self, node: CoordinatorNode, server: InProcessServer) -> None:
        self.node = node
        self.lead = node.lead
        self._server = server
        self._boots = 0

    async def connection(self, identity: Identity, *, grpc: bool = False) -> Connection:
        if not grpc:
            return await self._server.dialer(identity).dial()
        token, _ = await self.lead.store.create_token(
            identity.name, identity.role, trusted=identity.trusted, operator=identity.operator
        )
        ca = open_ca(pki_folder(self.node.config))
        dialer = GrpcDialer(f"127.0.0.1:{self.node.grpc_port}", token, ca_pem=ca, server_name="127.0.0.1")
        return await dialer.dial()

    @contextlib.asynccontextmanager
    async def talking(self, talk: Talk, *, beats_s: float = 0.1) -> AsyncIterator[None]:
        async def beat() -> None:
            with contextlib.suppress(PeerGone):
                while True:
                    await asyncio.sleep(beats_s)
                    await talk.say(Beat(status_of(), talk.unreached))

        tasks = [asyncio.create_task(talk.listen()), asyncio.create_task(beat())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await talk.connection.close()

    def hello(
        self, name: str, role: Role | None, *, protocol: int = PROTOCOL, boot: int = 0, **other
    ) -> Hello:
        self._boots += 1
        return Hello(protocol, "1.2", name, boot or self._boots, generation=1, role=role, **other)

    @contextlib.asynccontextmanager
    async def aggregator(
        self,
        token: int = 90,
        name: str = "front",
        *,
        since: int | None = 0,
        relay: RelayAddress | None = None,
        unreached: tuple[str, ...] = (),
        grpc: bool = False,
    ) -> AsyncIterator[Aggregator]:
        identity = Identity(token, name, Role.AGGREGATOR, trusted=False)
        talk = Aggregator(await self.connection(identity, grpc=grpc))
        talk.unreached = unreached
        await talk.say(self.hello(name, Role.AGGREGATOR, relay=relay))
        async with self.talking(talk):
            await talk.next(Welcomed)
            if since is not None:
                await talk.say(Follow(since))
            yield talk
        await self.until(lambda: not any(a.connected for a in self.lead.feeds.view() if a.name == name))

    @contextlib.asynccontextmanager
    async def worker(
        self,
        token: int,
        name: str,
        *,
        holds: dict[str, str] | None = None,
        trusted: bool = True,
        operator: str = "",
        protocol: int = PROTOCOL,
        grpc: bool = False,
    ) -> AsyncIterator[Worker]:
        identity = Identity(token, name, Role.WORKER, trusted, operator)
        talk = Worker(await self.connection(identity, grpc=grpc))
        await talk.say(self.hello(name, Role.WORKER, protocol=protocol))
        async with self.talking(talk):
            talk.number = (await talk.next(Welcomed)).worker
            talk.reports = (await talk.next(Taken)).seq
            items = tuple(HeldRepo(RepoKey(k), RefsDigest(d), 900.0) for k, d in (holds or {}).items())
            await talk.say(Holding(items, last=True))
            yield talk

    async def refusal(self, identity: Identity, hello: Hello, *, grpc: bool = False) -> Rejected:
        talk = Talk(await self.connection(identity, grpc=grpc))
        await talk.say(hello)
        async with self.talking(talk):
            return await talk.next(Rejected)

    async def add(self, *keys: str) -> None:
        for key in keys:
            await self.lead.coordinator.add_url(f"https://{key}", None, actor="test")

    async def until(self, holds: Callable[[], bool], within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds():
                await asyncio.sleep(0.01)


def config_at(folder: Path, **sections: dict[str, object]) -> Config:
    settings: dict[str, dict[str, object]] = {
        "server": {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0"},
        "data": {"dir": str(folder)},
        "fleet": {"warm_up": "0s", "heartbeat": "200ms", "grace": "600ms"},
    }
    for section, values in sections.items():
        settings.setdefault(section, {}).update(values)
    flat = {f"{section}.{key}": v for section, values in settings.items() for key, v in values.items()}
    return load_config(None, {}, flat)


@contextlib.asynccontextmanager
async def house_at(folder: Path, **sections: dict[str, object]) -> AsyncIterator[House]:
    config = config_at(folder, **sections)
    config.data.dir.mkdir(parents=True, exist_ok=True)
    async with (
        coordinating(config) as node,
        InProcessServer(node.lead.reception.serve) as server,
    ):
        yield House(node, server)
        assert not node.supervisor.failures
