"""Hooks to real processes: what was taken is looked at, whoever is killed; also through an aggregator."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evermirror.config.settings import DATABASE_FILE
from evermirror.core.hooks.spacing import GAP_S
from tests.support.aggregator_processes import AggregatedFleet
from tests.support.fleet_processes import Node
from tests.support.sent_hooks import HOOKS_PATH, push_of
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

SECRET = "the forge and we know this"
SETTINGS = {
    "EVERMIRROR_FLEET__HEARTBEAT": "500ms",
    "EVERMIRROR_FLEET__MIN_WORKERS": "1",
    "EVERMIRROR_SCHEDULE__MIN_GAP": "1h",  # only hooks have anybody look
    "EVERMIRROR_SCHEDULE__MAX_GAP": "2h",
    "EVERMIRROR_WEBHOOKS__GITHUB_SECRET": SECRET,
}


@pytest.fixture
def fleet(tmp_path: Path, upstream: UpstreamServer) -> Iterator[AggregatedFleet]:
    processes = AggregatedFleet(tmp_path / "fleet", upstream, SETTINGS)
    processes.prepare()
    yield processes
    processes.close()


@pytest.fixture
def key(fleet: AggregatedFleet) -> str:
    """Of a repo that is mirrored, and that nobody will poll for an hour: the worker tells of its mirror after
    it noted that it looked. One that is killed before looks by itself when it is back."""
    (key,) = fleet.create(["team/one"])
    fleet.lead()
    fleet.join("w1")
    fleet.until(lambda: fleet.holds("w1", key))
    assert is_here(fleet, key)
    return key


def is_here(fleet: AggregatedFleet, key: str) -> bool:
    there = key in fleet.workers["w1"].mirrors()
    return there and fleet.tip_at("w1", key) == fleet.repos[key].tip()


def hooked(fleet: AggregatedFleet, key: str, node: Node | None = None) -> str:
    """A forge tells of a push; what it is answered. It has no token."""
    hook = push_of(fleet.repos[key].url, SECRET)
    client = (node or fleet.coordinator).client
    headers = {**hook.headers, "Authorization": ""}
    answer = client.post(HOOKS_PATH, content=hook.body, headers=headers)
    assert answer.status_code == 202, f"{answer.text}\n{fleet.coordinator.log()[-3000:]}"
    return str(answer.json()["status"])


def hook_tasks(fleet: AggregatedFleet) -> list[str]:
    """Their states, from the disk: the coordinator may be dead."""
    database = fleet.coordinator.data / DATABASE_FILE
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as c:
        found = c.execute("SELECT status FROM tasks WHERE \"trigger\" = 'webhook' ORDER BY id").fetchall()
    return [status for (status,) in found]


def test_a_hook_to_the_coordinator_has_the_worker_look_at_once(fleet: AggregatedFleet, key: str) -> None:
    fleet.repos[key].commit()
    assert hooked(fleet, key) == "accepted"
    fleet.until(lambda: is_here(fleet, key))


def test_a_hook_to_the_aggregator_is_passed_on_and_collected(fleet: AggregatedFleet, key: str) -> None:
    fleet.aggregate()
    fleet.until(lambda: fleet.served(key))
    fleet.until(lambda: fleet.agg.client.get("/api/overview").status_code == 200)
    fleet.repos[key].commit()
    assert hooked(fleet, key, fleet.agg) == "accepted"
    fleet.until(lambda: is_here(fleet, key))
    fleet.until(lambda: fleet.public(key) == fleet.repos[key].public_refs())


def held(fleet: AggregatedFleet, key: str) -> bool:
    """A hook comes within the gap after a look that found nothing: its own look has to wait. False: this
    machine was too slow for that."""
    began = time.monotonic()
    before = len(hook_tasks(fleet))
    assert hooked(fleet, key) == "accepted"
    fleet.until(lambda: "skipped" in hook_tasks(fleet)[before:])
    fleet.repos[key].commit()
    assert hooked(fleet, key) == "accepted"
    return time.monotonic() - began < 2 * GAP_S[0] - 0.5  # there is time to kill it


def test_a_coordinator_killed_while_a_look_waits_for_the_gaps_end_has_it_made_after_its_start(
    fleet: AggregatedFleet, key: str
) -> None:
    for _ in range(5):
        if held(fleet, key):
            break
        fleet.until(lambda: is_here(fleet, key))
        time.sleep(2 * GAP_S[0])
    else:
        pytest.fail("no hook came within the gap")
    fleet.coordinator.kill()
    assert hook_tasks(fleet)[-1] == "pending"
    assert not is_here(fleet, key)
    fleet.lead()
    fleet.until(lambda: is_here(fleet, key))  # its worker dials again after a pause that has grown
    fleet.until(lambda: set(hook_tasks(fleet)) == {"success", "skipped"})


def test_a_coordinator_killed_right_after_its_answer_has_the_look_made_after_its_start(
    fleet: AggregatedFleet, key: str
) -> None:
    fleet.repos[key].commit()
    fleet.workers["w1"].kill()  # so that the look cannot have been made
    assert hooked(fleet, key) == "accepted"
    fleet.coordinator.kill()
    assert hook_tasks(fleet) == ["pending"]
    fleet.lead()
    fleet.workers["w1"].start("worker")
    fleet.until(lambda: is_here(fleet, key))
    fleet.until(lambda: hook_tasks(fleet) == ["success"])


def test_hooks_for_a_worker_that_is_away_wait_for_it_as_one_task(fleet: AggregatedFleet, key: str) -> None:
    fleet.workers["w1"].kill()
    fleet.until(lambda: not fleet.worker("w1")["connected"])
    fleet.repos[key].commit()
    ends = []
    for _ in range(30):
        ends.append(hooked(fleet, key))
        time.sleep(0.1)
    assert set(ends) <= {"accepted", "merged"}
    assert len(hook_tasks(fleet)) <= 2
    fleet.workers["w1"].start("worker")
    fleet.until(lambda: is_here(fleet, key))
