"""Pull mirroring by real processes: one node with its targets, a fleet that loses members in the middle of
pushes, and a person at the command line.

The node and the fleet are shared by the tests of this file; each test has projects of its own, or leaves the
fleet as it found it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.fleet_processes import WITHIN_S
from tests.support.gitrepo import UpstreamRepo, read_refs
from tests.support.processes import children_of_me
from tests.support.pull_processes import Gate, PullFleet, PullNode, target_at
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

GRACE_S = 3.0
NAMES = ("ann", "bob")
REPOS = [f"team/r{n}" for n in range(4)]  # one of two workers has two at least
STRICT = {
    "EVERMIRROR_FLEET__GRACE": f"{GRACE_S:g}s",
    "EVERMIRROR_FLEET__HEARTBEAT": "300ms",
    "EVERMIRROR_FLEET__MAX_MISSED": "3",
    "EVERMIRROR_FLEET__MIN_WORKERS": str(len(NAMES)),
}
BIG = 3_000_000  # bytes of a pack
OUT_OF_CONTACT = "this worker has not heard its coordinator for too long"


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[tuple[UpstreamServer, UpstreamServer]]:
    """Where the sources are, and where the targets are."""
    folder = tmp_path_factory.mktemp("servers")
    with UpstreamServer(folder / "upstream") as upstream, UpstreamServer(folder / "forge") as forge:
        yield upstream, forge


@pytest.fixture(scope="module")
def up(tmp_path_factory, servers) -> Iterator[PullNode]:
    with contextlib.closing(PullNode(tmp_path_factory.mktemp("up") / "node", *servers)) as node:
        node.start()
        yield node


@pytest.fixture(scope="module")
def whole_fleet(tmp_path_factory, servers) -> Iterator[PullFleet]:
    with contextlib.closing(PullFleet(tmp_path_factory.mktemp("fleet"), *servers, STRICT)) as fleet:
        fleet.create(REPOS)
        fleet.prepare()
        fleet.lead()
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(fleet.join, NAMES):
                continue
        yield fleet


@pytest.fixture
def fleet(whole_fleet) -> PullFleet:
    whole_fleet.settle()
    whole_fleet.until(whole_fleet.is_idle)
    return whole_fleet


def assert_equal(source: UpstreamRepo, *targets: UpstreamRepo) -> None:
    """Branches and tags and nothing else, and every object of them."""
    for target in targets:
        assert target.refs() == source.public_refs()
        target.git("fsck", "--full", "--strict", "--connectivity-only")


def pushed_to(source: UpstreamRepo, target: UpstreamRepo) -> str:
    """Somebody else puts a commit of their own on the target's main."""
    return target.commit(message=f"not from {source.name}")


# One node


def test_two_targets_get_branches_and_tags_and_follow_and_get_nothing_that_is_hidden(up):
    source = up.upstream.create("one/all", commits=5)
    source.branch("dev")
    source.commit("feature/x")
    source.tag("v1")
    source.tag("v2", annotated=True)
    for hidden in ("refs/pull/1/head", "refs/merge-requests/7/head", "refs/keep-around/abc"):
        source.hidden_ref(hidden)
    one, two = target_at(up.forge, "one/all"), target_at(up.forge, "two/all")
    up.projects.created("one/all", source, one, two, priority="critical")
    assert_equal(source, one, two)

    thrown = source.tip()
    source.force_push()
    source.delete_branch("feature/x")
    source.tag("v3")
    done = up.projects.pull("one/all")
    assert (done["status"], done["error_type"]) == ("success", None)
    assert done["source_commit_sha"] == done["target_commit_sha"] == source.tip()
    assert_equal(source, one, two)
    mirror = read_refs(up.node.mirror(up.projects.get("one/all")["key"]))
    assert thrown in {oid for name, oid in mirror.items() if name.startswith("refs/evermirror/")}
    assert [up.projects.target("one/all", t)["commit"] for t in (one, two)] == [source.tip()] * 2


