"""Pull mirroring through an aggregator: as at the coordinator, keys and slashes included."""

from __future__ import annotations


async def test_projects_are_asked_for_changed_and_pulled_through_an_aggregator(pair):
    for name in ("team", "team/config", "failed"):
        pair.pull.add(name)
    async with pair.client("em_operator") as client:
        for path, name in (
            ("team/config", "team"),
            ("team%2Fconfig", "team/config"),
            ("team%2Fconfig/config", "team/config"),
            ("failed/config", "failed"),
            ("git.example.org/failed", "failed"),
        ):
            answer = await client.get(f"/api/pull/projects/{path}")
            assert answer.json()["project_key"] == name, path
            assert pair.seen[-1].target == f"/api/pull/projects/{path}".encode()
        assert (await client.get("/api/pull/projects/failed")).json()["items"] == []
        made = await client.post("/api/pull/projects/team/trigger", json={"force": True})
        task = await client.get(f"/api/pull/tasks/{made.json()['task_id']}")
        assert (task.json()["project_key"], task.json()["trigger_user"]) == ("team", "operator-1")


async def test_who_changed_something_sees_it_at_once(pair):
    pair.pull.add("team")
    path = "/api/pull/projects/team/config"
    async with pair.client("em_operator") as client:
        for retries in range(5):
            assert (await client.get(path)).status_code == 200
            await client.put(path, json={"max_retries": retries})
            assert (await client.get(path)).json()["max_retries"] == retries
        assert (await client.delete("/api/pull/projects/team")).status_code == 200
        assert (await client.get(path)).status_code == 404


async def test_the_public_asks_through_an_aggregator_as_the_public(pair):
    pair.pull.add("secret", private=True)
    async with pair.client() as client:
        assert (await client.get("/api/pull/projects/secret")).status_code == 404
        assert (await client.get("/api/pull/projects")).json()["total"] == 0
        assert (await client.put("/api/pull/strategy", json={})).status_code == 401
    async with pair.client("em_reader") as client:
        assert (await client.get("/api/pull/projects/secret")).status_code == 200
