"""A real gRPC server with its own CA and real tokens, for the tests of this folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.limits import RpcLimits
from evermirror.edge.rpc.pki import OwnCa, make_ca
from evermirror.edge.rpc.server import GrpcServer
from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from evermirror.model.wire import Obeyed, Taken
from tests.support.migrated import tables_at_once


@pytest.fixture(scope="module", autouse=True)
def _tables_at_once() -> Iterator[None]:
    with tables_at_once():
        yield


@pytest.fixture(scope="session")
def own_ca(tmp_path_factory: pytest.TempPathFactory) -> OwnCa:
    return make_ca(Path(tmp_path_factory.mktemp("pki")), ["coordinator.example"])


@dataclass
class Served:
    """A running coordinator's end: counts what it heard, answers Obeyed(n) by Taken(0, n)."""

    server: GrpcServer
    store: Store
    ca: OwnCa
    heard: list[object] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def token(self, name: str = "w1", role: Role = Role.WORKER) -> str:
        plain, _ = await self.store.create_token(name, role, trusted=False)
        return plain

    def dialer(self, token: str, **other: object) -> GrpcDialer:
        return GrpcDialer(self.address, token, **({"ca_pem": self.ca.ca_pem} | other))


Start = Callable[..., contextlib.AbstractAsyncContextManager[Served]]


@pytest.fixture
async def start(tmp_path: Path, own_ca: OwnCa) -> AsyncIterator[Start]:
    store = await Store.open(f"sqlite:///{tmp_path / 'c.db'}")

    @contextlib.asynccontextmanager
    async def run(*, tls: bool = True, **limits: object) -> AsyncIterator[Served]:
        served: Served

        async def authenticate(token: str) -> Identity | None:
            found = await store.find_token(token)
            return found and Identity(found.id, found.name, found.role, found.trusted)

        async def accept(peer: Peer) -> None:
            served.peers.append(peer)
            try:
                while True:
                    frame = await peer.receive()
                    served.heard.append(frame)
                    if isinstance(frame, Obeyed):
                        await peer.send(Taken(0, frame.seq))
            except PeerGone as e:
                served.gone.append(str(e))

        async with GrpcServer(
            "127.0.0.1:0",
            tls=own_ca.tls if tls else None,
            authenticate=authenticate,
            accept=accept,
            limits=RpcLimits(**limits),
        ) as server:
            served = Served(server, store, own_ca)
            yield served

    yield run
    await store.close()


@pytest.fixture
async def served(start: Start) -> AsyncIterator[Served]:
    async with start() as served:
        yield served


async def works(served: Served, token: str) -> None:
    """A worker with this token gets in, and is answered."""
    async with asyncio.timeout(10):
        connection = await served.dialer(token).dial()
        await connection.send(Obeyed(7))
        assert await connection.receive() == Taken(0, 7)
        await connection.close()
