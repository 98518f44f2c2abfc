"""An order about thousands of repos whose process is killed in the middle: the next one goes on with it."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from evermirror.config.settings import DATABASE_FILE
from evermirror.edge.store.store import Store
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec
from tests.scenarios.test_processes import Process

REPOS = 4_000
START_S = 120.0  # of a machine that has other things to do
HOST = Host("127.0.0.1:9")  # nobody is asked: they are paused


async def fill(folder) -> None:
    folder.mkdir(parents=True)
    store = await Store.open(f"sqlite:///{folder / DATABASE_FILE}")
    keys = [RepoKey(f"{HOST}/r{n:05}") for n in range(REPOS)]
    await store.upsert_repos(
        [RepoRecord(RepoSpec(key, f"http://{key}", HOST), enabled=False) for key in keys]
    )
    await store.close()


async def priorities(folder) -> set[Priority]:
    store = await Store.open(f"sqlite:///{folder / DATABASE_FILE}")
    try:
        return {record.spec.priority for record in await store.of_source("api")}
    finally:
        await store.close()


def test_an_order_goes_on_after_a_kill_and_counts_every_repo_once(tmp_path):
    asyncio.run(fill(tmp_path / "data"))
    with contextlib.closing(Process(tmp_path, str(HOST))) as first:
        first.until(lambda: first.client.get("/readyz").status_code == 200, START_S)
        body = {"action": "priority", "priority": "high", "filter": {"priority": "normal"}, "expected": REPOS}
        answer = first.client.post("/api/bulk", json=body)
        assert answer.status_code == 202, answer.text
        path = f"/api/bulk/{answer.json()['id']}"
        while (shown := first.client.get(path).json())["done"] == 0:
            assert shown["status"] == "running", shown
        first.stop(signal.SIGKILL)
    assert asyncio.run(priorities(tmp_path / "data")) == {Priority.NORMAL, Priority.HIGH}
    with contextlib.closing(Process(tmp_path, str(HOST))) as second:
        second.until(lambda: second.client.get("/readyz").status_code == 200, START_S)
        second.until(lambda: second.client.get(path).json()["status"] != "running", START_S)
        shown = second.client.get(path).json()
        assert (shown["status"], shown["done"], shown["failed"]) == ("done", REPOS, 0), shown
        assert second.stop() == 0
    assert asyncio.run(priorities(tmp_path / "data")) == {Priority.HIGH}