def test_what_has_not_changed_costs_the_source_one_request_and_nobody_a_git_process(up):
    source, target = up.upstream.create("one/still"), target_at(up.forge, "one/still")
    up.projects.created("one/still", source, target)
    assert any("push" in line for line in up.gits()), "they are counted"
    until_quiet(up)
    asked, reached, gits = len(up.upstream.requests), len(up.forge.requests), up.gits()
    for _ in range(3):
        assert up.projects.pull("one/still")["status"] == "skipped"
    assert (len(up.upstream.requests) - asked, len(up.forge.requests) - reached) == (3, 0)
    assert up.gits()[len(gits) :] == []


def until_quiet(up: PullNode) -> None:
    """Whatever follows a change, such as upkeep of the mirror, is over: no git runs, and none has begun for a
    while."""
    end = time.monotonic() + WITHIN_S
    seen, since = len(up.gits()), time.monotonic()
    while time.monotonic() < since + 1:
        time.sleep(0.1)
        if len(up.gits()) != seen or children_of_me(up.node.pid):
            seen, since = len(up.gits()), time.monotonic()
        assert since < end, up.gits()[-20:]


def test_targets_that_refuse_or_take_their_time_do_not_hold_up_the_others(up):
    source = up.upstream.create("one/many")
    good, slow, shut = (target_at(up.forge, f"{name}/many") for name in ("good", "slow", "shut"))
    shut.git("config", "http.receivepack", "false")
    with Gate(slow) as gate:
        up.projects.create("one/many", source, shut, slow, good)
        up.until(lambda: gate.arrived == 1 and good.refs() == source.public_refs())
        task_id = up.projects.get("one/many")["task_id"]
        assert up.projects.task(task_id)["status"] == "running", "one of three is still at it"
    done = up.projects.ended(task_id)
    assert_equal(source, good, slow)
    assert shut.refs() == {}
    assert (done["status"], done["error_type"]) == ("success", "PERMISSION_DENIED")
    assert up.projects.target("one/many", good)["last_error"] is None
    assert up.projects.target("one/many", shut)["paused"]
    assert up.projects.get("one/many")["consecutive_failures"] == 0

    source.commit()
    before = [r for r in up.forge.requests if "/shut/many" in r.path]
    assert up.projects.pull("one/many")["error_type"] is None, "who is paused is left alone"
    assert [r for r in up.forge.requests if "/shut/many" in r.path] == before
    assert_equal(source, good, slow)


def test_what_somebody_else_moved_at_a_target_stays_theirs_until_it_is_adopted(up):
    source = up.upstream.create("one/theirs")
    source.branch("dev")
    target = target_at(up.forge, "one/theirs")
    up.projects.created("one/theirs", source, target)
    theirs = pushed_to(source, target)
    source.commit()
    source.commit("dev")
    done = up.projects.pull("one/theirs")
    assert (done["status"], done["error_type"]) == ("failed", "CONFLICT")
    assert (target.tip(), target.tip("dev")) == (theirs, source.tip("dev"))
    assert up.projects.pull("one/theirs", force=True)["error_type"] == "CONFLICT", "also when forced"
    assert target.tip() == theirs
    config = up.projects.get("one/theirs")
    assert (config["enabled"], config["targets"][0]["paused"]) == (True, None)

    up.projects.adopt("one/theirs", target)
    up.until(lambda: target.refs() == source.public_refs())
    up.until(lambda: up.projects.get("one/theirs")["last_status"] == "success")
    theirs = pushed_to(source, target)  # that word held once
    source.commit()
    assert up.projects.pull("one/theirs")["error_type"] == "CONFLICT"
    assert target.tip() == theirs


