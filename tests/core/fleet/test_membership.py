"""What follows when workers fall silent, come back, fill up, or are wanted for less."""

import pytest

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import AlertKind, Refuse
from evermirror.core.fleet.events import (
    CatalogRepo,
    DrainAsked,
    DutyResumed,
    QuarantineAsked,
    RetireAsked,
)
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, WorkerFacts, WorkerId
from tests.support.fleet import Fleet

KEYS = [RepoKey(f"forge.example/{i}") for i in range(30)]
GRACE = 700  # ticks: more than rounds and grace


def settled(*names, **facts):
    fleet = Fleet()
    for name in names or ("a", "b", "c"):
        fleet.join(name, **facts)
    fleet.catalog(*KEYS)
    fleet.run(10)
    assert fleet.machine.totals().moving == 0
    return fleet


def whole(fleet):
    """Every repo is complete where it should be, and nowhere else."""
    return all(
        [w.id for w in fleet.holders(key)] == sorted(fleet.should(key)) and fleet.should(key) for key in KEYS
    )


def test_back_within_grace_nothing_moved():
    fleet = settled()
    before = {key: fleet.should(key) for key in KEYS}
    fleet.cut(fleet.workers[0])
    fleet.run(60)
    assert fleet.view(fleet.workers[0]).record.status == "suspect"
    fleet.connect(fleet.workers[0])
    fleet.run(5)
    assert {key: fleet.should(key) for key in KEYS} == before
    assert fleet.view(fleet.workers[0]).record.status == "alive"


def test_down_only_what_was_lost_moves_and_says_why():
    fleet = settled()
    gone = fleet.workers[0]
    before = {key: fleet.should(key) for key in KEYS}
    fleet.cut(gone)
    fleet.run(GRACE)
    for key in KEYS:
        if before[key] == (gone.id,):
            (copy,) = [c for c in fleet.repo(key).copies if c.rank is not None]
            assert copy.worker != gone.id
            assert copy.reason is Reason.LOST
            assert copy.state is CopyState.HELD
        else:
            assert fleet.should(key) == before[key]
    assert [(a.kind, a.about, a.over) for a in fleet.alerts()] == [(AlertKind.WORKER_DOWN, "a", False)]


def test_what_goes_beyond_a_bound_after_a_loss_says_so():
    fleet = Fleet()
    light = fleet.join("light", weight=0.5)
    for name in ("a", "b", "c"):
        fleet.join(name, weight=2.0)
    fleet.catalog(*(CatalogRepo(key, replicas=3 if n < 20 else 1) for n, key in enumerate(KEYS)))
    fleet.run(10)
    fleet.cut(fleet.workers[1])
    fleet.run(GRACE)
    given = [c.reason for key in KEYS for c in fleet.repo(key).copies if c.worker == light.id]
    assert len(given) >= 20  # three copies need all three that are left
    assert len(given) - given.count(Reason.OVERFULL) == 11  # 1.1 of the 10 that the heavy ones leave


def test_back_after_grace_it_keeps_what_it_can_and_the_rest_is_deleted():
    fleet = settled()
    back = fleet.workers[0]
    had = set(back.disk)
    fleet.cut(back)
    fleet.run(GRACE)
    fleet.connect(back)
    fleet.run(20)
    assert whole(fleet)
    assert back.disk
    assert set(back.disk) <= had
    assert fleet.alerts()[-1].over


def test_drained_it_is_emptied_and_takes_nothing_until_it_is_resumed():
    fleet = settled()
    worker = fleet.workers[0]
    fleet.handle(DrainAsked(worker.id))
    fleet.run(10)
    assert whole(fleet)
    assert not worker.disk
    fleet.catalog("forge.example/new")
    fleet.run(3)
    assert fleet.should("forge.example/new") != (worker.id,)
    fleet.handle(DutyResumed(worker.id))
    fleet.run(10)
    assert whole(fleet)
    assert worker.disk


def test_quarantined_nothing_of_it_counts_and_it_is_told_nothing():
    fleet = settled()
    worker = fleet.workers[0]
    sent, held = len(fleet.sent(worker)), dict(worker.disk)
    fleet.handle(QuarantineAsked(worker.id, "its objects are not what it said"))
    fleet.run(10)
    assert worker.disk == held
    assert len(fleet.sent(worker)) == sent
    for key in held:
        (owner,) = fleet.should(key)
        assert owner != worker.id
        assert fleet.repo(key).primary == owner
    fleet.handle(DutyResumed(worker.id))
    fleet.run(10)
    assert whole(fleet)
    assert [(a.kind, a.over) for a in fleet.alerts()] == [
        (AlertKind.QUARANTINE, False),
        (AlertKind.QUARANTINE, True),
    ]
    assert fleet.alerts()[0].text.endswith(f"is quarantined: {fleet.alerts()[0].facts['reason']}")


def test_draining_a_quarantined_worker_does_not_make_it_count_again():
    fleet = settled()
    worker = fleet.workers[0]
    fleet.handle(QuarantineAsked(worker.id, "lied"))
    fleet.handle(DrainAsked(worker.id))
    assert fleet.view(worker).record.duty is Duty.QUARANTINED


