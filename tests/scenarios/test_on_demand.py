"""Syncs on demand through a fleet of real processes: workers and coordinators die in the middle.

Whoever waits gets an answer, of an aggregator too. Nobody looks at upstream but who is asked to: what moves
in a mirror, a task moved.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.aggregator_processes import AggregatedFleet
from tests.support.fleet_processes import FleetProcesses, Node
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

NEVER = "0123456789" * 4
STILL = {
    "EVERMIRROR_SCHEDULE__MIN_GAP": "1h",
    "EVERMIRROR_SCHEDULE__MAX_GAP": "2h",
    "EVERMIRROR_FLEET__HEARTBEAT": "300ms",
    "EVERMIRROR_FLEET__MAX_MISSED": "3",
}
Ask = Callable[..., "Future[httpx2.Response]"]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """A sync that somebody waits for, meanwhile."""
    with ThreadPoolExecutor(8) as pool:

        def asked(node: Node, url: str, wait: float = 60, **params: object) -> Future[httpx2.Response]:
            body = {"git_url": url, "additional_params": {"wait": wait, **params}}
            return pool.submit(node.client.post, "/api/tasks", json=body, timeout=wait + 30)

        yield asked


@contextlib.contextmanager
def fleet_of(folder: Path, workers: tuple[str, ...], **settings: str) -> Iterator[AggregatedFleet]:
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(
            AggregatedFleet(
                folder / "fleet",
                server,
                {**STILL, "EVERMIRROR_FLEET__MIN_WORKERS": str(max(1, len(workers))), **settings},
            )
        ) as fleet,
    ):
        fleet.write_catalog()
        fleet.prepare()
        fleet.lead()
        for name in workers:
            fleet.join(name)
        yield fleet


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AggregatedFleet]:
    """Two workers that hold everything both, and an aggregator."""
    folder = tmp_path_factory.mktemp("pair")
    # Who lost the coordinator dials it again soon where the grace is short.
    settings = {"EVERMIRROR_FLEET__REPLICAS": "2", "EVERMIRROR_FLEET__GRACE": "6s"}
    with fleet_of(folder, ("ann", "bob"), **settings) as fleet:
        fleet.aggregate()
        fleet.agg.client.headers.update(fleet.coordinator.client.headers)
        yield fleet


def new_repo(fleet: AggregatedFleet, name: str, holders: int) -> str:
    """The key of one that so many workers hold, and the aggregator, where there is one."""
    fleet.until(lambda: all_there(fleet))
    (key,) = fleet.create([name])
    fleet.until(lambda: len(held_by(fleet, key)) == holders)
    if fleet.agg.running:
        fleet.until(lambda: fleet.served(key) == fleet.repos[key].tip())
    return key


def all_there(fleet: FleetProcesses) -> bool:
    workers = fleet.get("/api/fleet")["workers"]
    return len(workers) == len(fleet.workers) and all(
        w["connected"] and w["liveness"] == "alive" for w in workers
    )


def held_by(fleet: FleetProcesses, key: str) -> dict[str, bool]:
    """Who has it, and whether it polls."""
    answer = fleet.coordinator.client.get(f"/api/repos/{key}/-/holders")
    holders = answer.json()["holders"] if answer.status_code == 200 else []
    return {h["worker"]: h["primary"] for h in holders if h["state"] == "held"}


def primary(fleet: FleetProcesses, key: str) -> str:
    return next(name for name, polls in held_by(fleet, key).items() if polls)


def newest(fleet: FleetProcesses, key: str) -> dict[str, Any]:
    """The repo's newest task."""
    found: dict[str, Any] = fleet.get(f"/api/repos/{key}/-/tasks")["items"][0]
    return found


def until_running(fleet: FleetProcesses, key: str) -> str:
    """Its newest task is with a worker, which waits for upstream; returns its id."""
    fleet.until(lambda: newest(fleet, key)["status"] == "running")
    return str(newest(fleet, key)["task_id"])


def until_asked_twice(fleet: FleetProcesses, key: str) -> None:
    """While a task runs, another one came to the coordinator: it cannot join the first."""

    def waiting() -> int:
        items = fleet.get(f"/api/repos/{key}/-/tasks")["items"]
        return sum(item["status"] in ("pending", "running") for item in items)

    fleet.until(lambda: waiting() >= 2)


