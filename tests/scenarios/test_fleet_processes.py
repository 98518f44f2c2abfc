"""A fleet of real processes: workers join, die and come back, so does the coordinator, and a disk fills.

Two fleets are shared by the tests of this file. Each test begins with a fleet that is settled and leaves it
so; what was cloned is counted from the requests that came to the upstream.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.fleet_processes import FleetProcesses
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

GRACE_S = 3.0
NAMES = ("ann", "bob", "cid")
REPOS = [f"team/r{n}" for n in range(12)]  # with a load bound of 1.1 each of three workers has two at least

# A grace that nobody uses up: whoever is away here comes back in time, on a slow machine too.
PATIENT = {
    "EVERMIRROR_FLEET__GRACE": "10m",
    "EVERMIRROR_FLEET__HEARTBEAT": "1s",
    "EVERMIRROR_FLEET__MAX_MISSED": "1",
}
STRICT = {
    "EVERMIRROR_FLEET__GRACE": f"{GRACE_S:g}s",
    "EVERMIRROR_FLEET__HEARTBEAT": "300ms",
    "EVERMIRROR_FLEET__MAX_MISSED": "3",
}


@contextlib.contextmanager
def fleet_of(folder: Path, settings: dict[str, str], names=NAMES, repos=REPOS) -> Iterator[FleetProcesses]:
    """All workers are waited for, then each repo is placed once."""
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(
            FleetProcesses(
                folder / "fleet", server, {**settings, "EVERMIRROR_FLEET__MIN_WORKERS": str(len(names))}
            )
        ) as fleet,
    ):
        fleet.create(repos)
        fleet.prepare()
        fleet.lead()
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(fleet.join, names):
                continue
        fleet.settle()
        fleet.cloned_at_first = fleet.clones()
        yield fleet


@pytest.fixture(scope="module")
def patient_fleet(tmp_path_factory) -> Iterator[FleetProcesses]:
    with fleet_of(tmp_path_factory.mktemp("patient"), PATIENT) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def strict_fleet(tmp_path_factory) -> Iterator[FleetProcesses]:
    with fleet_of(tmp_path_factory.mktemp("strict"), STRICT) as fleet:
        yield fleet


@pytest.fixture
def patient(patient_fleet) -> FleetProcesses:
    patient_fleet.settle()
    return patient_fleet


@pytest.fixture
def strict(strict_fleet) -> FleetProcesses:
    strict_fleet.settle()
    return strict_fleet


# Joining


def test_workers_join_with_one_line_and_every_repo_is_cloned_once(patient):
    assert patient.cloned_at_first == dict.fromkeys((f"{patient.upstream.host}/{n}" for n in REPOS), 1)
    assert {name for names in patient.seats().values() for name in names} == set(NAMES)
    patient.assert_sound()


def test_a_token_that_is_no_good_is_told_and_ends_the_join(patient):
    fleet = patient
    good, reader = fleet.token("revoked"), fleet.token("reader", role="reader")
    secret, _, fingerprint = good.partition(".")
    done = fleet.run("token", "revoke", "revoked", "--data", str(fleet.coordinator.data))
    assert done.returncode == 0, done.stderr
    cases = {
        "cut off": (good[:6], 2, "this is no token for joining"),
        "wrong": (f"{'x' * len(secret)}.{fingerprint}", 1, "the token is unknown or revoked"),
        "revoked": (good, 1, "the token is unknown or revoked"),
        "other role": (f"{reader}.{fingerprint}", 1, "role is reader; a worker's is needed"),
        "foreign CA": (f"{secret}.{'a' * len(fingerprint)}", 1, "does not show the CA that the token names"),
    }
    folders = {case: fleet.folder / f"refused {case}" for case in cases}
    with ThreadPoolExecutor(2) as pool:
        joins = {
            case: pool.submit(fleet.run, "worker", "join", fleet.address, token, "--data", str(folders[case]))
            for case, (token, _, _) in cases.items()
        }
    for case, (_, code, words) in cases.items():
        done = joins[case].result()
        assert (done.returncode, words in done.stderr) == (code, True), (case, done)
        assert "Traceback" not in done.stderr
        assert secret not in done.stdout + done.stderr
        assert not (folders[case] / "joined.json").exists(), "a refused token is not kept"
    assert {w["name"] for w in fleet.get("/api/fleet")["workers"]} == set(NAMES)


def test_a_second_process_with_the_same_token_is_refused_and_the_first_goes_on(patient):
    fleet = patient
    before, cloned = fleet.seats(), fleet.clones()
    done = fleet.run(
        "worker", "join", fleet.address, fleet.tokens["bob"], "--data", str(fleet.folder / "2nd")
    )
    assert (done.returncode, "joined" in done.stdout) == (1, False)
    assert "every worker needs a token of its own" in done.stderr
    said = {"EVERMIRROR_WORKER__COORDINATOR": fleet.address, "EVERMIRROR_WORKER__TOKEN": fleet.tokens["bob"]}
    with contextlib.closing(fleet.node("double", **said)) as double:
        double.start("worker")
        fleet.until(lambda: "the coordinator refuses this worker" in double.log())
        assert "another process with this token is connected" in double.log()
        fleet.until(lambda: double.client.get("/readyz").status_code == 503)  # once it listens
        answer = double.client.get("/readyz")
        assert answer.status_code == 503
        assert "every worker needs a token of its own" in answer.json()["reason"]
        key = min(fleet.held_by("bob"))
        tip = fleet.repos[key].commit()
        fleet.until(lambda: fleet.get(f"/api/repos/{key}")["head_commit"] == tip)
        assert fleet.tip_at("bob", key) == tip
        assert double.mirrors() == set()
        assert double.stop() == 0
        assert "Traceback" not in double.log()
    fleet.settle()  # one late heartbeat makes a worker suspect for a moment
    assert fleet.seats() == before
    assert fleet.clones() == cloned


# Orders


def drain(fleet: FleetProcesses, name: str) -> None:
    assert fleet.coordinator.client.post(f"/api/fleet/workers/{name}/drain").status_code == 200

    def emptied() -> bool:
        seats = fleet.seats(first=name)
        assert set(seats) == set(fleet.repos), "a repo was nowhere for a moment"
        return not fleet.held_by(name) and fleet.worker(name)["held"] == 0

    fleet.until(emptied)


def test_a_drained_worker_is_emptied_without_a_gap_and_works_again_when_resumed(patient):
    fleet = patient
    leaving, cloned = fleet.held_by("cid"), fleet.clones()
    drain(fleet, "cid")
    fleet.settle()
    fleet.until(lambda: fleet.worker("cid")["status"] == "draining")  # or suspect: a heartbeat is late
    assert fleet.clones() - cloned == Counter(leaving)
    fleet.assert_sound()
    cloned = fleet.clones()
    assert fleet.coordinator.client.post("/api/fleet/workers/cid/resume").status_code == 200
    fleet.until(lambda: fleet.held_by("cid") and fleet.is_settled())
    assert fleet.clones() - cloned <= Counter(fleet.held_by("cid")), "only what came back was cloned, once"


def test_the_catalog_is_followed_while_the_fleet_works(patient):
    fleet = patient
    before = fleet.seats()
    (new,) = fleet.create(["team/new"])
    fleet.settle()
    assert fleet.clones()[new] == 1
    repo = fleet.repos.pop(new)
    fleet.write_catalog()
    fleet.settle()
    assert fleet.coordinator.client.get(f"/api/repos/{new}").status_code == 404
    assert repo.refs(), "only the mirror goes"
    assert fleet.seats() == before


# Loss and return


def test_a_worker_killed_and_back_within_grace_costs_nothing(patient):
    fleet = patient
    before, cloned = fleet.seats(), fleet.clones()
    bob = fleet.workers["bob"]
    bob.kill()
    fleet.until(lambda: fleet.worker("bob")["liveness"] == "suspect")
    bob.start("worker")
    fleet.settle()
    assert fleet.seats() == before
    assert fleet.clones() == cloned
    assert fleet.down() == []


def test_a_killed_coordinator_is_not_missed_and_what_it_missed_is_told_once(patient):
    fleet = patient
    before, cloned = fleet.seats(), fleet.clones()
    keys = [min(fleet.held_by(name)) for name in NAMES]
    tasks = {key: moving_tasks(fleet, key) for key in keys}
    fleet.coordinator.kill()
    tips = {key: fleet.repos[key].commit() for key in keys}
    for key, name in zip(keys, NAMES, strict=True):
        fleet.until(lambda n=name, k=key: fleet.tip_at(n, k) == tips[k])
    fleet.lead()
    fleet.settle()
    for key in keys:
        fleet.until(lambda k=key: fleet.get(f"/api/repos/{k}")["head_commit"] == tips[k])
        assert len(moving_tasks(fleet, key)) == len(tasks[key]) + 1
    assert fleet.seats() == before
    assert fleet.clones() == cloned
    assert fleet.down() == []


def moving_tasks(fleet: FleetProcesses, key: str) -> list[str]:
    items = fleet.get(f"/api/repos/{key}/-/tasks")["items"]
    return [item["task_id"] for item in items if item["has_changes"]]


def test_a_coordinator_paused_for_longer_than_grace_declares_nobody_down(strict):
    fleet = strict
    before, cloned, fallen = fleet.seats(), fleet.clones(), fleet.down()
    fleet.coordinator.signal(signal.SIGSTOP)
    try:
        time.sleep(2 * GRACE_S)
    finally:
        fleet.coordinator.signal(signal.SIGCONT)
    woken = time.monotonic()
    # Had anybody been suspected on waking, its grace would be over before this ends.
    while time.monotonic() < woken + GRACE_S + 1:
        assert fleet.down() == fallen
        time.sleep(0.2)
    fleet.settle()
    assert fleet.seats() == before
    assert fleet.clones() == cloned


def test_what_a_lost_worker_held_is_cloned_after_grace_and_it_keeps_what_it_can(strict):
    fleet = strict
    cloned, lost = fleet.clones(), fleet.held_by("ann")
    ann = fleet.workers.pop("ann")
    others = set().union(*(node.mirrors() for node in fleet.workers.values()))
    killed_at = time.monotonic()
    ann.kill()
    fleet.until(lambda: fleet.clones() != cloned)
    assert time.monotonic() - killed_at >= GRACE_S
    fleet.until(lambda: set(fleet.seats()) == others | lost)
    fleet.until(lambda: fleet.get("/api/fleet")["totals"]["held"] == len(fleet.repos))
    assert fleet.clones() - cloned == Counter(lost)
    assert [name for name, _ in fleet.down()] == ["ann"]

    fleet.workers["ann"] = ann
    ann.start("worker")
    fleet.settle()
    kept = fleet.held_by("ann")
    assert kept, "it has room for some of what it held"
    assert kept <= lost
    assert fleet.clones() - cloned == Counter(lost), "nothing was cloned a third time"
    fleet.assert_sound()


# A full disk


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounts a small disk, which takes root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_what_finds_no_room_on_a_full_disk_is_handed_back_and_placed_elsewhere(
    small_disk, tmp_path, upstream
):
    settings = {**PATIENT, "EVERMIRROR_FLEET__MIN_WORKERS": "2"}
    with contextlib.closing(FleetProcesses(tmp_path / "fleet", upstream, settings)) as fleet:
        first, *more = [f"team/big{n}" for n in range(6)]  # each worker is asked for two at least
        (key,) = fleet.create([first])
        fleet.repos[key].big_blob(8_000_000)
        fleet.repos |= {f"{upstream.host}/{n}": upstream.copy(fleet.repos[key], n) for n in more}
        fleet.write_catalog()
        fleet.prepare()
        fleet.lead()
        fleet.join("large")
        small = fleet.join("small", small_disk / "data")
        fleet.settle()
        assert "repos handed back" in small.log()
        assert fleet.held_by("large") == set(fleet.repos)
        handed = {k for k in fleet.repos if "handed back" in " ".join(why(fleet, k))}
        assert len(handed) >= 2
        tried_twice = {k: 2 if k in handed else 1 for k in fleet.repos}
        assert fleet.clones() == tried_twice, "once where there was no room, once where there was"
        fleet.until(lambda: fleet.worker("small")["accepting"] is False)  # its next heartbeats tell so
        (later,) = fleet.create(["team/later"])
        fleet.settle()
        assert fleet.clones()[later] == 1
        fleet.assert_sound()
        assert "Traceback" not in small.log()


def why(fleet: FleetProcesses, key: str) -> list[str]:
    return list(fleet.get(f"/api/repos/{key}/-/holders")["why"])
