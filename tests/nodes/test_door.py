"""Who is let in by a token is let out when it is revoked, whatever the database did meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from contextlib import asynccontextmanager

import pytest

from evermirror.edge.rpc.join import join_token
from evermirror.edge.rpc.pki import ca_fingerprint, open_ca
from evermirror.edge.rpc.transport import PeerGone
from evermirror.edge.store.store import Store
from evermirror.errors import EnvironmentUnfit
from evermirror.model.access import Role
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.wire import PROTOCOL, Hello, Rejected, Welcomed
from evermirror.nodes import lifecycle
from evermirror.nodes.all_in_one import UpOptions, up
from evermirror.nodes.coordinator import door
from evermirror.nodes.coordinator.coordinator_node import coordinating
from evermirror.nodes.coordinator.own_ca import pki_folder
from evermirror.nodes.membership_card import Card, LateDialer
from evermirror.nodes.supervisor import Supervisor
from tests.support.followers import config_at
from tests.support.ports import free_port

AWAY = FailureError(Failure(FailureKind.UNKNOWN, "the database does not answer"))
ODD = RuntimeError("the driver failed in a way that nobody foresaw")


class Moody:
    """Makes the store's list of tokens fail as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.failed = 0
        usual = Store.list_tokens

        async def list_tokens(store: Store):
            if self.error is not None:
                self.failed += 1
                raise self.error
            return await usual(store)

        monkeypatch.setattr(Store, "list_tokens", list_tokens)


@asynccontextmanager
async def connected(config, store: Store, address: str, name: str):
    """A worker of another machine that said hello."""
    token, record = await store.create_token(name, Role.WORKER)
    fingerprint = ca_fingerprint(open_ca(pki_folder(config)))
    connection = await LateDialer(config, Card(address, join_token(token, fingerprint))).dial()
    try:
        await connection.send(Hello(PROTOCOL, "1.2.3", name, secrets.randbits(63), generation=0))
        assert isinstance(await connection.receive(), Welcomed)
        yield connection, record
    finally:
        await connection.close()


async def last_words(connection) -> str:
    """What a connection was ended with."""
    try:
        while True:
            if isinstance(frame := await connection.receive(), Rejected):
                return frame.reason
    except PeerGone as gone:
        return str(gone)


@pytest.mark.parametrize("error", [AWAY, ODD], ids=["away", "unforeseen"])
async def test_a_revoked_token_loses_its_connection_after_the_database_was_in_trouble(
    tmp_path, monkeypatch, error
):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    moody = Moody(monkeypatch)
    address = f"127.0.0.1:{free_port()}"
    config = config_at(tmp_path / "data", server={"grpc_listen": address})
    config.data.dir.mkdir(parents=True)
    async with coordinating(config) as node, asyncio.timeout(60):
        store = node.lead.store
        async with (
            connected(config, store, address, "leaver") as (leaver, record),
            connected(config, store, address, "stayer") as (stayer, _),
        ):
            ended = asyncio.create_task(last_words(leaver))
            stays = asyncio.create_task(last_words(stayer))
            moody.error = error
            while moody.failed < 2:
                await asyncio.sleep(0.01)
            await store.revoke_token(record.id)
            seen = moody.failed
            while moody.failed == seen:
                await asyncio.sleep(0.01)
            assert not ended.done(), "nobody can know yet"
            moody.error = None
            assert "revoked" in await ended
            assert not stays.done()
            stays.cancel()
            await asyncio.gather(stays, return_exceptions=True)
        assert (node.supervisor.failures > 0) == (error is ODD), "weather is no failure of a part"


async def test_a_door_that_waits_for_its_first_token_waits_for_the_database_too(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    moody = Moody(monkeypatch)
    config = config_at(tmp_path / "data", server={"grpc_listen": f"127.0.0.1:{free_port()}"})
    config.data.dir.mkdir(parents=True)
    async with coordinating(config) as node, asyncio.timeout(60):
        supervisor, store = node.supervisor, node.lead.store
        other = config_at(tmp_path / "data", server={"grpc_listen": f"127.0.0.1:{free_port()}"})
        it = door.Door(other, store, node.lead.reception.serve, Supervisor())
        moody.error = AWAY
        async with supervisor.running("door", it.run):
            while moody.failed < 3:
                await asyncio.sleep(0.01)
            assert it.port is None
            await store.create_token("first", Role.WORKER)
            moody.error = None
            while it.port is None:
                await asyncio.sleep(0.01)
        assert it.port is None
        assert not supervisor.failures


async def test_a_taken_port_is_told_at_the_start_of_an_all_in_one(tmp_path):
    config = config_at(tmp_path / "data", server={"grpc_listen": f"127.0.0.1:{free_port()}"})
    async with up(config, UpOptions()) as node:  # nobody may join: nobody needs the port
        await node.lead.store.create_token("attic", Role.WORKER)
    taken = contextlib.closing(lifecycle.bind(config.server.grpc_listen))
    with taken, pytest.raises(EnvironmentUnfit, match=f"cannot listen on {config.server.grpc_listen}"):
        async with up(config, UpOptions()):
            pass
