"""Why a repo is where it is, told to people."""

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.events import CatalogRepo, DrainAsked
from evermirror.core.fleet.explain import STATES, WHY
from evermirror.model.repo import RepoKey
from tests.support.fleet import Fleet

KEY = RepoKey("forge.example/one")


def told(fleet):
    return "\n".join(fleet.machine.explain(KEY))


def test_every_reason_and_state_has_words():
    assert set(WHY) == set(Reason)
    assert set(STATES) == set(CopyState)


def test_nothing_is_told_of_a_repo_that_nobody_knows():
    assert Fleet().machine.explain(KEY) == ()


def test_where_it_is_since_when_and_whom_it_meets_on_the_ring():
    fleet = Fleet()
    fleet.join("ann")
    fleet.join("bob", trusted=False)
    fleet.catalog(CatalogRepo(KEY, trusted_only=True))
    fleet.run(3)
    lines = fleet.machine.explain(KEY)
    assert lines[0] == "1 of 1 wanted copies are placed."
    assert lines[1].startswith("On ann, since 2023-11-14 22:13 UTC, primary: is complete; ")
    assert "bob (not trusted)" in lines[-1]
    assert "ann" in lines[-1]


def test_the_ring_is_told_after_a_restart_too():
    fleet = Fleet()
    fleet.join("ann")
    fleet.catalog(KEY)
    fleet.run(3)
    fleet.restart()
    fleet.tick()
    assert "On the ring it meets: ann." in told(fleet)


def test_what_is_on_the_move():
    fleet = Fleet()
    fleet.join("ann")
    fleet.catalog(KEY)
    fleet.run(3)
    fleet.join("bob")
    fleet.tick(2)
    fleet.handle(DrainAsked(fleet.workers[0].id))
    assert "On bob" in told(fleet)
    assert "is being cloned; the worker that had it is being drained" in told(fleet)
    assert "On ann, no longer wanted there, primary: is complete; kept until" in told(fleet)


def test_pins_salts_full_disks_and_waiting():
    fleet = Fleet()
    worker = fleet.join("ann")
    fleet.catalog(CatalogRepo(KEY, pins=("ann", "eve")))
    fleet.tick(2)
    fleet.read(worker)
    fleet.finish(worker, KEY, room=False)
    worker.accepting = False
    fleet.tick(2)
    for words in (
        "It waits for room",
        "0 of 1 wanted copies",
        "handed back 1 times",
        "pins it to ann, eve",
        "ann (full disk)",
    ):
        assert words in told(fleet)


def test_what_left_the_catalog():
    fleet = Fleet()
    worker = fleet.join("ann")
    fleet.catalog(KEY)
    fleet.run(3)
    fleet.cut(worker)
    fleet.catalog(removed=[KEY])
    assert fleet.machine.explain(KEY)[0] == "It left the catalog: no copy is wanted."
    assert len(fleet.machine.explain(KEY)) == 2
