"""Events of a real node over a real upstream: what is done is told, and a stop ends those who follow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import httpx2
import pytest

from evermirror.nodes import http_server
from tests.faces.cli.conftest import clean_env
from tests.support.node import NodeThread

WITHIN_S = 60.0


@pytest.fixture
def node(tmp_path, upstream):
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h") as node:
        yield node


def page(node, **query):
    answer = node.client.get("/api/events", params=query, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(told, what=""):
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if found := told():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not told: {what}")


def sync(node, url):
    answer = node.client.post("/api/tasks", json={"git_url": url, "additional_params": {"wait": 20}})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_a_node_does_is_told_in_order(node, upstream):
    repo = upstream.create("team/x")
    key = f"{upstream.host}/team/x"
    node.add(repo.url)
    node.until_active(key)
    old = repo.git("rev-parse", "HEAD").strip()
    new = repo.commit()
    task = sync(node, repo.url)
    node.client.delete(f"/api/git_urls/{key}")
    items = until(lambda: (i := page(node)["items"]) and i[-1]["type"] == "repo.removed" and i, "removed")
    about = [item for item in items if item["repo"] == key]
    assert [item["type"] for item in about] == [
        "repo.added",
        "refs.changed",
        "refs.changed",
        "task.ended",
        "repo.removed",
    ]
    assert about[1]["data"]["first"] is True
    moved = about[2]
    assert moved["data"]["changes"] == [{"ref": "refs/heads/main", "old": old, "new": new}]
    assert moved["worker"] is not None
    assert about[3]["data"]["task_id"] == task["task_id"]
    assert about[3]["data"]["status"] == "success"
    assert "worker.joined" in [item["type"] for item in items]
    told = 'evermirror_events_total{type="refs.changed"} 2.0'  # counted once it is stored
    metrics = until(lambda: told in (text := node.client.get("/metrics").text) and text, told)
    assert "evermirror_event_followers 0.0" in metrics


def test_a_repo_that_fails_and_is_well_again_is_told(node, upstream):
    repo = upstream.create("team/x")
    node.add(repo.url)
    key = f"{upstream.host}/team/x"
    node.until_active(key)
    after = page(node)["next_after"]
    hidden = repo.path.with_name("hidden.git")
    repo.path.rename(hidden)
    sync(node, repo.url)
    hidden.rename(repo.path)
    sync(node, repo.url)
    wanted = ["repo.gone", "sync.failed", "sync.recovered"]
    items = until(
        lambda: len(i := page(node, after=after, types="repo.*,sync.*")["items"]) >= 3 and i, wanted
    )
    assert sorted(item["type"] for item in items) == wanted
    assert items[-1]["type"] == "sync.recovered"
    assert {item["repo"] for item in items} == {key}


def test_a_stop_lets_those_who_follow_go(tmp_path, upstream, monkeypatch):
    monkeypatch.setattr(http_server, "STOP_S", 60)  # of themselves they would stay so long
    ended = []

    def follow(url):
        with httpx2.stream("GET", f"{url}/api/events", timeout=90, trust_env=False) as answer:
            for _ in answer.iter_lines():
                pass
        ended.append(time.monotonic())

    with NodeThread(tmp_path, upstream.host) as node:
        threads = [threading.Thread(target=follow, args=(node.url,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: "evermirror_event_followers 5.0" in node.client.get("/metrics").text, "five")
        began = time.monotonic()
    took_s = time.monotonic() - began
    for thread in threads:
        thread.join(20)
    assert len(ended) == 5
    assert max(ended) - began < 30.0
    assert took_s < 30.0


def test_the_command_follows_over_a_restart(tmp_path, upstream):
    """As users start it: lines come, the server goes and comes back, and nothing is missing."""
    repo = upstream.create("team/x")
    settings = {"schedule__min_gap": "1h"}
    with NodeThread(tmp_path, upstream.host, **settings) as node:
        port = int(node.url.rpartition(":")[2])
        node.add(repo.url)
        node.until_active(f"{upstream.host}/team/x")
        args = [
            sys.executable,
            "-m",
            "evermirror",
            "events",
            "-f",
            "--json",
            "--types",
            "refs.*",
            "--after",
            "0",
        ]
        command = subprocess.Popen(
            [*args, "--server", node.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**clean_env(tmp_path), "PYTHONUNBUFFERED": "1"},
        )
        try:
            first = json.loads(command.stdout.readline())
            assert first["data"]["first"] is True
        except BaseException:
            command.kill()
            raise
    try:
        with NodeThread(tmp_path, upstream.host, **settings, server__listen=f"127.0.0.1:{port}") as node:
            commit = repo.commit()
            sync(node, repo.url)
            second = json.loads(command.stdout.readline())
            assert second["data"]["changes"][0]["new"] == commit
            assert second["id"] > first["id"]
            os.kill(command.pid, signal.SIGINT)
            _, said = command.communicate(timeout=60)
        assert command.returncode == 130
        assert "trying again in 2 s" in said
    finally:
        command.kill()
        command.wait()


def test_what_moved_unseen_is_told_without_names(tmp_path, upstream):
    """HEAD alone, and refs of which a worker that was killed could not tell any more."""
    repo = upstream.create("team/x")
    key = f"{upstream.host}/team/x"

    def changed(node):
        return [item["data"] for item in page(node)["items"] if item["type"] == "refs.changed"]

    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h") as node:
        node.add(repo.url)
        node.until_active(key)
        repo.branch("dev")
        sync(node, repo.url)
        repo.git("symbolic-ref", "HEAD", "refs/heads/dev")
        sync(node, repo.url)
        told = until(lambda: (c := changed(node)) and len(c) == 3 and c, "HEAD moved")
        assert [(data["changes_total"], data["changes"]) for data in told[2:]] == [(0, [])]
        assert told[2]["digest"] != told[1]["digest"]
    ours = (p.parent for p in tmp_path.rglob("HEAD") if "upstream" not in p.relative_to(tmp_path).parts)
    [mirror] = [folder for folder in ours if (folder / "objects").is_dir()]
    repo.commit()
    subprocess.run(
        ["git", "--git-dir", mirror, "fetch", "-q", repo.url, "+refs/heads/*:refs/heads/*"], check=True
    )
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h") as node:
        sync(node, repo.url)
        told = until(lambda: (c := changed(node)) and len(c) == 4 and c, "what came before the stop")
        assert (told[3]["changes_total"], told[3]["first"]) == (0, False)