def test_retired_its_repos_are_cloned_anew_and_its_id_is_free():
    fleet = settled()
    worker = fleet.workers[0]
    fleet.retire(worker)
    assert Refuse(worker.session, "this worker was retired") in fleet.decisions[-1].actions
    fleet.run(10)
    assert whole(fleet)
    assert worker.id not in {view.record.id for view in fleet.machine.workers()}
    assert not [copy for copy in fleet.store.copies.values() if copy.worker == worker.id]
    assert fleet.join("d").id == worker.id


@pytest.mark.parametrize(
    ("kind", "before"), [(AlertKind.WORKER_DOWN, "down"), (AlertKind.QUARANTINE, "quarantined")]
)
def test_retired_it_is_no_cause_for_alarm_any_more(kind, before):
    fleet = settled()
    worker = fleet.workers[0]
    if before == "down":
        fleet.cut(worker)
        fleet.run(GRACE)
    else:
        fleet.handle(QuarantineAsked(worker.id, "lied"))
    assert fleet.view(worker).record.status == before
    fleet.retire(worker)
    assert [(a.kind, a.over) for a in fleet.alerts()] == [(kind, False), (kind, True)]


def test_the_last_worker_may_retire_and_another_begins():
    fleet = settled("only")
    fleet.retire(fleet.workers[0])
    assert fleet.machine.totals().no_room == len(KEYS)
    fleet.catalog("forge.example/new")
    fleet.join("next")
    fleet.run(10)
    assert whole(fleet)
    assert fleet.machine.totals().no_room == 0


def test_people_may_name_workers_that_nobody_knows():
    fleet = settled()
    for event in (DrainAsked, DutyResumed, RetireAsked):
        assert fleet.handle(event(WorkerId(99))).writes == ()
    assert fleet.handle(QuarantineAsked(WorkerId(99), "who?")).writes == ()


def test_asked_twice_is_asked_once():
    fleet = settled()
    fleet.handle(DrainAsked(fleet.workers[0].id))
    assert fleet.handle(DrainAsked(fleet.workers[0].id)).writes == ()


def test_a_full_disk_moves_what_was_not_yet_asked_for_and_nothing_else():
    fleet = Fleet()
    first, second = fleet.join("a"), fleet.join("b")
    fleet.catalog(*KEYS)
    fleet.tick()
    states = {key: fleet.states(key).get(first.id) for key in KEYS}
    assert {CopyState.PLANNED, CopyState.ASKED} <= set(states.values())
    first.accepting = False
    fleet.beat(first)
    for key, state in states.items():
        if state is CopyState.PLANNED:
            assert fleet.should(key) == (second.id,)
        elif state is CopyState.ASKED:
            assert fleet.should(key) == (first.id,)


def test_a_worker_whose_token_is_trusted_no_more_loses_what_only_the_trusted_may_hold():
    fleet = Fleet()
    first, second = fleet.join("a"), fleet.join("b")
    fleet.catalog(*(CatalogRepo(key, trusted_only=i % 2 == 0) for i, key in enumerate(KEYS)))
    fleet.run(10)
    private = [key for i, key in enumerate(KEYS) if i % 2 == 0]
    fleet.reboot(first)
    first.facts = WorkerFacts("a", trusted=False)
    fleet.connect(first)
    assert all(fleet.should(key) == (second.id,) for key in private)
    fleet.run(10)
    assert all(fleet.holders(key) == [second] for key in private)


def test_a_lower_capacity_sheds_what_is_too_much():
    fleet = settled()
    worker = fleet.workers[0]
    fleet.reboot(worker)
    worker.facts = WorkerFacts("a", trusted=True, capacity=2)
    fleet.connect(worker)
    fleet.run(10)
    assert whole(fleet)
    assert len(worker.disk) == 2


def test_clones_under_way_count_while_their_worker_is_suspect_but_not_when_it_is_down():
    fleet = Fleet()
    for name in "abc":
        fleet.join(name)
    fleet.catalog(*KEYS)
    fleet.tick()
    worker = fleet.workers[0]
    asked = fleet.view(worker).asked
    assert asked > 1
    fleet.cut(worker)
    fleet.tick(60)
    assert fleet.view(worker).record.status == "suspect"
    assert fleet.machine._pace.outstanding(worker.id) == asked
    fleet.tick(GRACE)
    assert fleet.view(worker).record.status == "down"
    assert fleet.machine._pace.outstanding(worker.id) == 0
    fleet.connect(worker)
    assert fleet.machine._pace.outstanding(worker.id) == fleet.view(worker).asked


def test_one_handed_back_is_counted_once():
    fleet = Fleet()
    worker = fleet.join("a")
    fleet.join("b")
    fleet.catalog(*KEYS)
    fleet.tick()
    fleet.read(worker)
    fleet.finish(worker, next(iter(worker.clones)), room=False)
    assert fleet.machine._pace.outstanding(worker.id) == fleet.view(worker).asked > 1