def test_a_source_that_is_emptied_empties_no_target(up):
    source = up.upstream.create("one/emptied")
    source.branch("dev")
    source.tag("v1")
    one, two = target_at(up.forge, "one/emptied"), target_at(up.forge, "two/emptied")
    up.projects.created("one/emptied", source, one, two)
    had = source.public_refs()
    for ref in had:
        source.git("update-ref", "-d", ref)
    done = up.projects.pull("one/emptied")
    assert (done["status"], done["error_type"]) == ("failed", "CONFLICT")
    assert up.projects.pull("one/emptied", force=True)["error_type"] == "CONFLICT"
    assert one.refs() == two.refs() == had
    for ref, oid in had.items():
        source.git("update-ref", ref, oid)
    source.commit()
    assert up.projects.pull("one/emptied")["status"] == "success", "what came back is followed again"
    assert_equal(source, one, two)


def test_a_person_adds_a_project_and_follows_it_at_the_command_line(up):
    source, target = up.upstream.create("cli/core"), target_at(up.forge, "cli/core")
    up.cli("add", "cli/core", source.url, f"--target={target.url}", "--priority=high", "--interval=1h")
    up.until(lambda: target.refs() == source.public_refs())
    up.until(lambda: up.projects.get("cli/core")["task_id"] is None)
    shown = up.cli("show", "cli/core")
    for words in ("cli/core", source.url, target.url, "high", "success"):
        assert words in shown, shown

    tip = source.commit()
    assert tip in up.cli("trigger", "cli/core", "--wait", "60")
    assert target.tip() == tip
    up.until(lambda: up.cli_json("progress")["by_priority"]["high"]["synced"] == 1)  # told a second late

    theirs = pushed_to(source, target)
    source.commit()
    assert "CONFLICT" in up.cli("trigger", "cli/core", "--wait", "60", code=1)
    (error,) = up.cli_json("errors", "cli/core")["items"]
    assert (error["error_type"], error["target_url"]) == ("CONFLICT", target.url)
    assert target.tip() == theirs
    up.cli("targets", "adopt", "cli/core", "--yes")
    up.until(lambda: target.refs() == source.public_refs())

    assert "cli/none" in up.cli("trigger", "cli/none", code=5)
    assert "nonsense" in up.cli("add", "cli/bad", "nonsense", code=2)


# A fleet


def test_who_holds_a_project_pushes_it(fleet):
    before = {name: len(fleet.pushed_by(name)) for name in NAMES}
    holders = {key: fleet.holder(key) for key in fleet.repos}
    for repo in fleet.repos.values():
        repo.commit()
        assert fleet.projects.pull(repo.name)["status"] == "success"
    pushed = {name: fleet.pushed_by(name)[before[name] :] for name in NAMES}
    assert {key: name for name in NAMES for key in pushed[name]} == holders
    assert set(holders.values()) == set(NAMES)


def test_what_a_worker_pushed_when_it_was_killed_is_finished_by_another(fleet):
    """Of one project the killed worker's push comes through at the target, and the source moves on, before
    there is a successor; of another it comes through while its successor pushes the same."""
    name = max(NAMES, key=lambda n: len(fleet.held_by(n)))
    landing, racing = sorted(fleet.held_by(name))[:2]
    with Gate(fleet.targets[landing]) as landing_gate, Gate(fleet.targets[racing]) as racing_gate:
        pushed = {key: fleet.repos[key].big_blob(BIG) for key in (landing, racing)}
        tasks = {key: fleet.projects.trigger(fleet.name(key)) for key in pushed}
        fleet.until(lambda: landing_gate.arrived == racing_gate.arrived == 1)
        killed_at = time.monotonic()
        fleet.workers[name].kill()
        fleet.repos[landing].commit()
        landing_gate.open()
        fleet.until(lambda: fleet.targets[landing].tip() == pushed[landing])
        fleet.until(lambda: racing_gate.arrived == 2)
        assert time.monotonic() - killed_at >= GRACE_S
        racing_gate.let(1)
        fleet.until(lambda: fleet.targets[racing].tip() == pushed[racing])

    for key, task_id in tasks.items():
        done = fleet.projects.ended(task_id)
        assert (done["status"], done["error_message"]) == ("success", None), key
        assert_equal(fleet.repos[key], fleet.targets[key])
        project = fleet.projects.get(fleet.name(key))
        assert (project["consecutive_failures"], project["targets"][0]["last_error"]) == (0, None)
        fleet.repos[key].commit()
        assert fleet.projects.pull(fleet.name(key))["status"] == "success", "and it goes on there"
    fleet.workers[name].start("worker")


