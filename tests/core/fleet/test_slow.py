"""First clones that take too long are given to another worker."""

from __future__ import annotations

import pytest

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import CatalogRepo, HeartbeatHeard
from evermirror.core.fleet.slow import DEFERRED_TRIES, PATIENCE_MAX_S, PAUSE_S, PRETENCE
from evermirror.core.fleet.table import FleetTable
from evermirror.model.repo import RepoKey
from tests.support.fleet import QUICK, FakeWorker, Fleet

REPOS = 40
PATIENCE_S = QUICK.clone_patience_s


def key(number: int) -> RepoKey:
    return RepoKey(f"forge.example/team/repo{number}")


KEYS = [key(n) for n in range(REPOS)]


class Slow(Fleet):
    """Workers of ``idle`` send heartbeats and do nothing else, and say so, or pretend to get further."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: dict[str, bool] = {}  # by name; True: pretends

    def work(self) -> bool:
        busy = False
        for worker in self.workers:
            while (
                worker.connected and worker.facts.name not in self.idle and (worker.commands or worker.clones)
            ):
                busy = True
                self.read(worker)
                for each in tuple(worker.clones):
                    self.finish(worker, each)
        return busy

    def beat(self, worker: FakeWorker) -> None:
        if self.idle.get(worker.facts.name) and worker.id is not None:
            progress = int(self.time_s) + 1
            self.handle(HeartbeatHeard(worker.id, worker.session, worker.accepting, progress))
        else:
            super().beat(worker)

    def pass_time(self, seconds: float) -> None:
        self.run(int(seconds / 10), gap_s=10.0)

    def held(self) -> int:
        return sum(CopyState.HELD in self.states(k).values() for k in KEYS)

    def alerts(self) -> list[tuple[str, bool]]:
        found = [a for d in self.decisions for a in d.actions if isinstance(a, Alert)]
        return [(a.about, a.over) for a in found if a.kind is AlertKind.SLOW]


def with_silent(*, tells: bool = True, pretends: bool = False) -> tuple[Slow, FakeWorker]:
    """An honest worker of weight 1, and one that owns nearly the whole ring."""
    fleet = Slow()
    fleet.join("honest")
    fleet.catalog("forge.example/old/one")  # a clone that takes a second
    fleet.run(5)
    silent = fleet.join("silent", weight=1000.0, trusted=False)
    if not tells:
        fleet.reboot(silent)
        fleet.connect(silent, tells=False)
    fleet.idle["silent"] = pretends
    fleet.catalog(*KEYS)
    fleet.pass_time(60)
    assert fleet.held() < REPOS / 4, "nearly all went to the silent one"
    return fleet, silent


@pytest.mark.parametrize("tells", [True, False], ids=["tells what it holds", "never tells what it holds"])
def test_a_silent_worker_keeps_no_new_repos(tells):
    fleet, _ = with_silent(tells=tells)
    fleet.pass_time(PATIENCE_S + 180)
    assert fleet.held() == REPOS
    assert fleet.alerts() == [("silent", False)]
    assert fleet.machine.workers()[1].stalled
    reasons = {c.reason for k in KEYS for c in fleet.machine.repo(k).copies if c.rank is not None}
    assert Reason.SLOW in reasons or not tells
    fleet.catalog("forge.example/new/one")
    fleet.pass_time(20)
    view = fleet.machine.repo(RepoKey("forge.example/new/one"))
    assert [c.state for c in view.copies] == [CopyState.HELD], "the silent one gets nothing new"


def test_an_untrusted_worker_that_pretends_to_get_further_is_not_believed_for_ever():
    fleet, _ = with_silent(pretends=True)
    fleet.pass_time(2 * PATIENCE_S)
    assert fleet.held() < REPOS / 4, "slow clones that make progress are left alone"
    fleet.pass_time(PRETENCE * PATIENCE_S)
    assert fleet.held() == REPOS


def test_connecting_anew_wins_no_time():
    fleet, silent = with_silent()
    for _ in range(4):
        fleet.pass_time(PATIENCE_S / 3)
        fleet.reboot(silent)
        fleet.connect(silent)
    fleet.pass_time(120)
    assert fleet.held() == REPOS


@pytest.mark.parametrize("anew", [False, True], ids=["one session", "many sessions"])
@pytest.mark.parametrize("part", [0.0, 0.6], ids=["completes one at a time", "completes most"])
def test_completing_some_clones_wins_no_time_for_the_others(part, anew):
    fleet, silent = with_silent()
    fleet.read(silent)
    stuck = list(silent.clones)
    for each in stuck[: int(part * len(stuck))]:
        fleet.finish(silent, each)
    stuck = stuck[int(part * len(stuck)) :]
    gap_s = 0.75 * PATIENCE_S
    for n in range(int(2 * PRETENCE * PATIENCE_S / gap_s)):
        fleet.read(silent)
        fleet.catalog(f"forge.example/new/{n}")  # something to complete
        fleet.tick()
        fleet.read(silent)
        for each in [k for k in silent.clones if k not in stuck][:1]:
            fleet.finish(silent, each)
        if anew:
            fleet.reboot(silent)
            fleet.connect(silent)
        fleet.pass_time(gap_s)
    assert [k for k in stuck if CopyState.HELD not in fleet.states(k).values()] == []


def test_a_stalled_untrusted_worker_waits_out_its_pause():
    fleet, silent = with_silent()
    fleet.read(silent)
    late = next(iter(silent.clones))
    fleet.pass_time(PATIENCE_S + 180)
    fleet.finish(silent, late)
    assert fleet.machine.workers()[1].stalled


def test_a_trusted_worker_that_gets_further_is_left_alone():
    fleet = Slow()
    fleet.join("honest")
    fleet.join("busy", weight=1000.0)
    fleet.idle["busy"] = True
    fleet.catalog(*KEYS)
    fleet.pass_time(3 * PRETENCE * PATIENCE_S)
    assert fleet.alerts() == []


def test_nothing_is_taken_from_the_only_one_who_could_do_it():
    fleet = Slow()
    fleet.join("only")
    fleet.join("stranger", trusted=False)
    fleet.idle = {"only": False, "stranger": False}
    fleet.catalog(CatalogRepo(key(0), trusted_only=True))
    fleet.pass_time(3 * PATIENCE_S)
    assert [c.rank for c in fleet.machine.repo(key(0)).copies] == [0]
    assert fleet.alerts() == []


def test_it_is_tried_again_after_a_pause_and_trusted_again_with_its_first_clone():
    fleet, silent = with_silent()
    fleet.pass_time(PATIENCE_S + 180)
    del fleet.idle["silent"]
    fleet.pass_time(PAUSE_S + 60)
    assert fleet.alerts() == [("silent", False), ("silent", True)]
    assert not fleet.machine.workers()[1].stalled
    fleet.catalog(*(f"forge.example/new/{n}" for n in range(10)))
    fleet.pass_time(20)
    assert len(silent.disk) > 5


def test_the_patience_grows_with_the_median_of_the_fleet():
    fleet = Slow()
    fleet.join("honest")
    for n in range(9):
        fleet.catalog(key(n))
        fleet.tick(2)
        fleet.tick(gap_s=120.0)
        while fleet.work():
            pass
    assert fleet.machine._slow.patience_s == pytest.approx(20 * 120.0, rel=0.1)


def clone_slowly(fleet, worker, count, seconds):
    for n in range(count):
        fleet.catalog(f"forge.example/{worker.facts.name}/{n}")
        fleet.tick(2)
        fleet.tick(gap_s=seconds)
        while fleet.work():
            pass


def test_untrusted_workers_do_not_make_the_fleet_patient():
    fleet = Slow()
    clone_slowly(fleet, fleet.join("honest"), 3, 60.0)
    fleet.join("liar", trusted=False, weight=1000.0)
    clone_slowly(fleet, fleet.workers[1], 20, 500.0)
    assert len(fleet.workers[1].disk) > 10
    assert fleet.machine._slow.patience_s == pytest.approx(20 * 60.0, rel=0.1)


def test_each_untrusted_worker_has_one_vote():
    fleet = Slow()
    for name in ("ann", "bob"):
        worker = fleet.join(name, trusted=False)
        clone_slowly(fleet, worker, 4, 60.0)
    fleet.join("liar", trusted=False, weight=1000.0)
    clone_slowly(fleet, fleet.workers[2], 20, 500.0)
    assert len(fleet.workers[2].disk) > 10
    assert fleet.machine._slow.patience_s == pytest.approx(20 * 60.0, rel=0.1)


def test_a_look_does_not_search_the_table_for_each_worker(monkeypatch):
    fleet = Slow()
    for name in ("a", "b", "c"):
        fleet.join(name)
        fleet.idle[name] = True
    fleet.catalog(*KEYS)
    fleet.pass_time(60)
    searched = []
    monkeypatch.setattr(FleetTable, "copies_on", lambda table, worker: searched.append(worker))
    fleet.machine._slow.look(fleet.now.utc_s, Draft(fleet.machine._table, fleet.machine._crew))
    assert len(fleet.machine._slow._watched) == 3
    assert searched == []


def test_the_patience_has_an_end():
    fleet = Slow()
    clone_slowly(fleet, fleet.join("honest"), 3, 86_400.0)
    assert fleet.machine._slow.patience_s == PATIENCE_MAX_S


def test_a_clone_that_only_an_untrusted_worker_finds_failing_is_tried_by_others():
    fleet = Slow()
    fleet.join("honest")
    liar = fleet.join("liar", weight=1000.0, trusted=False)
    fleet.idle["liar"] = False
    fleet.catalog(*KEYS)
    fleet.tick(3)
    for _ in range(12):
        fleet.read(liar)
        for each in tuple(liar.clones):
            fleet.fail(liar, each)
        fleet.pass_time(PATIENCE_S / 4)
    assert fleet.held() == REPOS


def test_a_repo_that_fails_everywhere_does_not_wander_for_ever():
    fleet = Slow()
    for name in ("a", "b", "c", "d", "e"):
        fleet.join(name, trusted=False)
        fleet.idle[name] = False
    fleet.catalog(key(0))
    asked: list[str] = []
    for _ in range(60):
        for worker in fleet.workers:
            fleet.read(worker)
            for each in tuple(worker.clones):
                asked.append(worker.facts.name)
                fleet.fail(worker, each)
                worker.clones.pop(each, None)
        fleet.pass_time(PATIENCE_S / 4)
    assert len(asked) == 1 + DEFERRED_TRIES