@contextlib.contextmanager
def holding_its_breath(upstream: UpstreamServer) -> Iterator[None]:
    """Upstream takes requests, and says nothing until this is over."""
    upstream.stall_after_bytes = 0
    try:
        yield
    finally:
        upstream.stall_after_bytes = None


# Through an aggregator


def test_what_was_synced_through_an_aggregator_can_be_cloned_from_it(pair, ask):
    key = new_repo(pair, "team/front", 2)
    repo = pair.repos[key]
    for _ in range(3):
        old, tip = repo.tip(), repo.commit()
        answer = ask(pair.agg, repo.url, wait=30, min_commit=tip).result()
        assert answer.status_code == 200, answer.text
        task = answer.json()
        assert (task["status"], task["served"]) == ("success", True), task
        assert task["result"]["changes"] == [{"ref": "refs/heads/main", "old": old, "new": tip}]
        assert task["result"]["worker"] in ("ann", "bob")
        assert pair.served(key) == tip, "a clone has what the task brought"
    shown = pair.agg.client.get(f"/api/tasks/{task['task_id']}").json()
    assert shown == task
    at_home = pair.coordinator.client.get(f"/api/tasks/{task['task_id']}").json()
    assert at_home == {**task, "served": None}


def test_a_commit_that_comes_later_is_found_through_the_whole_fleet(pair, ask):
    key = new_repo(pair, "team/later", 2)
    repo = pair.repos[key]
    repo.branch("later")
    coming = repo.commit(branch="later")
    repo.delete_branch("later")
    waiting = ask(pair.agg, repo.url, wait=30, min_commit=coming)
    time.sleep(3.0)
    assert not waiting.done()
    repo.git("branch", "later", coming)
    task = waiting.result().json()
    assert (task["status"], task["served"]) == ("success", True), task
    never = ask(pair.agg, repo.url, wait=30, within=6, min_commit=NEVER).result().json()
    assert (never["status"], never["result"]["error_type"]) == ("failure", "NOT_FOUND")
    assert "looks in" in never["result"]["error_message"]


# The coordinator goes


def test_a_coordinator_that_stops_answers_who_waits_and_the_task_ends_after_its_start(pair, ask):
    key = new_repo(pair, "team/stop", 2)
    repo, upstream = pair.repos[key], pair.upstream
    tip = repo.commit()
    with holding_its_breath(upstream):
        waiting = [ask(pair.coordinator, repo.url)]
        task_id = until_running(pair, key)
        waiting.append(ask(pair.agg, repo.url))
        until_asked_twice(pair, key)
        began = time.monotonic()
        assert pair.coordinator.stop() == 0
        told = [w.result() for w in waiting]
        assert time.monotonic() - began < 25  # they would wait for a minute
    for answer in told:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), answer.text
        assert re.search(r"task \d+ goes on when it is back", answer.json()["detail"])
    pair.until(lambda: tip in {pair.tip_at(n, key) for n in ("ann", "bob")})  # done, and nobody to tell it to
    pair.lead()
    pair.until(lambda: pair.get(f"/api/tasks/{task_id}")["status"] in ("success", "skipped"))
    assert pair.get(f"/api/tasks/{task_id}")["result"]["worker"] in ("ann", "bob")
    pair.until(lambda: pair.served(key) == tip)


def test_a_coordinator_that_is_killed_leaves_nobody_waiting_and_no_task_behind(pair, ask):
    key = new_repo(pair, "team/kill", 2)
    repo = pair.repos[key]
    tip = repo.commit()
    with holding_its_breath(pair.upstream):
        direct = ask(pair.coordinator, repo.url)
        task_id = until_running(pair, key)
        through = ask(pair.agg, repo.url)
        until_asked_twice(pair, key)
        pair.coordinator.kill()
        with pytest.raises(httpx2.TransportError):
            direct.result()
        answer = through.result()
        assert answer.status_code == 502, answer.text
        assert answer.json()["type"] == "/problems/uncertain"
    pair.lead()
    pair.until(lambda: pair.get(f"/api/tasks/{task_id}")["status"] in ("success", "skipped"))
    pair.until(lambda: pair.served(key) == tip)


# A worker goes


