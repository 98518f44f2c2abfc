"""Looking at the tables: figures against the obvious way to count them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.events import CatalogRepo, DrainAsked
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Liveness
from tests.support.fleet import Fleet

KEYS = [RepoKey(f"forge.example/{i}") for i in range(12)]


def test_an_empty_fleet_has_nothing():
    fleet = Fleet()
    totals = fleet.machine.totals()
    assert (totals.repos, totals.owned, totals.workers, totals.alive) == (0, 0, 0, 0)
    assert totals.warming
    assert not totals.braked
    assert fleet.machine.workers() == ()
    assert fleet.machine.repo(KEYS[0]) is None
    assert fleet.machine.primary_of(KEYS[0]) is None


def test_wanted_copies_come_first_by_rank():
    fleet = Fleet()
    for name in "abcd":
        fleet.join(name)
    fleet.catalog(CatalogRepo(KEYS[0], replicas=3, pins=("c", "a", "b")))
    fleet.run(5)
    fleet.handle(DrainAsked(fleet.workers[2].id))
    view = fleet.repo(KEYS[0])
    assert [copy.rank for copy in view.copies] == [0, 1, 2, None]
    assert view.copies[-1].worker == fleet.workers[2].id
    assert view.primary in {copy.worker for copy in view.copies if copy.state is CopyState.HELD}


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["work", "tick", "cut", "drain", "remove", "join"]), st.integers(0, 11))
    )
)
def test_the_figures_are_those_of_counting_one_by_one(steps):
    fleet = Fleet()
    for name in "abc":
        fleet.join(name)
    fleet.catalog(*KEYS)
    for step, number in steps:
        worker = fleet.workers[number % len(fleet.workers)]
        match step:
            case "work":
                fleet.read(worker)
                for key in list(worker.clones)[:2]:
                    fleet.finish(worker, key)
            case "tick":
                fleet.tick(10, gap_s=4.0)
            case "cut":
                fleet.cut(worker)
            case "drain":
                fleet.handle(DrainAsked(worker.id))
            case "remove":
                fleet.catalog(removed=[KEYS[number]])
            case "join":
                fleet.join(f"worker-{len(fleet.workers)}")
    views = [fleet.repo(key) for key in KEYS]
    assert [fleet.machine.primary_of(key) for key in KEYS] == [view.primary for view in views]
    copies = [(copy, view) for view in views for copy in view.copies]
    alive = {w.record.id for w in fleet.machine.workers() if w.record.liveness is Liveness.ALIVE}
    listed = [view for view in views if not view.removed]
    totals = fleet.machine.totals()
    assert totals.repos == len(listed)
    assert totals.owned == sum(
        any(c.rank is not None and c.worker in alive for c in v.copies) for v in listed
    )
    assert totals.held == sum(
        any(c.state is CopyState.HELD and c.worker in alive for c in v.copies) for v in listed
    )
    assert totals.moving == sum(
        any(c.state is not CopyState.HELD or c.rank is None for c in v.copies) for v in listed
    )
    assert totals.planned == sum(c.state is CopyState.PLANNED for c, _ in copies)
    assert totals.asked == sum(c.state is CopyState.ASKED and c.worker in alive for c, _ in copies)
    assert totals.no_room == sum(view.no_room for view in views)
    for worker in fleet.machine.workers():
        here = [c for c, _ in copies if c.worker == worker.record.id]
        assert worker.wanted == sum(c.rank is not None for c in here)
        assert worker.held == sum(c.state is CopyState.HELD for c in here)
        assert worker.asked == sum(c.state is CopyState.ASKED for c in here)