def test_tasks_that_were_triggered_when_the_coordinator_was_killed_end_once(fleet):
    """Some are under way, and some wait for their turn."""
    names = [repo.name for repo in fleet.repos.values()]
    before = {name: len(fleet.projects.tasks(name)) for name in names}
    tips = {repo.name: repo.commit() for repo in fleet.repos.values()}
    fleet.projects.set_strategy(max_concurrent_pulls=1)
    fleet.forge.delay_s = 0.5
    tasks = {name: fleet.projects.trigger(name) for name in names[:2]}
    tasks |= zip(names[2:], fleet.projects.trigger_batch(names[2:]), strict=True)
    fleet.coordinator.kill()
    fleet.forge.delay_s = 0.0
    fleet.lead()
    for name, task_id in tasks.items():
        assert fleet.projects.ended(task_id)["status"] in ("success", "skipped")
        fleet.until(lambda name=name: fleet.projects.get(name)["task_id"] is None)
        project = fleet.projects.get(name)
        assert (project["consecutive_failures"], project["targets"][0]["commit"]) == (0, tips[name])
        assert project["last_status"] in ("success", "skipped")
    fleet.settle()
    assert fleet.is_idle()
    assert {name: len(fleet.projects.tasks(name)) for name in names} == {n: c + 1 for n, c in before.items()}
    fleet.projects.set_strategy(max_concurrent_pulls=5)


def test_a_coordinator_that_is_killed_while_a_worker_pushes_hears_of_the_end(fleet):
    key = min(fleet.repos)
    with Gate(fleet.targets[key]) as gate:
        tip = fleet.repos[key].commit()
        task_id = fleet.projects.trigger(fleet.name(key))
        fleet.until(lambda: gate.arrived == 1)
        fleet.coordinator.kill()
        gate.open()
        fleet.lead()
    assert fleet.projects.ended(task_id)["status"] in ("success", "skipped")
    fleet.until(lambda: fleet.targets[key].tip() == tip)
    fleet.until(lambda: fleet.projects.get(fleet.name(key))["targets"][0]["commit"] == tip)
    assert fleet.projects.get(fleet.name(key))["consecutive_failures"] == 0


def test_a_worker_that_was_away_for_longer_than_grace_does_not_push_what_is_anothers_now(fleet):
    """It is stopped between its look at the target and its push, and goes on while its successor pushes."""
    key = min(fleet.repos)
    stopped = fleet.workers[fleet.holder(key)]
    with Gate(fleet.targets[key]) as gate:
        fleet.repos[key].commit()
        fleet.forge.delay_s = GRACE_S  # time to stop it; its successor comes later than that
        reached = len(fleet.forge.requests)
        task_id = fleet.projects.trigger(fleet.name(key))
        fleet.until(lambda: len(fleet.forge.requests) > reached)
        stopped.signal(signal.SIGSTOP)
        fleet.forge.delay_s = 0.0
        try:
            fleet.until(lambda: gate.arrived == 1)
            assert OUT_OF_CONTACT not in stopped.log()
        finally:
            stopped.signal(signal.SIGCONT)
        fleet.until(lambda: gate.arrived > 1 or OUT_OF_CONTACT in stopped.log())
        assert gate.arrived == 1, "its successor's alone"
    done = fleet.projects.ended(task_id)
    assert done["status"] in ("success", "skipped"), "what it says of it does not count"
    assert done["error_message"] is None
    assert_equal(fleet.repos[key], fleet.targets[key])
    project = fleet.projects.get(fleet.name(key))
    assert (project["consecutive_failures"], project["targets"][0]["failures"]) == (0, 0)
