"""The API over a real coordinator, worker, store and upstream: what a client really gets."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import socket
import threading
import time
import zlib
from datetime import UTC, datetime
from unittest import mock

import httpx2
import hypothesis
import pytest
import schemathesis
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from evermirror.__main__ import main
from tests.support.node import NodeThread
from tests.support.upstream import UpstreamServer

ENDED = {"done", "stopped"}  # orders: none may have failed by a mistake of ours
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


@pytest.fixture
def node(tmp_path, upstream):
    """Looks at upstream only when asked to: every test says itself what happens."""
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h") as node:
        yield node


def moment(text):
    assert TIME.fullmatch(text), text
    return datetime.fromisoformat(text)


def sync(node, url, **params):
    answer = node.client.post(
        "/api/tasks", json={"git_url": url, "additional_params": {"wait": 20, **params}}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def mirrored(node, upstream, name="team/x"):
    repo = upstream.create(name)
    node.add(repo.url)
    node.until_active(f"{upstream.host}/{name}")
    return repo


# The contract of seed 002, field by field


def test_a_task_is_submitted_runs_and_tells_its_result(node, upstream):
    repo = mirrored(node, upstream)
    old, new = repo.tip(), repo.commit()
    answer = node.client.post("/api/tasks", json={"git_url": repo.url})
    assert answer.status_code == 200
    submitted = answer.json()
    assert submitted.keys() == {"task_id", "status"}
    assert isinstance(submitted["task_id"], str)
    assert submitted["status"] == "pending"
    path = f"/api/tasks/{submitted['task_id']}"
    node.until(lambda: node.client.get(path).json()["status"] in ("success", "failure"))
    task = node.client.get(path).json()
    seed = {"task_id", "status", "progress", "result", "created_at", "updated_at"}
    assert task.keys() == seed | {"phase", "served"}
    assert (task["task_id"], task["status"], task["progress"]) == (submitted["task_id"], "success", "100%")
    assert task["result"]["changes"] == [{"ref": "refs/heads/main", "old": old, "new": new}]
    assert (task["result"]["first"], task["result"]["commits"]) == (False, 1)
    assert moment(task["created_at"]) <= moment(task["updated_at"]) <= datetime.now(UTC)


def test_a_running_task_has_a_status_and_no_result_yet(node, upstream):
    repo = mirrored(node, upstream)
    repo.big_blob(2_000_000)
    upstream.stall_after_bytes = 100_000
    task_id = node.client.post("/api/tasks", json={"git_url": repo.url}).json()["task_id"]
    node.until(lambda: node.client.get(f"/api/tasks/{task_id}").json()["status"] == "running")
    node.until(lambda: node.client.get("/api/overview").json()["running"])
    task = node.client.get(f"/api/tasks/{task_id}").json()
    assert task["result"] is None
    assert task["progress"] is None or re.fullmatch(r"\d+%", task["progress"])
    upstream.stall_after_bytes = None
    node.until(lambda: node.client.get(f"/api/tasks/{task_id}").json()["status"] == "success")


def test_a_task_that_fails_says_why_and_what_to_do(node, upstream):
    task = sync(node, upstream.url("team/none.git"))
    assert task["status"] == "failure"
    assert task["result"]["error_type"] == "NOT_FOUND"
    assert task["result"]["error_message"]
    assert "hint" in task["result"]


def test_a_second_look_without_a_change_is_skipped(node, upstream):
    repo = mirrored(node, upstream)
    task = sync(node, repo.url)
    assert (task["status"], task["progress"], task["result"]["changes"]) == ("skipped", "100%", [])
    assert sync(node, repo.url, force=True)["status"] in ("skipped", "success")


def test_a_caller_waits_no_longer_than_asked(node, upstream):
    repo = mirrored(node, upstream)
    upstream.stall_after_bytes = 0  # for as long as the test wants
    began = time.monotonic()
    answer = node.client.post("/api/tasks", json={"git_url": repo.url, "additional_params": {"wait": 1.5}})
    assert answer.json()["status"] in ("pending", "running")
    assert 1.4 <= time.monotonic() - began < 15  # on a busy machine; the sync would not end at all
    upstream.stall_after_bytes = None


def test_a_url_is_added_then_exists_then_updated_and_shown(node, upstream):
    repo = upstream.create("team/x")
    body = {"git_url": repo.url, "additional_info": {"team": "kernel", "nested": {"a": [1, None]}}}
    for expected in ("added", "exists"):
        answer = node.client.post("/api/git_urls", json=body)
        assert answer.status_code == 200
        assert answer.json() == {"git_url": repo.url, "status": expected}
    changed = {"git_url": repo.url, "additional_info": {"priority": "high"}}
    assert node.client.post("/api/git_urls", json=changed).json()["status"] == "updated"
    assert node.client.post("/api/git_urls", json={"git_url": repo.url}).json()["status"] == "exists"
    node.until_active(f"{upstream.host}/team/x")
    shown = node.client.get(f"/api/git_urls/{upstream.host}/team/x").json()
    assert shown["git_url"] == repo.url
    assert shown["additional_info"] == {**body["additional_info"], "priority": "high"}
    assert (shown["status"], shown["priority"], shown["last_error"]) == ("active", "high", None)
    assert moment(shown["last_updated"]) <= datetime.now(UTC)
    listed = node.client.get("/api/git_urls").json()
    assert listed == {"items": [shown], "next_cursor": None}


def test_a_removed_url_is_gone_and_added_again_is_new(node, upstream):
    repo = upstream.create("team/x")
    key = f"{upstream.host}/team/x"
    node.add(repo.url)
    node.until_active(key)
    answer = node.client.delete(f"/api/git_urls/{key}")
    assert answer.json() == {"git_url": repo.url, "status": "removed"}
    assert node.client.get(f"/api/git_urls/{key}").status_code == 404
    assert node.client.delete(f"/api/git_urls/{key}").status_code == 404
    assert node.client.get("/api/git_urls").json()["items"] == []
    assert node.client.post("/api/git_urls", json={"git_url": repo.url}).json()["status"] == "added"
    node.until_active(key)


def test_a_disabled_repo_is_left_alone(node, upstream):
    repo = upstream.create("team/x")
    key = f"{upstream.host}/team/x"
    node.add(repo.url, interval="10s")
    node.until_active(key)
    node.add(repo.url, enabled=False)
    assert node.status(key) == "inactive"
    assert node.client.post("/api/tasks", json={"git_url": repo.url}).status_code in (409, 422)
    node.until(lambda: node.node.worker.plan(key).reason == "disabled", within_s=5)
    node.add(repo.url, enabled=True)
    assert sync(node, repo.url)["status"] in ("success", "skipped")


# Lists and keys


def test_pages_of_every_size_together_are_the_whole_list(node, upstream):
    urls = [upstream.url(f"team/{'a' if n % 2 else 'B'}-{n:02}.git") for n in range(53)]
    for url in urls:
        node.add(url, priority="high" if n_of(url) % 5 == 0 else "normal")
    whole = node.client.get("/api/git_urls", params={"limit": 1000}).json()
    assert whole["next_cursor"] is None
    every = [item["key"] for item in whole["items"]]
    assert len(every) == 53
    assert every == sorted(every)
    for limit in (3, 7, 52, 53, 54):
        assert pages(node, limit=limit) == every
    searched = pages(node, limit=4, search="team/a-")
    assert searched == [k for k in every if "team/a-" in k]
    assert pages(node, limit=9, host=upstream.host) == every
    assert pages(node, limit=9, host="other.org") == []


def n_of(url):
    return int(re.search(r"-(\d+)", url)[1])


def pages(node, **query):
    found, cursor = [], None
    while True:
        page = node.client.get(
            "/api/git_urls", params={**query, **({"cursor": cursor} if cursor else {})}
        ).json()
        assert len(page["items"]) <= query["limit"]
        found += [item["key"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found
        assert page["items"]


def test_keys_urls_and_aliases_work_plain_and_encoded(node, upstream):
    repo = upstream.create("team/x")
    key = f"{upstream.host}/team/x"
    node.add(repo.url, alias="kernel/linux")
    node.until_active(key)
    encoded = key.replace("/", "%2F")
    spellings = [
        key, f"{key}.git", encoded, key.replace("/", "%2f"), encoded.replace(":", "%3A"), repo.url,
        repo.url.replace(":", "%3A").replace("/", "%2F"), "kernel/linux", "kernel%2Flinux",
    ]  # fmt: skip
    for base in ("/api/repos/", "/api/git_urls/"):
        for spelling in spellings:
            answer = node.client.get(base + spelling)
            assert answer.status_code == 200, (base, spelling, answer.text)
            assert answer.json()["key"] == key
    for spelling in (key, encoded):
        assert node.client.get(f"/api/repos/{spelling}/-/refs").json()["refs"] == [
            {"name": "refs/heads/main", "oid": repo.tip()}
        ]
        told = node.client.get(f"/api/repos/{spelling}/-/holders").json()
        (holder,) = told["holders"]
        assert (holder["primary"], holder["state"], holder["wanted"]) == (True, "held", True)
        assert holder["reason"] == "first on its walk round the ring"
        assert any(holder["worker"] in line for line in told["why"])
        (task,) = node.client.get(f"/api/repos/{spelling}/-/tasks").json()["items"]
        assert (task["trigger"], task["status"], task["has_changes"]) == ("schedule", "success", True)


def test_one_repo_in_full_says_when_it_is_looked_at_next_and_why(node, upstream):
    repo = upstream.create("team/x")
    node.add(repo.url, interval="2h")
    node.until_active(f"{upstream.host}/team/x")
    shown = node.client.get(f"/api/repos/{upstream.host}/team/x").json()
    assert shown["head_commit"] == repo.tip()
    assert (shown["interval_s"], shown["refs_count"], shown["enabled"]) == (7200.0, 1, True)
    assert shown["size_bytes"] > 0
    assert shown["digest"] == shown["holders"][0]["digest"]
    assert moment(shown["plan"]["next_poll_at"]) > datetime.now(UTC)
    assert shown["plan"]["reason"]
    assert shown["clone_path"] == f"/git/{upstream.host}/team/x"


# Figures


def families(node):
    answer = node.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {f.name: f for f in text_string_to_metric_families(answer.text)}


def values(family, **labels):
    return [s.value for s in family.samples if labels.items() <= s.labels.items()]


def test_metrics_are_parseable_and_count_what_happened(node, upstream):
    repo = mirrored(node, upstream)
    repo.commit()
    sync(node, repo.url)
    sync(node, upstream.url("team/none.git"))
    node.until(lambda: node.client.get("/api/overview").json()["polls_total"] >= 3)
    time.sleep(1.1)  # an overview is at most a second old
    found = families(node)
    assert found.keys() >= {
        "evermirror_build", "evermirror_polls", "evermirror_syncs", "evermirror_sync_seconds",
        "evermirror_failures", "evermirror_received_bytes", "evermirror_http_requests",
        "evermirror_http_seconds", "evermirror_repos", "evermirror_repos_fresh",
        "evermirror_worst_lag_seconds", "evermirror_syncs_queued", "evermirror_syncs_running",
        "evermirror_hosts_not_open", "evermirror_disk_free_bytes", "evermirror_disk_bytes",
        "evermirror_accepting_clones", "evermirror_start_time_seconds",
    }  # fmt: skip
    assert values(found["evermirror_syncs"], outcome="changed")[0] == 2
    assert values(found["evermirror_failures"], kind="NOT_FOUND")[0] >= 1
    assert values(found["evermirror_received_bytes"])[0] > 0
    assert values(found["evermirror_repos"], status="active") == [1]
    assert values(found["evermirror_repos"], status="gone") == [1]
    assert values(found["evermirror_repos_fresh"]) == [1]
    assert values(found["evermirror_disk_free_bytes"])[0] > 0
    assert values(found["evermirror_accepting_clones"]) == [1]
    assert values(found["evermirror_http_requests"], route="/api/tasks", method="POST", status="200")[0] == 2


def test_a_look_that_moved_something_and_one_that_failed_are_counted_as_polls(node, upstream):
    mirrored(node, upstream)
    sync(node, upstream.url("team/none.git"))
    polls = families(node)["evermirror_polls"]
    assert sum(values(polls, outcome="changed")) >= 1
    assert sum(values(polls, outcome="failed")) >= 1


def test_the_overview_agrees_with_the_list(node, upstream):
    sync(node, upstream.create("team/x").url)
    sync(node, upstream.url("team/none.git"))
    node.until(lambda: node.client.get("/api/overview").json()["by_status"].get("gone") == 1)
    overview = node.client.get("/api/overview").json()
    assert overview["total_repos"] == 2
    assert (overview["by_status"]["active"], overview["by_status"]["gone"]) == (1, 1)
    assert overview["failures_by_kind"] == {"NOT_FOUND": 1}
    assert overview["fresh_repos"] == 1
    gone = node.client.get("/api/git_urls", params={"status": "gone"}).json()["items"]
    assert [i["last_error"]["error_type"] for i in gone] == ["NOT_FOUND"]
    assert node.client.get("/readyz").json() == {"ready": True, "reason": "ready"}


# Tokens made and revoked beside the running server


def token_command(node, *args):
    out, err = io.StringIO(), io.StringIO()
    argv = ["evermirror", "token", *args, "--data", str(node.data), "--json"]
    with (
        mock.patch("sys.argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main()
    assert code == 0, err.getvalue()
    return json.loads(out.getvalue())


def bearer(made):
    return {"Authorization": f"Bearer {made['token']}"}


def test_the_first_token_shuts_the_door_and_leaves_reading_public(node, upstream):
    repo = upstream.create("team/x")
    body = {"git_url": repo.url}
    node.add(repo.url)
    admin = token_command(node, "create", "--role", "admin", "--name", "boss")
    node.until(lambda: node.client.post("/api/git_urls", json=body).status_code == 401, within_s=5)
    refused = node.client.post("/api/tasks", json=body)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert node.client.delete(f"/api/git_urls/{upstream.host}/team/x").status_code == 401
    for path in ("/api/git_urls", f"/api/repos/{upstream.host}/team/x", "/api/overview", "/metrics"):
        assert node.client.get(path).status_code == 200
    assert node.client.post("/api/git_urls", json=body, headers=bearer(admin)).json()["status"] == "exists"


def test_each_role_may_do_what_it_is_for(node, upstream):
    repo, other = upstream.create("team/x"), upstream.create("team/y")
    made = {
        role: token_command(node, "create", "--role", role, "--name", role)
        for role in ("admin", "operator", "submitter", "reader", "worker")
    }
    node.until(
        lambda: node.client.post("/api/git_urls", json={"git_url": repo.url}).status_code == 401, within_s=5
    )

    def post(role, path, **body):
        return node.client.post(path, json=body, headers=bearer(made[role])).status_code

    assert post("reader", "/api/git_urls", git_url=repo.url) == 403
    assert post("reader", "/api/tasks", git_url=repo.url) == 404  # may not add, and it is not there
    assert post("worker", "/api/tasks", git_url=repo.url) == 403
    assert post("submitter", "/api/git_urls", git_url=repo.url) == 200
    assert post("submitter", "/api/git_urls", git_url=other.url, additional_info={"private": True}) == 403
    assert post("operator", "/api/git_urls", git_url=other.url, additional_info={"private": True}) == 200
    assert post("reader", "/api/tasks", git_url=repo.url) == 200
    path = f"/api/git_urls/{upstream.host}/team/y"
    assert node.client.get(path).status_code == 404  # private: the public does not know of it
    assert node.client.get(path, headers=bearer(made["reader"])).status_code == 200
    for role, status in (("reader", 403), ("submitter", 403), ("operator", 200)):
        assert node.client.delete(path, headers=bearer(made[role])).status_code == status


def test_a_revoked_token_is_refused_within_five_seconds_and_its_use_is_seen(node, upstream):
    repo = upstream.create("team/x")
    boss = token_command(node, "create", "--role", "admin", "--name", "boss")
    made = token_command(node, "create", "--role", "operator", "--name", "ci")

    def status(of):
        return node.client.post("/api/git_urls", json={"git_url": repo.url}, headers=bearer(of)).status_code

    assert status(made) == 200
    node.until(lambda: any(t["last_used_at"] for t in token_command(node, "list") if t["name"] == "ci"))
    token_command(node, "revoke", "ci")
    node.until(lambda: status(made) == 401, within_s=5)
    assert status(boss) == 200
    token_command(node, "revoke", "boss")
    node.until(lambda: status(boss) == 401, within_s=5)


def test_many_clients_at_once_are_all_answered(node, upstream):
    repo = upstream.create("team/x")
    node.add(repo.url)
    answers = []

    def ask():
        with httpx2.Client(base_url=node.url, timeout=30, trust_env=False) as client:
            body = {"git_url": repo.url, "additional_params": {"wait": 20}}
            answers.append(client.post("/api/tasks", json=body).json()["status"])

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 30
    assert set(answers) <= {"success", "skipped"}


# Whatever is sent


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """One node for all generated requests, with something in it."""
    folder = tmp_path_factory.mktemp("busy")
    with UpstreamServer(folder / "upstream") as upstream:
        one = upstream.create("team/x0", commits=1)
        repos = [one, *(upstream.copy(one, f"team/x{n}") for n in range(1, 4))]
        hook = {"event_hooks__0__url": "http://127.0.0.1:9/", "event_hooks__0__secret": "0123456789abcdef"}
        with NodeThread(folder, upstream.host, **hook) as node:
            for repo in repos:
                node.add(repo.url)
                node.until_active(f"{upstream.host}/{repo.name}")
            yield node, upstream.host


@pytest.fixture(scope="module")
def operations(busy):
    node, _ = busy
    found = [r.ok() for r in schemathesis.openapi.from_url(f"{node.url}/openapi.json").get_all_operations()]
    return {f"{operation.method.upper()} {operation.path}": operation for operation in found}


OPERATIONS = [
    # First, while all repos are there; DELETE at the end.
    "PUT /api/pull/projects/{key}/config", "GET /api/pull/projects/{key}/config",
    "POST /api/pull/projects/batch-update-priority", "POST /api/pull/projects/{key}/trigger",
    "POST /api/pull/trigger/batch", "GET /api/pull/projects/{key}", "GET /api/pull/projects/{key}/tasks",
    "GET /api/pull/projects/{key}/errors", "GET /api/pull/tasks/{task_id}", "GET /api/pull/projects",
    "GET /api/pull/projects/failed", "GET /api/pull/progress/overview",
    "GET /api/pull/progress/by-priority", "GET /api/pull/progress/course", "GET /api/pull/errors",
    "GET /api/pull/errors/statistics", "GET /api/pull/tasks", "GET /api/pull/strategy",
    "PUT /api/pull/strategy", "POST /api/pull/projects", "POST /api/pull/projects/{key}/reset-failures",
    "POST /api/pull/projects/{key}/targets/adopt", "DELETE /api/pull/projects/{key}/config",
    "GET /api/pull/report", "POST /api/pull/discoveries", "GET /api/pull/discoveries",
    "GET /api/pull/discoveries/{discovery_id}", "GET /api/pull/discoveries/{discovery_id}/projects",
    "PUT /api/pull/discoveries/{discovery_id}", "POST /api/pull/discoveries/{discovery_id}/run",
    "GET /api/pull/discoveries/previews/{preview_id}", "DELETE /api/pull/discoveries/{discovery_id}",
    "GET /api/alerts", "GET /api/alerts/{alert_id}", "GET /api/alerts/channels", "POST /api/alerts/test",
    "POST /api/alerts/silences", "GET /api/alerts/silences", "DELETE /api/alerts/silences/{silence_id}",
    "GET /api/events", "GET /api/event_hooks", "GET /api/event_hooks/letters",
    "POST /api/event_hooks/{name}/test",
    "POST /api/event_hooks/{name}/retry", "POST /api/event_hooks/{name}/forget",
    "POST /api/webhooks/{forge}", "POST /api/hooks/registrations", "GET /api/hooks/registrations",
    "GET /api/hooks/registrations/{order_id}", "DELETE /api/hooks/registrations/{order_id}",
    "POST /api/tasks", "GET /api/tasks/{task_id}", "POST /api/git_urls", "GET /api/git_urls",
    "GET /api/git_urls/{key}", "DELETE /api/git_urls/{key}", "GET /api/repos/{key}",
    "GET /api/repos/{key}/-/refs", "GET /api/repos/{key}/-/tasks", "GET /api/repos/{key}/-/holders",
    "GET /api/repos/{key}/-/pushes", "GET /api/repos/{key}/-/targets", "GET /api/fleet/moves",
    "GET /api/repos/{key}/-/hooks", "GET /api/hooks",
    "GET /api/repos/{key}/-/history", "POST /api/repos/{key}/-/restore", "POST /api/repos/{key}/-/confirm",
    "POST /api/repos/{key}/-/undelete", "GET /api/catalog", "POST /api/catalog/confirm",
    "GET /api/fleet", "GET /api/fleet/workers/{name}", "POST /api/fleet/workers/{name}/drain",
    "POST /api/fleet/workers/{name}/resume", "POST /api/fleet/workers/{name}/retire",
    "POST /api/fleet/workers/{name}/quarantine", "POST /api/fleet/brake/overrule",
    "GET /api/overview", "GET /api/overview/course", "GET /api/me", "GET /api/version", "GET /healthz",
    "GET /readyz", "GET /metrics",
    "DELETE /api/pull/projects/{key}",
    # Last: they pause repos, and whole catalogs.
    "POST /api/repos/{key}/-/pause", "POST /api/repos/{key}/-/resume",
    "POST /api/bulk", "GET /api/bulk", "GET /api/bulk/{order_id}", "POST /api/bulk/{order_id}/stop",
]  # fmt: skip


def with_real_names(case, host):
    """Half of the generated texts become names of what is there; none waits for long."""

    def pick(text, choices):
        number = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        return choices[number // 2 % len(choices)] if number % 2 else text

    keys = [f"{host}/team/x{n}" for n in range(6)]  # two of them are not there
    body = case.body if isinstance(case.body, dict) else {}
    if isinstance(body.get("git_url"), str) and 1 <= len(body["git_url"]) <= 2048:
        body["git_url"] = pick(body["git_url"], [f"http://{k}.git" for k in keys])
    for field in ("url", "source_url"):
        if isinstance(body.get(field), str) and 1 <= len(body[field]) <= 2048:
            body[field] = pick(body[field], [f"http://{k}.git" for k in keys])
    for field in ("projects", "project_keys", "keys"):
        if isinstance(body.get(field), list):
            body[field] = [
                pick(k, keys) if isinstance(k, str) and 1 <= len(k) <= 2000 else k for k in body[field]
            ]
    for target in body["targets"] if isinstance(body.get("targets"), list) else []:
        if (
            isinstance(target, dict)
            and isinstance(target.get("url"), str)
            and 1 <= len(target["url"]) <= 2048
        ):
            target["url"] = pick(target["url"], [f"http://{k}.git" for k in keys])
    params = body.get("additional_params")
    if (
        isinstance(params, dict)
        and isinstance(params.get("wait"), int | float)
        and not isinstance(params["wait"], bool)
        and 0 < params["wait"] <= 300
    ):
        params["wait"] = 0.2
    path = case.path_parameters or {}
    if isinstance(path.get("key"), str) and 1 <= len(path["key"]) <= 2000:
        path["key"] = pick(path["key"], keys)
    if isinstance(path.get("name"), str):
        path["name"] = pick(path["name"], [socket.gethostname(), "0", "1"])
    if isinstance(path.get("task_id"), str):
        path["task_id"] = pick(path["task_id"], ["1", "2", "3"])


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_as_documented(operations, busy, name, mode):
    operation = operations[name]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or "{key}" in name):
        return  # nothing can be wrong about it

    @hypothesis.settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        with_real_names(case, busy[1])
        if name == "GET /api/events":  # as a page: the stream has no end
            case.headers = {**(case.headers or {}), "Accept": "application/json"}
        case.call_and_validate(checks=CHECKS)

    ask()


def test_every_operation_of_the_document_is_tried(operations):
    assert set(OPERATIONS) == operations.keys()


def test_the_node_is_well_after_all_that(busy):
    node, host = busy
    assert node.client.post("/api/fleet/workers/0/resume").json()["status"] == "alive"
    node.until(lambda: {one["status"] for one in node.client.get("/api/bulk").json()["items"]} <= ENDED)
    order = node.client.post("/api/bulk", json={"action": "resume", "filter": {}}).json()["id"]
    node.until(lambda: node.client.get(f"/api/bulk/{order}").json()["status"] == "done")
    node.add(f"http://{host}/team/x0.git")
    assert sync(node, f"http://{host}/team/x0.git")["status"] in ("success", "skipped")
    assert node.client.get("/readyz").status_code == 200
    assert not asyncio.run_coroutine_threadsafe(_failures(node.node), node._loop).result(5)


async def _failures(node):
    return node.supervisor.failures
