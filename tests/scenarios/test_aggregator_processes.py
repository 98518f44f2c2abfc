"""A fleet of real processes with an aggregator: joined with one line, killed, away, and back.

One fleet is shared by most tests of this file. Tasks make its workers look, as a push's sender does.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.aggregator_processes import AggregatedFleet, Reader
from tests.support.fleet_processes import FleetProcesses, Node
from tests.support.gitrepo import run_git
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

NAMES = ("ann", "bob")
SMALL = [f"team/r{n}" for n in range(8)]
CALM = {
    "EVERMIRROR_SCHEDULE__MIN_GAP": "1h",  # only who is told to look looks
    "EVERMIRROR_SCHEDULE__MAX_GAP": "2h",
    "EVERMIRROR_FLEET__GRACE": "10m",
    "EVERMIRROR_FLEET__HEARTBEAT": "500ms",
    "EVERMIRROR_FLEET__MIN_WORKERS": str(len(NAMES)),
    "EVERMIRROR_SERVE__QUEUE_WAIT": "60s",  # many clone at once, of one address, and the machine may be busy
}
BIG_BYTES = 60_000_000  # its way through relay and index-pack takes seconds
CLIENTS = 20
CLONES_EACH = 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[AggregatedFleet]:
    folder = tmp_path_factory.mktemp("aggregated")
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(AggregatedFleet(folder / "fleet", server, CALM)) as fleet,
    ):
        fleet.create(SMALL)
        fleet.prepare()
        fleet.lead()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(fleet.join, NAMES))
        fleet.aggregate()
        fleet.settle()
        yield fleet


@pytest.fixture
def fleet(shared) -> AggregatedFleet:
    shared.until(shared.serves_all)
    return shared


# Following


def test_joined_with_one_line_it_serves_what_is_pushed_and_upstream_gives_it_once(fleet, tmp_path):
    assert fleet.agg_token not in Path(f"/proc/{fleet.agg.pid}/cmdline").read_text()
    assert fleet.clones() == dict.fromkeys(fleet.repos, 1), (
        "upstream gave the whole of each once, to a worker"
    )
    key = min(fleet.repos)
    run_git(tmp_path, "clone", "--quiet", fleet.url(key), "clone")
    for _ in range(3):
        tip = fleet.repos[key].commit()
        fleet.sync(key)
        fleet.until(lambda tip=tip: fleet.served(key) == tip)
    run_git(tmp_path / "clone", "pull", "--quiet", "--ff-only")
    assert run_git(tmp_path / "clone", "rev-parse", "HEAD") == tip
    assert fleet.clones()[key] == 1
    fleet.assert_whole()
    assert fleet.agg_token not in fleet.agg.log()
    (shown,) = fleet.get("/api/fleet")["aggregators"]
    assert (shown["name"], shown["connected"], shown["serves"]) == ("agg", True, len(fleet.repos))


def test_nobody_who_clones_sees_a_repo_break_while_it_is_updated(fleet, tmp_path):
    keys = sorted(fleet.repos)[:4]
    over = threading.Event()

    def push() -> int:
        for count, key in enumerate(itertools.cycle(keys)):
            if over.is_set():
                return count
            repo = fleet.repos[key]
            match count % 4:
                case 1:
                    repo.force_push()
                case 2:
                    repo.branch(f"b/{count}")
                case _:
                    repo.bulk_commits(5)
            fleet.ask_sync(key)
        raise AssertionError

    def clone(number: int) -> list[str]:
        wrong = []
        for again in range(CLONES_EACH):
            to = tmp_path / f"{number}-{again}"
            done = fleet.git("clone", "--quiet", "--bare", fleet.url(keys[number % len(keys)]), str(to))
            if done.returncode == 0:
                done = fleet.git("-C", str(to), "fsck", "--strict")
            if done.returncode:
                wrong.append(done.stderr)
            shutil.rmtree(to, ignore_errors=True)
        return wrong

    before = fleet.attempts()["done"]
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        pushes = pool.submit(push)
        try:
            wrong = [text for texts in pool.map(clone, range(CLIENTS)) for text in texts]
        finally:
            over.set()
        assert pushes.result() >= 3
    assert wrong == []
    for key in keys:
        fleet.sync(key)
    fleet.until(fleet.serves_all)
    assert fleet.attempts()["done"] > before, "it was updated meanwhile"
    fleet.assert_whole(*keys)


# Away, and back


def test_what_changed_while_it_was_away_is_fetched_and_nothing_else(fleet):
    assert fleet.agg.stop() == 0
    changed = sorted(fleet.repos)[:5]
    for key in changed:
        for _ in range(2):  # the last one counts
            fleet.repos[key].commit()
            fleet.sync(key)
    fleet.agg.start("aggregator")
    fleet.until(fleet.serves_all)
    fleet.until(lambda: sum(fleet.attempts().values()) >= len(changed))  # an attempt ends after it is served
    assert fleet.attempts() == {"done": len(changed)}
    assert fleet.state()["changes_taken"] == len(changed)
    assert fleet.state()["repos"]["here"] == len(fleet.repos)


def test_git_is_served_while_the_coordinator_is_away_and_it_says_so(fleet):
    key, tip = min(fleet.repos), fleet.repos[min(fleet.repos)].tip()
    fleet.coordinator.kill()
    fleet.until(lambda: "away" in fleet.readiness())
    assert fleet.served(key) == tip
    state = fleet.state()["coordinator"]
    assert state["connected"] is False
    answer = fleet.agg.client.get("/api/repos")
    assert answer.status_code == 503 or "X-Evermirror-Stale" in answer.headers, answer.text
    new = fleet.repos[key].commit()
    fleet.lead()
    fleet.settle()
    fleet.sync(key)
    fleet.until(lambda: fleet.served(key) == new)
    assert fleet.state()["coordinator"]["connected"] is True
    assert fleet.clones()[key] == 1


@pytest.fixture(scope="module")
def big(shared) -> str:
    """A repo of which a pull takes a while."""
    (key,) = shared.create(["team/big"])
    shared.settle()
    shared.until(lambda: shared.served(key) == shared.repos[key].tip())
    return key


@pytest.mark.parametrize("victim", ["worker", "aggregator", "coordinator"])
def test_whoever_is_killed_in_the_middle_of_a_transfer_it_goes_on_and_is_whole(fleet, big, victim):
    repo, old = fleet.repos[big], fleet.served(big)
    new = repo.big_blob(BIG_BYTES)
    holder = fleet.workers[fleet.holder(big)]  # nothing but the kill comes after it is seen to pass
    before = fleet.passed_bytes()
    fleet.sync(big)
    fleet.until_passing(before)
    node: Node = {"worker": holder, "aggregator": fleet.agg, "coordinator": fleet.coordinator}[victim]
    node.kill()
    assert tip_on_disk(fleet, big) == old, "too late: it was through"
    if victim == "coordinator":
        fleet.until(lambda: fleet.served(big) == new)  # without it
        fleet.lead()
    else:
        node.start(victim)
    fleet.settle()
    fleet.until(lambda: fleet.served(big) == new)
    fleet.assert_whole(big)
    assert fleet.clones()[big] == 1
    assert fleet.down() == []
    assert "Traceback" not in fleet.agg.log() + fleet.coordinator.log() + holder.log()


def tip_on_disk(fleet: AggregatedFleet, key: str) -> str:
    return run_git(fleet.collected(key), "rev-parse", "refs/heads/main")


def test_what_a_drained_worker_held_is_copied_through_the_relay_and_served_all_the_time(fleet):
    leaving = sorted(fleet.held_by("bob"))
    assert leaving
    fleet.until(fleet.is_relayed)
    packs, cloned = fleet.packs_of_upstream(), fleet.clones()
    with Reader.of(fleet) as reader:
        assert fleet.coordinator.client.post("/api/fleet/workers/bob/drain").status_code == 200
        fleet.until(lambda: not fleet.held_by("bob") and fleet.is_settled())
    assert (reader.missed, reader.false) == ([], [])
    assert fleet.packs_of_upstream() == packs, f"upstream was looked at, and gave nothing\n{fleet.told()}"
    assert fleet.held_by("ann") == set(fleet.repos)
    fleet.assert_sound()
    key = leaving[0]
    tip = fleet.repos[key].commit()
    fleet.sync(key)
    fleet.until(lambda: fleet.served(key) == tip)
    assert fleet.coordinator.client.post("/api/fleet/workers/bob/resume").status_code == 200
    fleet.until(lambda: fleet.held_by("bob") and fleet.is_settled())
    # The push, to who held it then; and once more as the difference, to who comes back with its old mirror
    # where the aggregator's copy let the other one go first.
    assert fleet.packs_of_upstream() - packs in (1, 2)
    assert fleet.clones() == cloned, "nothing was given whole again"


# Refused


def test_a_worker_with_its_token_is_refused_in_words_and_so_is_the_reverse(fleet):
    fleet.until(fleet.is_relayed)
    tokens = {"worker": fleet.token("a", role="aggregator"), "aggregator": fleet.token("w")}
    for role, token in tokens.items():
        data = fleet.folder / f"odd {role}"
        done = fleet.run(role, "join", fleet.address, token, "--data", str(data))
        assert done.returncode == 1
        assert "joined" not in done.stdout
        assert f"the coordinator refuses this {role}: this token is for" in done.stderr
        assert f"evermirror token create --role {role}" in done.stderr
        assert not (data / "joined.json").exists()
    fleet.settle()  # a heartbeat may be late: then somebody is suspect for a moment
    assert [a["name"] for a in fleet.get("/api/fleet")["aggregators"]] == ["agg"]


def test_without_having_joined_it_says_what_to_do(tmp_path, upstream):
    fleet = FleetProcesses(tmp_path / "fleet", upstream, {})
    done = fleet.run("aggregator", "--data", str(tmp_path / "nobody"))
    assert done.returncode == 2
    assert "has not joined a coordinator yet" in done.stderr
    assert "evermirror aggregator join HOST:PORT TOKEN" in done.stderr
