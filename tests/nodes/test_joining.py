"""How a node asks to be let in: it waits for a door that opens soon; a refusal leaves nothing behind."""

import asyncio
import time

import pytest

from evermirror.edge.rpc.join import NotListening, join_token
from evermirror.edge.rpc.pki import ca_fingerprint, open_ca
from evermirror.errors import EvermirrorError
from evermirror.model.access import Role
from evermirror.nodes import membership_card
from evermirror.nodes.coordinator import door
from evermirror.nodes.coordinator.door import Door
from evermirror.nodes.coordinator.own_ca import pki_folder
from evermirror.nodes.membership_card import FILE, Card, join
from tests.support.ports import free_port
from tests.support.stage import Stage


@pytest.fixture
def stage(tmp_path, upstream):
    return Stage(tmp_path, upstream)


async def card(up, address, name, role=Role.WORKER):
    token, _ = await up.node.lead.store.create_token(name, role, trusted=True)
    door.tls_files(up.node.config)  # the CA is made with the first token
    return Card(address, join_token(token, ca_fingerprint(open_ca(pki_folder(up.node.config)))))


async def test_a_door_that_opens_soon_is_waited_for_and_that_is_told_once(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    monkeypatch.setattr(membership_card, "LISTENS_S", 60.0)
    monkeypatch.setattr(membership_card, "TRY_AGAIN_S", 0.05)
    opens = asyncio.Event()
    monkeypatch.setattr(Door, "_any_tokens", lambda self: asyncio.sleep(0, opens.is_set()))
    address, told = f"127.0.0.1:{free_port()}", []
    async with stage.up(server={"grpc_listen": address}) as up:
        config = stage.config(data={"dir": str(tmp_path / "attic")})
        joining = asyncio.create_task(
            join(config, await card(up, address, "attic"), Role.WORKER, waiting=told.append)
        )
        await up.until(lambda: asyncio.sleep(0, bool(told)))
        assert not joining.done()
        opens.set()
        assert await joining == "attic"
        assert len(told) == 1
        assert (tmp_path / "attic" / FILE).exists()
        names = [worker.name for worker in up.node.lead.admin.look().workers]
        assert "attic" not in names, "it only asked"


async def test_where_nobody_ever_listens_the_wait_ends(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(membership_card, "LISTENS_S", 0.2)
    monkeypatch.setattr(membership_card, "TRY_AGAIN_S", 0.05)
    config = stage.config(data={"dir": str(tmp_path / "attic")})
    nobody = Card(f"127.0.0.1:{free_port()}", join_token("x" * 32, "a" * 32))
    began = time.monotonic()
    with pytest.raises(NotListening, match="cannot be reached"):
        await join(config, nobody, Role.WORKER, waiting=lambda failure: None)
    assert time.monotonic() - began >= 0.2
    assert not (tmp_path / "attic" / FILE).exists()


@pytest.mark.parametrize("role", [Role.WORKER, Role.AGGREGATOR])
async def test_a_token_of_the_other_role_is_refused_before_anything_is_remembered(
    stage, tmp_path, monkeypatch, role
):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    other = Role.AGGREGATOR if role is Role.WORKER else Role.WORKER
    address = f"127.0.0.1:{free_port()}"
    async with stage.up(server={"grpc_listen": address}) as up:
        config = stage.config(data={"dir": str(tmp_path / "odd")})
        with pytest.raises(
            EvermirrorError, match=f"the coordinator refuses this {role.value}: this token is for"
        ):
            await join(config, await card(up, address, "odd", other), role, waiting=lambda failure: None)
        assert not (tmp_path / "odd" / FILE).exists()


async def test_a_name_that_another_worker_has_is_refused_with_what_to_do(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    address = f"127.0.0.1:{free_port()}"
    async with stage.up(server={"grpc_listen": address}, worker={"name": "vm"}) as up:
        config = stage.config(data={"dir": str(tmp_path / "second")}, worker={"name": "vm"})
        with pytest.raises(EvermirrorError, match=r"another worker has the name 'vm': set worker\.name here"):
            await join(config, await card(up, address, "attic"), Role.WORKER, waiting=lambda failure: None)
        assert not (tmp_path / "second" / FILE).exists()
