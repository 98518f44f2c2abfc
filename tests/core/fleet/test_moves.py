"""Repos on the move, against the obvious walk over all of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.events import CatalogRepo, DrainAsked
from evermirror.core.fleet.moves import Move
from evermirror.model.repo import RepoKey
from tests.core.fleet.test_losing import KEYS, fleet_of

SECRET = "h/secret"


def walked(fleet, keys, *, public):
    """Repo by repo: key, who goes, who comes."""
    found = {}
    for key in keys:
        view = fleet.machine.repo(RepoKey(key))
        if view is None or view.removed or (public and key == SECRET):
            continue
        going = tuple(c.worker for c in view.copies if c.rank is None)
        coming = tuple(c.worker for c in view.copies if c.rank is not None and c.state is not CopyState.HELD)
        if going or coming:
            found[key] = going, coming
    return found


happened = st.lists(
    st.tuples(st.sampled_from(["drain", "join", "tick", "work", "remove", "cut"]), st.integers(0, 11)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), happened)
def test_they_are_those_that_a_walk_finds_and_as_many_as_the_totals_say(workers, replicas, events):
    fleet = fleet_of(workers, replicas)
    fleet.catalog(CatalogRepo(RepoKey(SECRET), trusted_only=True))
    for what, n in events:
        match what:
            case "drain":
                fleet.handle(DrainAsked(fleet.workers[n % len(fleet.workers)].id))
            case "join":
                fleet.join(f"new{len(fleet.workers)}")
            case "tick":
                fleet.tick()
            case "work":
                fleet.work()
            case "remove":
                fleet.catalog(removed=[KEYS[n]])
            case "cut":
                fleet.cut(fleet.workers[n % len(fleet.workers)])
        for public in (False, True):
            found = fleet.machine.moves(1000, public=public)
            told = {m.key: (m.going, m.coming) for m in found.items}
            assert told == walked(fleet, [*KEYS, SECRET], public=public)
            assert found.total == len(found.items)
            ranks = [bool(m.coming) for m in found.items]
            assert ranks == sorted(ranks, reverse=True), "those that come first"
        assert fleet.machine.moves(1000, public=False).total == fleet.machine.totals().moving
        few = fleet.machine.moves(2, public=False)
        assert (len(few.items), few.total) == (min(2, few.total), fleet.machine.totals().moving)


def test_a_move_says_from_whom_to_whom_and_why():
    fleet = fleet_of(2, 1)
    fleet.run()
    assert fleet.machine.moves(100, public=True).items == ()
    first, second = fleet.workers
    fleet.handle(DrainAsked(first.id))
    fleet.tick()
    moved = fleet.machine.moves(100, public=True).items
    assert {(m.going, m.coming, m.reason) for m in moved} == {((first.id,), (second.id,), Reason.DRAINED)}
    assert moved[0].state is CopyState.ASKED
    assert isinstance(moved[0], Move)
    fleet.run()
    assert fleet.machine.moves(100, public=True).total == 0
