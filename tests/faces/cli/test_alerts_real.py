"""`evermirror alerts …` against a real node, whose channel is a real receiver."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faces.cli.conftest import clean_env
from tests.support.http_sink import HttpSink, Reply, Taken, http_sink
from tests.support.node import NodeThread
from tests.support.upstream import UpstreamServer

Ask = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.timeout(120)


class Receiver:
    """Takes what it is sent while ``open``; ``told`` are the alerts in it, with their turns."""

    def __init__(self) -> None:
        self.open = True
        self.told: list[tuple[str, str]] = []

    def __call__(self, request: Taken) -> Reply:
        if not self.open:
            return Reply(503)
        items = json.loads(request.body)["alerts"]
        self.told += [(item["kind"], item["turn"]) for item in items]
        return Reply()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def sink(receiver: Receiver) -> Iterator[HttpSink]:
    with http_sink(receiver) as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, upstream: UpstreamServer, sink: HttpSink) -> Iterator[NodeThread]:
    channel = {
        "channels__hook__type": "webhook",
        "channels__hook__url": sink.base,
        "channels__hook__secret": "of the hook, and long",
    }
    with NodeThread(tmp_path, upstream.host, **channel) as running:
        yield running


@pytest.fixture
def ask(node: NodeThread, tmp_path: Path, run) -> Ask:
    def start(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run("alerts", *args, env={"EVERMIRROR_SERVER": node.url, **env})

    return start


def answer(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_alert_from_its_beginning_to_its_end(node, ask, receiver, upstream):
    """Its source is not there; then somebody makes it, and has the project pulled again."""
    body = {"project_key": "team/app", "source_url": upstream.url("team/app.git"), "source_credential": None}
    made = node.client.post(
        "/api/pull/projects", json={**body, "targets": [{"url": upstream.url("copy.git")}]}
    )
    assert made.status_code == 201, made.text
    node.until(lambda: ("project-paused", "raised") in receiver.told)
    listed = answer(ask("list", "--json"))["items"]
    alert = next(item for item in listed if item["kind"] == "project-paused")
    assert (alert["about"], alert["standing"], alert["silenced_by"]) == ("team/app", True, None)
    node.until(lambda: "sent" in ask("show", str(alert["id"])).stdout)
    shown = ask("show", str(alert["id"]), LANG="zh_CN.UTF-8").stdout
    assert "项目已暂停" in shown
    assert "│ hook │ 发生 │ 已发送" in shown
    silence = answer(ask("silence", "project-*", "team/*", "--for", "2h", "--reason", "known", "--json"))
    assert "standing, silenced" in ask("list").stdout
    assert "known" in ask("silences").stdout
    assert ask("unsilence", str(silence["id"])).returncode == 0
    assert answer(ask("silences", "--json"))["items"] == []
    target = upstream.create("copy", commits=0)
    target.git("config", "http.receivepack", "true")
    upstream.create("team/app")
    reset = node.client.post("/api/pull/projects/team%2Fapp/reset-failures", json={})
    assert reset.status_code == 200, reset.text
    node.until(lambda: ("project-paused", "over") in receiver.told)
    node.until(lambda: answer(ask("list", "--json", "--kind", "project-paused"))["items"] == [])
    over = answer(ask("list", "--all", "--json", "--kind", "project-paused"))["items"]
    assert [(item["id"], item["standing"]) for item in over] == [(alert["id"], False)]
    assert receiver.told.count(("project-paused", "raised")) == 1
    told = node.client.get("/metrics").text
    assert 'evermirror_alert_notices_total{channel="hook",result="sent"} ' in told
    assert 'evermirror_alerts_standing{level="error"} 0.0' in told


def test_a_channel_is_tried_and_says_why_it_does_not_take_the_message(node, ask, receiver):
    done = ask("test", "hook")
    assert (done.returncode, "│ hook    │ sent" in done.stdout) == (0, True)
    assert [turn for _, turn in receiver.told] == ["test"]
    receiver.open = False
    done = ask("test")
    assert done.returncode == 1
    assert "HTTP 503" in done.stdout
    assert "of the hook" not in done.stdout + done.stderr
    assert answer(ask("channels", "--json"))["items"][0]["name"] == "hook"
    missing = ask("test", "nobody")
    assert (missing.returncode, "nobody" in missing.stderr) == (5, True)
    for args, code in ((("show", "999"), 5), (("unsilence", "999"), 5), (("silence", "", "--for", "1h"), 2)):
        assert ask(*args).returncode == code, args


def test_the_program_itself_answers_in_a_pipe(node, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "evermirror", "alerts", "list", "--server", node.url],
        env=clean_env(tmp_path), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "no alerts stand\n")
