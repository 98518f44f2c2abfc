"""Users of an aggregator, real processes: the coordinator is paused, killed and back, and they are told."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evermirror.faces.pass_on.reads import READ_S
from tests.support.fleet_processes import FleetProcesses, Node
from tests.support.gitrepo import clean_git_env
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(tmp_path: Path, upstream: UpstreamServer) -> Iterator[FleetProcesses]:
    quick = {"EVERMIRROR_FLEET__HEARTBEAT": "500ms", "EVERMIRROR_FLEET__MIN_WORKERS": "1"}
    processes = FleetProcesses(tmp_path / "fleet", upstream, quick)
    processes.prepare()
    yield processes
    processes.close()


@pytest.fixture
def aggregator(fleet: FleetProcesses) -> Iterator[Node]:
    node = fleet.node("agg")
    yield node
    node.close()


def fresh(node: Node) -> bool:
    got = node.client.get("/api/overview")
    return got.status_code == 200 and "x-evermirror-stale" not in got.headers


def refs(node: Node, key: str) -> str:
    done = subprocess.run(
        ["git", "ls-remote", f"http://127.0.0.1:{node.port}/git/{key}"],
        env=clean_git_env(node.data), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def test_users_are_told_the_truth_whatever_happens_to_the_coordinator(fleet, aggregator):
    (key,) = fleet.create(["one"])
    fleet.lead()
    fleet.join("w1")
    aggregator.start("aggregator", "join", fleet.address, fleet.token("agg", role="aggregator"))
    fleet.until(lambda: refs(aggregator, key))
    admin = aggregator.client.headers["Authorization"] = fleet.coordinator.client.headers["Authorization"]
    fleet.until(lambda: fresh(aggregator))
    assert aggregator.client.get(f"/api/repos/{key}").json()["holders"][0]["worker"] == "w1"

    fleet.coordinator.signal(signal.SIGSTOP)
    time.sleep(1.1)
    began = time.monotonic()
    got = aggregator.client.get("/api/overview", timeout=60)
    assert time.monotonic() - began < READ_S + 10  # a second such wait would be over after twice as long
    assert (got.status_code, "x-evermirror-stale" in got.headers) == (200, True)
    fleet.coordinator.signal(signal.SIGCONT)
    fleet.until(lambda: fresh(aggregator))

    fleet.coordinator.kill()
    time.sleep(1.1)
    assert aggregator.client.get("/api/overview").headers["x-evermirror-stale"]
    extra = fleet.upstream.create("two")
    late = aggregator.client.post("/api/git_urls", json={"git_url": extra.url})
    assert (late.status_code, "nothing was changed" in late.json()["detail"]) == (503, True)
    state = "/api/aggregator"
    fleet.until(lambda: aggregator.client.get(state).json()["coordinator"]["connected"] is False)
    assert refs(aggregator, key)

    fleet.lead()
    fleet.until(lambda: fresh(aggregator))
    added = aggregator.client.post("/api/git_urls", json={"git_url": extra.url})
    assert added.json()["status"] == "added"
    fleet.until(lambda: refs(aggregator, f"{fleet.upstream.host}/two"))
    assert str(admin).removeprefix("Bearer ") not in aggregator.log()
    assert "Traceback" not in aggregator.log()
