"""Repos that come, change, leave and are forgotten."""

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import DropCopies
from evermirror.core.fleet.events import HeldCopy, WitnessHeld, WitnessLost
from evermirror.model.repo import RepoKey
from tests.support.fleet import Fleet

ONE, TWO = RepoKey("forge.example/one"), RepoKey("forge.example/two")


def with_one():
    fleet = Fleet()
    worker = fleet.join("a")
    fleet.catalog(ONE)
    fleet.run(3)
    return fleet, worker


def test_removed_it_is_known_until_it_is_forgotten():
    fleet, _worker = with_one()
    fleet.catalog(removed=[ONE])
    fleet.run(2)
    assert fleet.repo(ONE).removed
    assert fleet.machine.totals().repos == 0
    fleet.catalog(forgotten=[ONE])
    assert fleet.machine.repo(ONE) is None
    assert not fleet.store.copies


def test_what_is_listed_cannot_be_forgotten():
    fleet, worker = with_one()
    fleet.catalog(forgotten=[ONE, TWO])
    assert fleet.states(ONE) == {worker.id: CopyState.HELD}


def test_listed_again_it_keeps_what_is_still_there():
    fleet, worker = with_one()
    fleet.cut(worker)
    fleet.catalog(removed=[ONE])
    fleet.catalog(ONE)
    assert not fleet.repo(ONE).removed
    fleet.connect(worker)
    fleet.run(3)
    assert ONE in worker.disk
    assert fleet.repo(ONE).copies[0].rank == 0


def test_forgotten_while_its_worker_is_away_it_comes_back_as_a_stray():
    fleet, worker = with_one()
    fleet.cut(worker)
    fleet.catalog(removed=[ONE])
    fleet.catalog(forgotten=[ONE])
    fleet.reboot(worker)
    fleet.connect(worker)
    fleet.run(3)
    assert fleet.view(worker).strays == 1
    assert ONE in worker.disk


def test_removed_it_waits_for_room_no_more():
    fleet = Fleet()
    fleet.join("a", capacity=1)
    fleet.catalog(ONE, TWO)
    fleet.run(3)
    waiting = next(key for key in (ONE, TWO) if fleet.repo(key).no_room)
    fleet.catalog(removed=[waiting])
    assert fleet.machine.totals().no_room == 0
    assert not fleet.repo(waiting).no_room


def test_a_row_forgotten_and_used_again_at_once_is_written_as_two_repos():
    """The new repo gets the very row, and is placed on the very worker."""
    fleet, worker = with_one()
    fleet.cut(worker)
    fleet.catalog(removed=[ONE])
    fleet.catalog(TWO, forgotten=[ONE])
    assert DropCopies(((ONE, worker.id),)) in fleet.decisions[-1].writes
    assert set(fleet.store.copies) == {(TWO, worker.id)}


def test_removed_ones_are_known_after_a_restart():
    fleet, worker = with_one()
    fleet.cut(worker)
    fleet.catalog(removed=[ONE])
    fleet.restart()
    assert fleet.repo(ONE).removed
    fleet.connect(worker)
    fleet.run(3)
    assert not worker.disk


def test_the_witness_may_lose_some_or_all():
    fleet, _worker = with_one()
    table = fleet.machine._table
    fleet.catalog(TWO)
    fleet.handle(WitnessHeld((HeldCopy(ONE, 7), HeldCopy(TWO, 8), HeldCopy(RepoKey("x.example/y"), 9))))
    rows = [table.row_of(key) for key in (ONE, TWO)]
    assert table.witness[rows].tolist() == [7, 8]
    fleet.handle(WitnessLost((ONE, RepoKey("x.example/y"))))
    assert table.witness[rows].tolist() == [0, 8]
    fleet.handle(WitnessLost())
    assert table.witness[rows].tolist() == [0, 0]
