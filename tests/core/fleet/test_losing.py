"""What losing a worker would mean, against the obvious count; what the views of workers and of all show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.events import CommandGiven, DrainAsked, QuarantineAsked
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.views import Losing
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness
from tests.support.fleet import Fleet

KEYS = [f"h/r{n}" for n in range(12)]


def fleet_of(workers: int, replicas: int) -> Fleet:
    fleet = Fleet(FleetSettings(warm_up_s=0.0, rebalance_gap_s=0.0, replicas=replicas))
    for n in range(workers):
        fleet.join(f"w{n}")
    fleet.catalog(*KEYS)
    return fleet


def counted(fleet: Fleet, worker: int) -> Losing:
    """Repo by repo."""
    alive = {
        w.record.id
        for w in fleet.machine.workers()
        if w.record.liveness is Liveness.ALIVE and w.record.duty in (Duty.ACTIVE, Duty.DRAINING)
    }
    copies = alone = 0
    for key in KEYS:
        view = fleet.machine.repo(RepoKey(key))
        if view is None:
            continue
        copies += sum(c.worker == worker and c.rank is not None for c in view.copies)
        held = {c.worker for c in view.copies if c.state is CopyState.HELD}
        alone += worker in held and not (held & alive) - {worker} and not view.removed
    return Losing(copies, alone)


steps = st.lists(
    st.tuples(st.sampled_from(["run", "cut", "drain", "quarantine", "remove"]), st.integers(0, 3)), max_size=6
)


@given(replicas=st.integers(1, 3), done=steps)
def test_losing_is_what_the_obvious_count_says(replicas, done):
    fleet = fleet_of(4, replicas)
    for step, n in done:
        worker = fleet.workers[n]
        match step:
            case "run":
                fleet.run(3)
            case "cut":
                fleet.cut(worker)
                fleet.tick(30)
            case "drain":
                fleet.handle(DrainAsked(worker.id))
            case "quarantine":
                fleet.handle(QuarantineAsked(worker.id, "odd"))
            case "remove":
                fleet.catalog(removed=[KEYS[n]])
        for one in fleet.workers:
            assert fleet.machine.losing(one.id) == counted(fleet, one.id)


def test_with_one_copy_everything_is_alone_and_with_two_nothing_is():
    for replicas, alone in ((1, True), (2, False)):
        fleet = fleet_of(3, replicas)
        fleet.run()
        losing = [fleet.machine.losing(w.id) for w in fleet.workers]
        assert sum(one.copies for one in losing) == replicas * len(KEYS)
        assert sum(one.alone for one in losing) == (len(KEYS) if alone else 0)


def test_a_workers_view_tells_its_last_sign_of_life_and_what_it_has_not_taken_in():
    fleet = fleet_of(1, 1)
    (worker,) = fleet.workers
    fleet.run()
    assert fleet.view(worker).unacked == 0
    fleet.handle(CommandGiven(worker.id, "look"))
    fleet.handle(CommandGiven(worker.id, "look again"))
    assert fleet.view(worker).unacked == 2
    fleet.read(worker, 1)
    assert fleet.view(worker).unacked == 1
    heard = fleet.now.utc_s
    fleet.cut(worker)
    fleet.tick(3)
    assert fleet.view(worker).heard_at == heard


def test_the_totals_tell_copies_on_their_way_out():
    fleet = fleet_of(2, 1)
    fleet.run()
    fleet.catalog(removed=KEYS[:2])
    assert fleet.machine.totals().leaving == 2
    fleet.run()
    assert fleet.machine.totals().leaving == 0
    fleet.catalog("h/new")
    (copy,) = fleet.repo("h/new").copies
    assert copy.state is CopyState.ASKED
    fleet.handle(DrainAsked(copy.worker))
    assert fleet.machine.totals().stopping == 1