def test_what_a_worker_did_when_it_died_is_done_by_the_other_holder(pair, ask):
    key = new_repo(pair, "team/lost", 2)
    repo = pair.repos[key]
    dead = primary(pair, key)
    other = "bob" if dead == "ann" else "ann"
    old, tip = repo.tip(), repo.commit()
    with holding_its_breath(pair.upstream):
        waiting = ask(pair.coordinator, repo.url)
        task_id = until_running(pair, key)
        pair.workers[dead].kill()
    began = time.monotonic()
    task = waiting.result().json()
    assert time.monotonic() - began < 45  # it would be answered after a minute, done or not
    assert (task["task_id"], task["status"], task["result"]["worker"]) == (task_id, "success", other), task
    assert task["result"]["changes"] == [{"ref": "refs/heads/main", "old": old, "new": tip}]
    assert pair.tip_at(other, key) == tip
    pair.workers[dead].start("worker")
    pair.until(lambda: len(held_by(pair, key)) == 2)
    assert pair.get(f"/api/tasks/{task_id}")["result"]["worker"] == other, "it ended once"


def test_the_only_holder_dies_and_the_task_is_done_where_its_repo_goes(tmp_path, ask):
    with fleet_of(tmp_path, ("ann", "bob"), EVERMIRROR_FLEET__GRACE="2s") as fleet:
        key = new_repo(fleet, "team/one", 1)
        repo = fleet.repos[key]
        dead = primary(fleet, key)
        tip = repo.commit()
        with holding_its_breath(fleet.upstream):
            waiting = ask(fleet.coordinator, repo.url)
            task_id = until_running(fleet, key)
            fleet.workers[dead].kill()
        task = waiting.result().json()
        other = "bob" if dead == "ann" else "ann"
        assert (task["task_id"], task["result"]["worker"]) == (task_id, other), task
        assert (task["status"], task["result"]["first"]) == ("success", True)
        assert fleet.tip_at(other, key) == tip


# Nobody is there


def test_what_nobody_can_take_fails_with_a_reason_also_across_a_restart(tmp_path, ask):
    with fleet_of(tmp_path, (), EVERMIRROR_FLEET__TASK_PATIENCE="3s") as fleet:
        repo = fleet.upstream.create("team/none")
        began = time.monotonic()
        task = ask(fleet.coordinator, repo.url, wait=60).result().json()
        assert 2.5 < time.monotonic() - began < 40  # it would be answered after a minute, done or not
        assert (task["status"], task["result"]["worker"]) == ("failure", None)
        assert "no worker took this within 3s: no worker has joined" in task["result"]["error_message"]
        assert task["result"]["hint"]
        later = fleet.coordinator.client.post("/api/tasks", json={"git_url": repo.url}).json()
        fleet.coordinator.kill()
        fleet.lead()
        fleet.until(lambda: fleet.get(f"/api/tasks/{later['task_id']}")["status"] == "failure")


def test_a_crowd_is_answered_alike_by_one_fetch(pair):
    key = new_repo(pair, "team/crowd", 2)
    repo = pair.repos[key]
    repo.commit()
    before = pair.packs_of_upstream()
    body = {"git_url": repo.url, "additional_params": {"wait": 60, "priority": "critical"}}
    answers: list[str] = []
    asked = threading.Semaphore(0)

    def wait() -> None:
        request = pair.coordinator.client.build_request("POST", "/api/tasks", json=body, timeout=90)
        asked.release()
        answers.append(pair.coordinator.client.send(request).text)

    crowd = [threading.Thread(target=wait) for _ in range(50)]
    pair.upstream.delay_s = 0.5  # the look under way takes two of these when upstream speaks again
    with holding_its_breath(pair.upstream):
        first = pair.coordinator.client.post("/api/tasks", json={"git_url": repo.url}).json()
        until_running(pair, key)
        for one in crowd:
            one.start()
        for _ in crowd:
            asked.acquire()
        until_asked_twice(pair, key)
        time.sleep(1.0)  # what they sent is read by the coordinator
    for one in crowd:
        one.join()
    pair.upstream.delay_s = 0.0
    assert len(answers) == 50
    assert len(set(answers)) <= 2, "all came before its look began, or a few just after"
    pair.until(lambda: pair.get(f"/api/tasks/{first['task_id']}")["status"] == "success")
    assert 1 <= pair.packs_of_upstream() - before <= 2, "one by the primary, one by who follows it"
