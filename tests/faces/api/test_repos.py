"""One repo in full, the overview, health and metrics."""

from __future__ import annotations

from dataclasses import replace

from evermirror.model.failure import FailureKind
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.repo import RepoStatus

URL = "https://github.com/o/r"
KEY = "github.com/o/r"


async def test_a_repo_shows_its_plan_and_holders(client, api_service):
    await api_service.add_url(URL, None, actor="test")
    repo = (await client.get(f"/api/repos/{KEY}")).json()
    assert repo["holders"][0]["worker"] == "here"
    assert repo["plan"]["reason"].startswith("adaptive")
    assert repo["plan"]["next_poll_at"].endswith("Z")
    assert repo["clone_path"] == f"/git/{KEY}"
    assert (repo["holders"][0]["state"], repo["holders"][0]["wanted"]) == ("held", True)
    told = (await client.get(f"/api/repos/{KEY}/-/holders")).json()
    assert told["holders"] == repo["holders"]
    assert told["why"] == ["1 of 1 wanted copies are placed."]


async def test_refs_come_in_pages_also_with_names_that_are_no_text(client, api_service):
    await api_service.add_url(URL, None, actor="test")
    names = ["refs/heads/main", "refs/heads/\udcff\udcfe", "refs/tags/v1", "refs/heads/中文"]
    snapshot = RefSnapshot({n: Oid("b" * 40) for n in names}, "refs/heads/main")
    api_service.refs_of[KEY] = snapshot
    seen, cursor = [], None
    for _ in names:
        query = {"limit": 1} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(f"/api/repos/{KEY}/-/refs", params=query)).json()
        assert (page["total"], page["digest"], page["head"]) == (4, snapshot.digest(), "refs/heads/main")
        seen += [r["name"] for r in page["refs"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert sorted(seen) == sorted(["refs/heads/main", "refs/heads/��", "refs/tags/v1", "refs/heads/中文"])
    tags = (await client.get(f"/api/repos/{KEY}/-/refs?prefix=refs/tags/")).json()
    assert [r["name"] for r in tags["refs"]] == ["refs/tags/v1"]


async def test_tasks_of_a_repo_are_newest_first(client):
    for _ in range(3):
        await client.post("/api/tasks", json={"git_url": URL})
    tasks = (await client.get(f"/api/repos/{KEY}/-/tasks?limit=2")).json()["items"]
    assert [t["task_id"] for t in tasks] == ["3", "2"]
    assert tasks[0]["trigger"] == "api"


async def test_the_overview_counts_and_shows_what_runs(client, api_service):
    await api_service.add_url(URL, None, actor="test")
    api_service.run_sync(KEY, 40.0)
    overview = (await client.get("/api/overview")).json()
    assert overview["total_repos"] == 1
    assert overview["fresh_share"] == 0.0
    assert overview["running"][0] | {"started_at": ""} == {
        "key": KEY, "phase": "receiving", "percent": 40.0, "received_bytes": 1000, "started_at": "",
        "worker": "w1",
    }  # fmt: skip
    assert overview["hosts"][0]["state"] == "waiting"


async def test_the_fresh_share_is_of_those_that_can_be_fresh(client, api_service):
    assert (await client.get("/api/overview")).json()["fresh_share"] is None
    for status in RepoStatus:
        key = f"github.com/o/{status.value}"
        await api_service.add_url(f"https://{key}", None, actor="test")
        api_service.repos[key] = replace(api_service.repos[key], status=status)
    overview = (await client.get("/api/overview")).json()  # the fake's fresh ones are those that are active
    assert (overview["total_repos"], overview["fresh_repos"], overview["fresh_share"]) == (7, 1, 0.25)


async def test_private_repos_are_not_there_for_the_public(house, api_service):
    house.with_tokens()
    for i in range(30):
        await api_service.add_url(f"https://github.com/o/r{i:02}", {"private": i % 3 != 0}, actor="test")
    secret = "github.com/o/r29"
    api_service.run_sync(secret, None)
    async with house.client(token="em_submitter") as client:
        task_id = (await client.post("/api/tasks", json={"git_url": secret})).json()["task_id"]
    async with house.client() as public, house.client(token="em_reader") as reader:
        page = (await public.get("/api/git_urls?limit=4")).json()
        assert [i["key"] for i in page["items"]] == [f"github.com/o/r{i:02}" for i in (0, 3, 6, 9)]
        rest = (
            await public.get("/api/git_urls", params={"limit": 100, "cursor": page["next_cursor"]})
        ).json()
        assert [i["key"][-2:] for i in rest["items"]] == ["12", "15", "18", "21", "24", "27"]
        assert len((await reader.get("/api/git_urls")).json()["items"]) == 30
        for path in (f"/api/git_urls/{secret}", f"/api/repos/{secret}", f"/api/repos/{secret}/-/refs"):
            hidden, missing = await public.get(path), await public.get(path.replace("r29", "xyz"))
            assert (hidden.status_code, hidden.text) == (404, missing.text.replace("xyz", "r29"))
            assert (await reader.get(path)).status_code == 200
        assert (await public.get(f"/api/tasks/{task_id}")).status_code == 404
        assert (await public.get("/api/overview")).json()["hosts"] == []  # may be known by private repos only
        assert (await reader.get("/api/overview")).json()["hosts"] != []
        assert (await reader.get(f"/api/tasks/{task_id}")).status_code == 200
        assert (await public.get("/api/overview")).json()["running"] == []
        assert len((await reader.get("/api/overview")).json()["running"]) == 1


async def test_health_and_readiness(client, api_service):
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).status_code == 200
    api_service.is_ready = (False, "the catalog is being read")
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["reason"]) == (503, "the catalog is being read")


async def test_metrics_tell_what_the_engine_and_the_api_did(house, client, api_service):
    await api_service.add_url(URL, None, actor="test")
    house.metrics.polled("unchanged")
    house.metrics.synced("changed", 1.5)
    house.metrics.failed(FailureKind.NOT_FOUND)
    house.metrics.received(99)
    await client.get(f"/api/repos/{KEY}")
    await client.get("/no/such/route")
    text = (await client.get("/metrics")).text
    for line in (
        'evermirror_polls_total{outcome="unchanged"} 1.0',
        'evermirror_syncs_total{outcome="changed"} 1.0',
        'evermirror_failures_total{kind="NOT_FOUND"} 1.0',
        "evermirror_received_bytes_total 99.0",
        'evermirror_repos{status="pending"} 1.0',
        "evermirror_syncs_queued 2.0",
        'evermirror_http_requests_total{method="GET",route="/api/repos/{key:path}",status="200"} 1.0',
        'evermirror_http_requests_total{method="GET",route="(none)",status="404"} 1.0',
    ):
        assert line in text
    assert KEY not in text


async def test_the_version_is_told(client):
    assert (await client.get("/api/version")).json()["name"] == "evermirror"
