"""Tasks that are asked for through an aggregator say whether it serves what they brought."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.model.task import TaskId, TaskStatus
from tests.faces.api.fake_fleet import FakeFleet

URL = "https://example.org/o/r"
KEY = "example.org/o/r"
OLD, NEW = "ab" * 32, "cd" * 32


@pytest.fixture
def has(monkeypatch):
    """The digests that the aggregator has; and how long it was waited for."""

    class Has(set):
        waited = ()

    has = Has()

    async def serves(self, node, key, digest, within_s):
        assert (node, key) == ("aggregator/7", KEY)
        has.waited += (within_s,)
        return digest in has

    monkeypatch.setattr(FakeFleet, "serves", serves)
    return has


async def synced(pair, client, status=TaskStatus.SUCCESS, result=None):
    """The id of a task that has ended."""
    task_id = (await client.post("/api/tasks", json={"git_url": URL})).json()["task_id"]
    result = {"digest": OLD} if result is None else result
    await pair.service.change_task(TaskId(int(task_id)), status=status, result=result)
    return task_id


@pytest.mark.parametrize("status", [TaskStatus.SUCCESS, TaskStatus.SKIPPED])
async def test_it_says_whether_clones_from_there_have_it(pair, has, status):
    async with (
        pair.client("em_submitter") as client,
        pair.client("em_submitter", base=pair.coordinator) as direct,
    ):
        task_id = await synced(pair, client, status)
        assert (await client.get(f"/api/tasks/{task_id}")).json()["served"] is False
        has.add(OLD)
        await client.post(
            "/api/tasks", json={"git_url": URL}
        )  # after a write nothing is answered from memory
        assert (await client.get(f"/api/tasks/{task_id}")).json()["served"] is True
        assert set(has.waited) == {0.0}
        assert (await direct.get(f"/api/tasks/{task_id}")).json()["served"] is None


async def test_newer_refs_than_the_task_brought_are_served_too(pair, has):
    async with pair.client("em_submitter") as client:
        task_id = await synced(pair, client)
        has.add(NEW)
        pair.service.repos[KEY] = replace(pair.service.repos[KEY], digest=NEW)
        assert (await client.get(f"/api/tasks/{task_id}")).json()["served"] is True


@pytest.mark.parametrize(
    ("status", "result"),
    [(TaskStatus.FAILED, {}), (TaskStatus.RUNNING, None), (TaskStatus.SUCCESS, {"ref": "refs/restored/x"})],
)
async def test_of_what_brought_nothing_it_says_nothing(pair, has, status, result):
    async with pair.client("em_submitter") as client:
        task_id = await synced(pair, client, status, result)
        assert (await client.get(f"/api/tasks/{task_id}")).json()["served"] is None
    assert has.waited == ()


async def test_who_waits_has_the_rest_of_the_time_for_it(pair, has, monkeypatch):
    async def wait_task(task_id, timeout_s):
        return replace(pair.service.tasks[task_id], status=TaskStatus.SUCCESS, result={"digest": OLD})

    monkeypatch.setattr(pair.service, "wait_task", wait_task)
    has.add(OLD)
    async with pair.client("em_submitter") as client:
        body = {"git_url": URL, "additional_params": {"wait": 20}}
        assert (await client.post("/api/tasks", json=body)).json()["served"] is True
    (waited,) = has.waited
    assert 15.0 < waited <= 20.0
