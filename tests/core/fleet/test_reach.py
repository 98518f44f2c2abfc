"""A holder that no relay can reach for the grace does not count."""

from __future__ import annotations

from evermirror.core.fleet.decisions import AlertKind
from evermirror.core.fleet.events import UnreachedTold
from evermirror.model.repo import RepoKey
from tests.support.fleet import QUICK, FakeWorker, Fleet

KEYS = [RepoKey(f"forge.example/team/repo{n}") for n in range(20)]
GRACE_S = QUICK.grace_s


def fleet_of(*names: str) -> tuple[Fleet, list[FakeWorker]]:
    fleet = Fleet(QUICK)
    workers = [fleet.join(name) for name in names]
    fleet.catalog(*KEYS)
    fleet.run(5)
    return fleet, workers


def unreached(fleet: Fleet, *workers: FakeWorker) -> None:
    fleet.handle(UnreachedTold(frozenset(w.id for w in workers if w.id is not None)))


def told(fleet: Fleet) -> list[tuple[str, bool]]:
    return [(a.about, a.over) for a in fleet.alerts() if a.kind is AlertKind.UNREACHABLE]


def test_what_it_holds_goes_to_others_and_its_copies_do_not_count():
    fleet, (a, b, c) = fleet_of("a", "b", "c")
    its = set(a.disk)
    assert its
    unreached(fleet, a)
    fleet.run(int(GRACE_S / 10) - 2, gap_s=10.0)
    assert told(fleet) == []
    assert set(a.disk) == its, "for the grace it counts"
    for worker in (b, c):
        worker.accepting = True
    fleet.run(6, gap_s=10.0)
    assert told(fleet) == [("a", False)]
    assert set(b.disk) | set(c.disk) == set(KEYS)
    assert all(a.id not in fleet.should(key) for key in KEYS)
    assert fleet.machine.totals().held == len(KEYS)
    assert fleet.view(a).unreachable
    unreached(fleet)
    fleet.run(5)
    assert told(fleet) == [("a", False), ("a", True)]
    assert any(a.id in fleet.should(key) for key in KEYS), "it takes its share again"


def test_a_copy_that_nobody_can_read_is_no_held_one():
    fleet, (a, b, c) = fleet_of("a", "b", "c")
    mine = len(a.disk)
    for worker in (b, c):
        worker.clones.clear()
    fleet.work = lambda: False  # type: ignore[method-assign]  # nobody clones any more
    unreached(fleet, a)
    fleet.run(int(GRACE_S / 10) + 2, gap_s=10.0)
    assert fleet.machine.totals().held == len(KEYS) - mine


def test_a_relay_that_reaches_hardly_anybody_is_to_blame_itself():
    fleet, workers = fleet_of("a", "b", "c")
    unreached(fleet, *workers[:2])
    fleet.run(int(GRACE_S / 5), gap_s=10.0)
    assert told(fleet) == []
    assert not any(fleet.view(w).unreachable for w in workers)


def test_nothing_is_taken_from_the_only_worker():
    fleet, (a,) = fleet_of("a")
    unreached(fleet, a)
    fleet.run(int(GRACE_S / 5), gap_s=10.0)
    assert set(a.disk) == set(KEYS)
    assert not fleet.view(a).unreachable


def test_the_worker_of_the_process_that_people_read_from_needs_no_line():
    fleet = Fleet(QUICK)
    own = fleet.join("own", serves=True)
    fleet.join("other")
    fleet.join("third")
    fleet.catalog(*KEYS)
    fleet.run(5)
    unreached(fleet, own)
    fleet.run(int(GRACE_S / 5), gap_s=10.0)
    assert not fleet.view(own).unreachable
