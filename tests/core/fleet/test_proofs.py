"""What only untrusted workers say they hold is not verified, and gets a copy that is."""

from __future__ import annotations

import pytest

from evermirror.core.fleet.copies import PROOF, CopyState
from evermirror.core.fleet.events import AggregatorsTold, CatalogRepo, HeldCopy, WitnessHeld, WitnessLost
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from tests.support.fleet import QUICK, Fleet

KEYS = [RepoKey(f"forge.example/team/repo{n}") for n in range(30)]


def verified(fleet: Fleet) -> set[RepoKey]:
    return {key for key in KEYS if fleet.repo(key).verified}


def proofs(fleet: Fleet) -> dict[RepoKey, list[WorkerId]]:
    return {key: [c.worker for c in fleet.repo(key).copies if c.rank == PROOF] for key in KEYS}


def strangers_only() -> Fleet:
    fleet = Fleet(QUICK)
    for name in ("stranger1", "stranger2"):
        fleet.join(name, trusted=False)
    fleet.catalog(*KEYS)
    fleet.run(5)
    return fleet


def test_without_anybody_to_check_them_repos_of_untrusted_workers_are_shown_as_unverified():
    fleet = strangers_only()
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(5)
    totals = fleet.machine.totals()
    assert (totals.held, totals.unverified, totals.owned) == (0, len(KEYS), len(KEYS))
    assert verified(fleet) == set()
    assert any("not verified" in line for line in fleet.machine.explain(KEYS[0]))


def test_a_fleet_without_aggregators_gives_each_such_repo_a_copy_on_a_trusted_worker():
    fleet = strangers_only()
    honest = fleet.join("honest")
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    assert set(honest.disk) == set(KEYS)
    assert verified(fleet) == set(KEYS)
    assert fleet.machine.totals().held == len(KEYS)
    on_strangers = [
        key for key in KEYS if any(c.rank == 0 and c.worker != honest.id for c in fleet.repo(key).copies)
    ]
    assert len(on_strangers) > len(KEYS) / 3, "volunteers keep their share"
    for key in on_strangers:
        assert [c.worker for c in fleet.repo(key).copies if c.rank == PROOF] == [honest.id]
        assert fleet.machine.explain(key)[0] == "1 of 1 wanted copies are placed."


def test_a_new_repo_has_its_proof_from_the_start():
    fleet = strangers_only()
    honest = fleet.join("honest")
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    fleet.catalog(*(f"forge.example/new/{n}" for n in range(20)))
    fleet.run(3)
    assert all(RepoKey(f"forge.example/new/{n}") in honest.disk for n in range(20))


def test_a_proof_stays_where_it_is_and_moves_when_its_worker_is_gone():
    fleet = strangers_only()
    first = fleet.join("first")
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    second = fleet.join("second")
    fleet.run(12)
    before = proofs(fleet)
    for _ in range(3):
        fleet.machine._placing.bounds_changed()
        fleet.run(5)
    assert proofs(fleet) == before
    fleet.cut(first)
    fleet.run(80, gap_s=10.0)
    assert set(second.disk) == set(KEYS)
    assert verified(fleet) == set(KEYS)


def test_a_trusted_worker_without_room_is_given_no_proofs():
    fleet = strangers_only()
    small = fleet.join("small", capacity=7)
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    assert len(small.disk) == 7
    totals = fleet.machine.totals()
    assert (totals.held, totals.unverified, totals.no_room) == (7, len(KEYS) - 7, 0)
    full = fleet.join("full")
    full.accepting = False
    fleet.run(12)
    assert full.disk == {}


def test_private_repos_have_room_before_proofs():
    fleet = strangers_only()
    small = fleet.join("small", capacity=7)
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    replicas = sum(c.worker == small.id and c.rank == 0 for key in KEYS for c in fleet.repo(key).copies)
    assert replicas < 7, "the rest is proofs"
    private = [RepoKey(f"forge.example/private/{n}") for n in range(7 - replicas)]
    fleet.catalog(*(CatalogRepo(key, trusted_only=True) for key in private))
    fleet.run(5)
    assert fleet.machine.totals().no_room == 0
    assert all(key in small.disk for key in private)
    wanted = [c for key in KEYS + private for c in fleet.repo(key).copies if c.rank is not None]
    assert sum(c.worker == small.id for c in wanted) == 7


