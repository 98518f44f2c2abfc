"""A relay whose port the system chose is found at the same one after a restart."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from evermirror.config import Config
from evermirror.edge.relay.certificate import own_certificate
from evermirror.edge.relay.last_port import FILE, last_port, note_port
from evermirror.edge.relay.server import RelayServer
from evermirror.nodes.aggregator.aggregator_relay import relaying


def relay_at(folder: Path, port: int, before: int) -> RelayServer:
    return RelayServer(("127.0.0.1", port), own_certificate(folder), lambda: None, last_port=before)


async def run_once(config: Config) -> str:
    async with relaying(config, lambda: "here", lambda: None, lambda: 0.0) as (_, address):
        return address.address


def test_what_was_noted_is_known_again(tmp_path):
    assert last_port(tmp_path) == 0
    note_port(tmp_path, 40_123)
    note_port(tmp_path, 40_124)
    assert last_port(tmp_path) == 40_124
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"65536", b"9" * 5000, b"\xff\xfe", "²".encode()])
def test_what_is_no_port_is_none(tmp_path, text):
    (tmp_path / FILE).write_bytes(text)
    assert last_port(tmp_path) == 0


def test_a_folder_that_takes_nothing_is_no_trouble(tmp_path):
    note_port(tmp_path / "nothing", 40_123)
    assert last_port(tmp_path / "nothing") == 0


async def test_the_same_port_again(tmp_path):
    async with relay_at(tmp_path, 0, 0) as first:
        port = first.port
    async with relay_at(tmp_path, 0, port) as second:
        assert second.port == port


async def test_another_where_it_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        async with relay_at(tmp_path, 0, taken) as relay:
            assert relay.port not in (0, taken)


async def test_a_port_that_was_set_is_kept_to(tmp_path):
    async with relay_at(tmp_path, 0, 0) as other:
        before = other.port
    with socket.create_server(("127.0.0.1", 0)) as place:
        wanted = place.getsockname()[1]
    async with relay_at(tmp_path, wanted, before) as relay:
        assert relay.port == wanted


async def test_a_node_started_again_has_its_relay_where_it_was(tmp_path):
    config = Config.model_validate({"data": {"dir": str(tmp_path)}, "server": {"listen": "127.0.0.1:0"}})
    first = await run_once(config)
    assert await run_once(config) == first
    (tmp_path / "relay" / FILE).unlink()
    assert (await run_once(config)).startswith("127.0.0.1:")
    assert (tmp_path / "relay" / FILE).exists()
