"""Repos whose first clone fails hold up nobody: they leave the window at once, and are tried outside it."""

from random import Random

import pytest

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import Assign
from evermirror.core.fleet.events import CatalogRepo, CloneHastened, DrainAsked
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from tests.support.fleet import QUICK, Fleet

ASKED, DEFERRED, HELD, PLANNED = CopyState.ASKED, CopyState.DEFERRED, CopyState.HELD, CopyState.PLANNED


def key(number: int) -> RepoKey:
    return RepoKey(f"forge.example/team/repo{number}")


def work_off(fleet: Fleet, worker, dead: set[RepoKey]) -> None:
    """The worker reads all, ends what is alive and fails what is dead, until nothing new is asked of it."""
    failed: set[RepoKey] = set()
    while True:
        fleet.read(worker)
        todo = [k for k in worker.clones if k not in failed]
        if not todo:
            return
        for k in todo:
            if k in dead:
                failed.add(k)
                fleet.fail(worker, k)
            else:
                fleet.finish(worker, k)


@pytest.mark.parametrize("order", ["dead first", "live first", "shuffled"])
@pytest.mark.parametrize(("live", "dead"), [(5, 10), (1_100, 300), (20, 2_000)])
def test_every_live_repo_is_cloned_whatever_the_share_and_order_of_dead_ones(live, dead, order):
    fleet = Fleet()
    worker = fleet.join("w")
    gone = {key(n) for n in range(dead)}
    catalog = [key(n) for n in range(dead + live)]
    if order == "live first":
        catalog.reverse()
    elif order == "shuffled":
        Random(live).shuffle(catalog)
    fleet.catalog(*catalog)
    fleet.tick(2)
    work_off(fleet, worker, gone)
    assert set(worker.disk) == set(catalog) - gone
    assert {fleet.states(k)[worker.id] for k in gone} == {DEFERRED}
    totals = fleet.machine.totals()
    assert (totals.planned, totals.asked, totals.deferred) == (0, 0, dead)


def deferred_one(**facts):
    fleet = Fleet(QUICK)
    worker = fleet.join("w", **facts)
    fleet.catalog(key(0))
    fleet.tick(2)
    fleet.read(worker)
    fleet.fail(worker, key(0))
    assert fleet.states(key(0)) == {worker.id: DEFERRED}
    return fleet, worker


def test_one_that_succeeds_after_all_is_held():
    fleet, worker = deferred_one()
    fleet.finish(worker, key(0))
    assert fleet.states(key(0)) == {worker.id: HELD}
    assert fleet.machine.primary_of(key(0)) == worker.id


def test_its_worker_polls_it_meanwhile():
    fleet, worker = deferred_one()
    assert fleet.machine.primary_of(key(0)) == worker.id


def test_in_a_fresh_session_it_is_told_again_without_a_place_in_the_window():
    fleet, worker = deferred_one()
    fleet.reboot(worker)
    fleet.connect(worker)
    assert fleet.states(key(0)) == {worker.id: DEFERRED}
    assert [c for c in fleet.sent(worker) if isinstance(c, Assign)]
    fleet.read(worker)
    assert key(0) in worker.clones


def test_drained_it_moves_on():
    fleet, worker = deferred_one()
    other = fleet.join("other")
    fleet.tick(2)
    fleet.handle(DrainAsked(worker.id))
    fleet.run(3)
    assert fleet.states(key(0)) == {other.id: HELD}


def test_a_late_word_about_a_copy_that_is_held_changes_nothing():
    fleet = Fleet()
    worker = fleet.join("w")
    fleet.catalog(key(0))
    fleet.run(3)
    fleet.fail(worker, key(0))
    assert fleet.states(key(0)) == {worker.id: HELD}


def test_what_somebody_waits_for_is_asked_before_all_that_waits():
    fleet = Fleet(FleetSettings(warm_up_s=0.0, moves_first=1, moves_per_worker=1))
    worker = fleet.join("w")
    fleet.catalog(*(key(n) for n in range(100)))
    fleet.tick(2)
    fleet.handle(CloneHastened(key(77)))
    assert fleet.states(key(77)) == {worker.id: PLANNED}
    fleet.read(worker)
    (first,) = worker.clones
    fleet.fail(worker, first)
    assert fleet.states(key(77)) == {worker.id: ASKED}


def test_a_repo_of_a_high_priority_is_asked_before_all_that_waits():
    fleet = Fleet(FleetSettings(warm_up_s=0.0, moves_first=1, moves_per_worker=1))
    worker = fleet.join("w")
    fleet.catalog(*(key(n) for n in range(100)))
    fleet.tick(2)
    fleet.catalog(CatalogRepo(RepoKey("forge.example/urgent"), urgent=True))
    fleet.read(worker)
    (first,) = worker.clones
    fleet.finish(worker, first)
    assert fleet.states("forge.example/urgent") == {worker.id: ASKED}


def test_a_repo_of_a_high_priority_goes_first_also_where_it_came_before_anything_was_placed():
    fleet = Fleet(FleetSettings(warm_up_s=5.0, moves_first=1, moves_per_worker=1))
    worker = fleet.join("w")
    urgent = RepoKey("forge.example/urgent")
    fleet.catalog(*(key(n) for n in range(50)), CatalogRepo(urgent, urgent=True))
    fleet.tick(10)
    fleet.read(worker)
    assert list(worker.clones) == [urgent]


def test_what_somebody_waits_for_is_queued_once_however_often_it_is_told():
    fleet = Fleet(FleetSettings(warm_up_s=0.0, moves_first=1, moves_per_worker=1))
    worker = fleet.join("w")
    fleet.catalog(*(key(n) for n in range(100)))
    fleet.tick(2)
    queued = fleet.machine._pace.queued(worker.id)
    for _ in range(50):
        fleet.handle(CloneHastened(key(77)))
    assert fleet.machine._pace.queued(worker.id) == queued + 1


def test_hastening_what_nobody_knows_does_nothing():
    fleet = Fleet()
    fleet.join("w")
    fleet.handle(CloneHastened(key(5)))
