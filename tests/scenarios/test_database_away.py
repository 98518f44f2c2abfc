"""PostgreSQL is away under a running ``evermirror up``: nothing ends, and work goes on once it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from tests.support.gitrepo import read_refs
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, find_bin_dir
from tests.support.up_process import up
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server of its own: others use the usual one."""
    folder = find_bin_dir()
    assert folder is not None
    server = PostgresServer(folder)
    yield server
    server.close()


async def make_token(url: str, name: str) -> None:
    store = await Store.open(url)
    try:
        await store.create_token(name, Role.WORKER)
    finally:
        await store.close()


@pytest.mark.parametrize("joined", [False, True], ids=["door-closed", "door-open"])
def test_up_waits_for_its_database_and_goes_on(
    tmp_path: Path, upstream: UpstreamServer, database: PostgresServer, joined: bool
) -> None:
    url = database.create_database()
    if joined:
        asyncio.run(make_token(url, "attic"))
    settings = {
        "EVERMIRROR_DATABASE__URL": url,
        "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
        "EVERMIRROR_UPSTREAMS__ALLOW": f'["{upstream.host}"]',
        "EVERMIRROR_SCHEDULE__MIN_GAP": "1s",
        "EVERMIRROR_SCHEDULE__MAX_GAP": "2s",
        "EVERMIRROR_LIMITS__HOST_RATE": "100/s",
        "EVERMIRROR_SERVER__GRPC_LISTEN": f"127.0.0.1:{free_port()}",
        "EVERMIRROR_AUTH__TOKENS_REQUIRED": "false",
    }
    repo = upstream.create("team/one")
    key = f"{upstream.host}/team/one"
    with up(tmp_path, settings) as node:
        node.add(repo.url)
        node.until(lambda: node.is_served(key))
        database.stop()
        tip = repo.commit()
        node.until(lambda: read_refs(node.mirror(key)).get("refs/heads/main") == tip)
        node.until(lambda: "tokens wait for the database" in node.log())
        database.start_again()
        node.until(lambda: node.repo(key).get("head_commit") == tip)
        task = node.sync(repo.url)
        assert task["status"] == "skipped", "nothing has moved since"
        assert "a part failed" not in node.log()
        assert node.stop() == 0