def test_rows_that_nobody_can_prove_are_not_placed_again():
    fleet = strangers_only()
    fleet.join("small", capacity=7)
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    assert fleet.machine.totals().unverified == len(KEYS) - 7
    assert fleet.machine._placing._with_holes().tolist() == []
    fleet.join("large")
    fleet.run(12)
    assert fleet.machine.totals().unverified == 0


def test_an_aggregator_verifies_and_makes_proofs_needless():
    fleet = strangers_only()
    honest = fleet.join("honest")
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    fleet.handle(WitnessHeld(tuple(HeldCopy(key, fleet.upstream[key]) for key in KEYS)))
    fleet.handle(AggregatorsTold(some=True))
    fleet.run(12)
    assert all(c.rank != PROOF for key in KEYS for c in fleet.repo(key).copies)
    assert len(honest.disk) < len(KEYS), "proofs went, as the aggregator has the same"
    fleet.handle(WitnessLost())
    assert verified(fleet) == set(honest.disk), "it may have fetched from the proofs, which are gone"
    fleet.handle(WitnessHeld(tuple(HeldCopy(key, fleet.upstream[key]) for key in KEYS)))
    fleet.handle(WitnessLost())
    assert verified(fleet) == set(KEYS), "what was fetched from those who hold it is known to be there"


def test_what_another_untrusted_worker_clones_anew_is_to_be_verified_anew():
    fleet = Fleet(QUICK)
    first = fleet.join("first", trusted=False)
    fleet.catalog(KEYS[0])
    fleet.run(3)
    fleet.handle(WitnessHeld((HeldCopy(KEYS[0], fleet.upstream[KEYS[0]]),)))
    fleet.handle(WitnessLost())
    assert fleet.repo(KEYS[0]).verified
    fleet.retire(first)
    fleet.join("second", trusted=False)
    fleet.run(5)
    assert CopyState.HELD in fleet.states(KEYS[0]).values()
    assert not fleet.repo(KEYS[0]).verified


@pytest.mark.parametrize("joins", ["before the fetch", "while it is witnessed", "afterwards"])
@pytest.mark.parametrize("leaves", ["retired", "down", "lost its disk"])
def test_a_fetch_from_one_untrusted_worker_proves_nothing_for_another(joins, leaves):
    fleet = Fleet(QUICK)
    key = KEYS[0]
    honest = fleet.join("honest", trusted=False)
    fleet.catalog(CatalogRepo(key, replicas=2))
    fleet.run(3)
    if joins == "before the fetch":
        fleet.join("liar", trusted=False)
        fleet.run(5)
    fleet.handle(WitnessHeld((HeldCopy(key, fleet.upstream[key]),)))
    if joins == "while it is witnessed":
        fleet.join("liar", trusted=False)
        fleet.run(5)
    fleet.handle(WitnessLost((key,)))
    assert fleet.repo(key).verified == (joins != "while it is witnessed")
    if joins == "afterwards":
        fleet.join("liar", trusted=False)
        fleet.run(5)
    assert list(fleet.states(key).values()) == [CopyState.HELD, CopyState.HELD]
    if leaves == "retired":
        fleet.retire(honest)
    elif leaves == "down":
        fleet.cut(honest)
        fleet.tick(100, gap_s=10.0)
    else:
        fleet.reboot(honest, lost=[key])
        fleet.connect(honest)
    assert not fleet.repo(key).verified
    assert fleet.machine.totals().unverified == 1


@pytest.mark.parametrize("replicas", [2, 3])
def test_no_proof_where_a_trusted_worker_is_among_the_replicas(replicas):
    fleet = Fleet(QUICK)
    fleet.join("honest")
    fleet.join("volunteer", trusted=False)
    fleet.handle(AggregatorsTold(some=False))
    fleet.catalog(*(CatalogRepo(key, replicas=replicas) for key in KEYS))
    fleet.run(20)
    assert all(c.rank != PROOF for key in KEYS for c in fleet.repo(key).copies)


def test_a_restart_keeps_proofs():
    fleet = strangers_only()
    honest = fleet.join("honest")
    fleet.handle(AggregatorsTold(some=False))
    fleet.run(12)
    before = proofs(fleet)
    fleet.restart()
    for worker in fleet.workers:
        fleet.connect(worker)
    fleet.run(12)
    assert proofs(fleet) == before, "nothing goes before it is known that there are aggregators"
    assert set(honest.disk) == set(KEYS)
    assert verified(fleet) == set(KEYS)
