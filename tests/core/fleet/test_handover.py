"""How one repo goes from worker to worker, step by step."""

import pytest

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import Assign, Nudge, Release
from evermirror.core.fleet.events import (
    CatalogRepo,
    CopiesVerified,
    DrainAsked,
    DutyResumed,
    HeldCopy,
    QuarantineAsked,
    ReportId,
    Ticked,
    WitnessHeld,
)
from evermirror.model.repo import RepoKey
from tests.support.fleet import QUICK, Fleet

KEY = RepoKey("forge.example/one")
PLANNED, ASKED, HELD = CopyState.PLANNED, CopyState.ASKED, CopyState.HELD
STOPPING, LEAVING = CopyState.STOPPING, CopyState.LEAVING


def held_by_one(**facts):
    """``old`` holds the repo; ``new`` is there and has nothing."""
    fleet = Fleet()
    old = fleet.join("old", **facts)
    fleet.catalog(KEY)
    fleet.run(3)
    assert fleet.states(KEY) == {old.id: HELD}
    return fleet, old, fleet.join("new", **facts)


def drained(**facts):
    """``old`` is drained, ``new`` was asked and has not read it yet."""
    fleet, old, new = held_by_one(**facts)
    fleet.tick(2)
    fleet.handle(DrainAsked(old.id))
    assert fleet.states(KEY) == {new.id: ASKED, old.id: HELD}
    return fleet, old, new


def deletes(fleet, worker):
    return [c for c in fleet.sent(worker) if isinstance(c, Release) and c.delete]


def test_the_old_copy_goes_only_when_the_new_one_is_told_complete():
    fleet, old, new = drained()
    fleet.read(new)
    assert not deletes(fleet, old)
    fleet.finish(new, KEY)
    assert fleet.states(KEY) == {new.id: HELD, old.id: LEAVING}
    assert fleet.holders(KEY) == [old, new]
    fleet.read(old)
    assert fleet.states(KEY) == {new.id: HELD}
    assert fleet.holders(KEY) == [new]


def test_the_new_worker_clones_from_the_old_one_and_is_no_orphan():
    fleet, old, new = drained()
    (item,) = fleet.sent(new)[-1].items
    assert (item.source, item.orphan, item.primary) == (old.id, False, False)


def test_the_old_one_polls_until_the_new_one_is_complete():
    fleet, old, new = drained()
    assert fleet.repo(KEY).primary == old.id
    fleet.read(new)
    fleet.finish(new, KEY)
    assert fleet.repo(KEY).primary == new.id
    fleet.read(new)
    assert new.roles[KEY]


def test_a_repo_that_nobody_holds_is_asked_for_as_an_orphan():
    fleet = Fleet()
    worker = fleet.join("only")
    fleet.catalog(KEY)
    fleet.tick(2)
    (item,) = fleet.sent(worker)[-1].items
    assert (item.source, item.orphan, item.primary) == (None, True, True)


def test_copies_that_differ_are_nudged_until_they_agree():
    fleet, old, new = drained()
    fleet.upstream[KEY] = 8  # the new one clones more than the old one has
    fleet.read(new)
    fleet.finish(new, KEY)
    assert fleet.states(KEY) == {new.id: HELD, old.id: HELD}
    assert Nudge((KEY,)) in fleet.sent(old)
    fleet.read(old)  # it looks at upstream, tells what it has now, and is then told to delete it
    assert fleet.states(KEY) == {new.id: HELD}


def test_nudges_keep_their_distance():
    fleet, old, new = drained()
    fleet.upstream[KEY] = 8
    fleet.read(new)
    fleet.finish(new, KEY)
    fleet.tick(int(QUICK.nudge_gap_s) - 2)
    assert fleet.sent(old).count(Nudge((KEY,))) == 1
    fleet.tick(4)
    assert fleet.sent(old).count(Nudge((KEY,))) == 2


def test_nobody_is_nudged_for_a_copy_whose_worker_is_away():
    fleet, old, new = drained()
    fleet.cut(old)
    fleet.upstream[KEY] = 8
    fleet.read(new)
    fleet.finish(new, KEY)
    fleet.run(3 * int(QUICK.nudge_gap_s))
    assert not new.nudged
    fleet.connect(old)
    fleet.run(5)
    assert fleet.holders(KEY) == [new]


def test_a_copy_whose_digest_is_not_known_is_never_deleted():
    fleet, old, new = drained()
    old.disk[KEY] = fleet.upstream[KEY] = 0
    fleet.sync(old, KEY)
    fleet.read(new)
    fleet.finish(new, KEY)
    fleet.run(5)
    assert fleet.states(KEY) == {new.id: HELD, old.id: HELD}


def test_an_untrusted_worker_covers_nothing_but_the_witness_does():
    fleet, old, new = drained(trusted=False)
    fleet.read(new)
    fleet.finish(new, KEY)
    fleet.run(5)
    assert fleet.states(KEY) == {new.id: HELD, old.id: HELD}
    assert not old.nudged
    assert not new.nudged
    fleet.handle(WitnessHeld((HeldCopy(KEY, 99),)))
    assert fleet.states(KEY)[old.id] is HELD
    fleet.handle(WitnessHeld((HeldCopy(KEY, 7),)))
    assert fleet.states(KEY)[old.id] is LEAVING


@pytest.mark.parametrize("away", ["cut", "quarantined"])
def test_a_copy_on_a_worker_that_is_away_or_quarantined_covers_nothing(away):
    fleet, old, new = drained()
    fleet.read(new)
    fleet.cut(old)
    fleet.finish(new, KEY)
    if away == "cut":
        fleet.cut(new)
    else:
        fleet.handle(QuarantineAsked(new.id, "lied"))
    fleet.connect(old)
    fleet.work()
    assert old in fleet.holders(KEY)
    assert not deletes(fleet, old)


def test_a_copy_that_got_other_refs_before_it_was_deleted_stays_until_those_are_covered():
    fleet, old, new = drained()
    fleet.read(new)
    fleet.finish(new, KEY)
    (delete,) = deletes(fleet, old)
    assert delete.digests == (7,)
    old.disk[KEY] = fleet.upstream[KEY] = 8  # it synced; nobody else has this
    fleet.read(old, 1)
    fleet.read(old, 1)
    assert KEY in old.disk
    assert fleet.states(KEY) == {new.id: HELD, old.id: HELD}
    fleet.run(3)
    assert fleet.holders(KEY) == [new]
    assert new.disk[KEY] == 8


def test_a_clone_no_longer_wanted_is_stopped_not_deleted():
    fleet, old, new = drained()
    fleet.read(new)
    fleet.handle(DrainAsked(new.id))
    assert fleet.states(KEY)[new.id] is STOPPING
    assert fleet.sent(new)[-1] == Release((KEY,), delete=False)
    fleet.read(new)
    assert fleet.states(KEY) == {old.id: HELD}
    assert not new.clones


def test_a_clone_that_was_complete_when_told_to_stop_is_kept_as_held():
    fleet, old, new = drained()
    fleet.read(new)
    fleet.handle(DrainAsked(new.id))
    fleet.finish(new, KEY)  # before it read the command
    assert fleet.states(KEY)[new.id] is HELD
    fleet.read(new)
    assert fleet.states(KEY)[new.id] is HELD
    assert fleet.holders(KEY) == [old, new]


def test_wanted_again_while_it_stops_it_is_asked_anew():
    fleet, _old, new = drained()
    fleet.read(new)
    fleet.handle(DrainAsked(new.id))
    fleet.handle(DutyResumed(new.id))
    fleet.tick(2)
    assert fleet.should(KEY) == (new.id,)
    assert fleet.states(KEY)[new.id] is STOPPING
    fleet.run(3)
    assert fleet.states(KEY) == {new.id: HELD}


def test_wanted_again_while_it_is_deleted_it_is_cloned_anew():
    fleet, old, new = drained()
    fleet.read(new)
    fleet.finish(new, KEY)
    assert fleet.states(KEY)[old.id] is LEAVING
    fleet.handle(DutyResumed(old.id))
    fleet.tick(1)
    fleet.handle(DrainAsked(new.id))
    assert fleet.should(KEY) == (old.id,)
    fleet.read(old, 1)
    fleet.run(5)
    assert fleet.states(KEY) == {old.id: HELD}
    assert fleet.holders(KEY) == [old]


def test_what_leaves_the_catalog_is_deleted_everywhere_covered_or_not():
    fleet, _old, new = drained()
    fleet.read(new)
    fleet.catalog(removed=[KEY])
    fleet.work()
    assert fleet.states(KEY) == {}
    assert fleet.holders(KEY) == []


def test_what_is_planned_and_leaves_the_catalog_was_never_there():
    fleet = Fleet()
    fleet.join("only", capacity=None)
    many = [f"forge.example/{i}" for i in range(50)]
    fleet.catalog(*many)
    fleet.tick()
    planned = next(key for key in many if PLANNED in fleet.states(key).values())
    fleet.catalog(removed=[planned])
    assert fleet.states(planned) == {}


def test_of_two_replicas_only_one_is_told_that_it_polls():
    fleet = Fleet()
    fleet.catalog(*[CatalogRepo(RepoKey(f"forge.example/{i}"), replicas=2) for i in range(40)])
    for name in "abc":
        fleet.join(name)
    for _ in range(30):  # little by little: roles change while copies are asked for
        fleet.tick()
        for worker in fleet.workers:
            fleet.read(worker)
            for key in list(worker.clones)[:3]:
                fleet.finish(worker, key)
        for worker in fleet.workers:
            fleet.read(worker)
        for i in range(40):
            told = [w.id for w in fleet.workers if w.roles.get(RepoKey(f"forge.example/{i}"))]
            assert len(told) <= 1
    assert fleet.machine.totals().moving == 0


def test_a_follower_takes_over_when_the_primary_falls_silent():
    fleet = Fleet()
    first, second, _ = (fleet.join(name) for name in "abc")
    fleet.catalog(CatalogRepo(KEY, replicas=2, pins=("a", "b")))
    fleet.run(5)
    assert first.roles[KEY]
    assert not second.roles[KEY]
    fleet.cut(first)
    fleet.run(40)
    assert second.roles[KEY]
    fleet.connect(first)
    fleet.run(2)
    assert first.roles[KEY]
    assert not second.roles[KEY]


@pytest.mark.parametrize("leave", [Fleet.cut, Fleet.reboot])
def test_a_follower_that_missed_a_change_while_it_was_away_looks_when_it_is_back(leave):
    fleet = Fleet()
    first, second, _ = (fleet.join(name) for name in "abc")
    fleet.catalog(CatalogRepo(KEY, replicas=2, pins=("a", "b")))
    fleet.run(5)
    leave(fleet, second)
    fleet.connect(second)
    fleet.run(2)
    assert not second.nudged, "nothing was missed"
    leave(fleet, second)
    fleet.upstream[KEY] = 8
    fleet.sync(first, KEY)
    fleet.connect(second)
    fleet.run(2)
    assert KEY in second.nudged
    assert (second.disk[KEY], first.nudged) == (8, [])


def test_a_worker_that_was_down_and_heard_again_in_the_same_session_polls_what_only_it_holds():
    fleet = Fleet()
    only, other = fleet.join("a"), fleet.join("b", trusted=False)
    fleet.catalog(CatalogRepo(KEY, trusted_only=True))
    fleet.run(5)
    for _ in range(700):  # silent, but never cut
        fleet.time_s += 1
        fleet.beat(other)
        fleet.handle(Ticked())
    fleet.read(only)
    assert fleet.repo(KEY).no_room
    assert not only.roles[KEY]
    only.accepting = False  # so that it is not given the repo again, either
    fleet.beat(only)
    fleet.read(only)
    assert only.roles[KEY]


def test_what_became_private_is_kept_by_an_untrusted_worker_that_looks_no_more():
    fleet = Fleet()
    only = fleet.join("a", trusted=False)
    fleet.catalog(KEY)
    fleet.run(5)
    assert only.roles[KEY]
    fleet.catalog(CatalogRepo(KEY, trusted_only=True))
    fleet.run(5)
    assert not only.roles.get(KEY)
    assert fleet.holders(KEY) == [only]
    fleet.reboot(only)
    fleet.run(5)
    assert not only.roles.get(KEY)
    trusted = fleet.join("b", trusted=True)
    fleet.run(5)
    assert trusted.roles[KEY]
    assert not any(isinstance(c, Assign) and c.items for c in fleet.sent(only)[1:])


def test_a_suspect_that_still_reports_polls_again_once_it_is_heard():
    fleet = Fleet()
    only = fleet.join("a")
    fleet.catalog(KEY)
    fleet.tick()
    fleet.read(only)
    for _ in range(60):  # no heartbeats, but its connection stands
        fleet.time_s += 1
        fleet.handle(Ticked())
    fleet.finish(only, KEY)
    fleet.read(only)
    assert fleet.view(only).record.status == "suspect"
    assert not only.roles[KEY]
    fleet.run(2)
    assert only.roles[KEY]


def test_a_copy_told_complete_twice_or_for_an_unknown_repo_changes_nothing():
    fleet, old, _new = held_by_one()
    before = fleet.states(KEY)
    fleet.sync(old, KEY)
    for key in (KEY, RepoKey("forge.example/unknown")):
        id_ = ReportId(old.id, old.session, 1, old.seq + 1)
        old.seq += 1
        fleet.handle(CopiesVerified(id_, (HeldCopy(key, 7),)))
    assert fleet.states(KEY) == before
    assert fleet.machine.repo(RepoKey("forge.example/unknown")) is None


def test_a_role_told_is_not_told_again():
    fleet, old, _new = held_by_one()
    fleet.run(20)
    assert len([c for c in fleet.sent(old) if isinstance(c, Assign)]) == 1


# Where people read


REPOS = [RepoKey(f"forge.example/r{n}") for n in range(20)]


def joined_by_another(**facts):
    """``own``, from whose machine people read, held everything when ``new`` joined and got its share."""
    fleet = Fleet()
    own = fleet.join("own", serves=True, **facts)
    fleet.catalog(*REPOS)
    fleet.run(3)
    own.accepting = False  # its disk is above the mark, as it was when somebody thought of a second worker
    new = fleet.join("new")
    fleet.run(10)
    moved = [key for key in REPOS if new.id in fleet.states(key)]
    assert 0 < len(moved) < len(REPOS)
    return fleet, own, new, moved


def test_a_worker_that_joins_takes_nothing_away_from_where_people_read():
    fleet, own, new, moved = joined_by_another()
    for key in moved:
        assert fleet.states(key) == {own.id: HELD, new.id: HELD}
        assert fleet.repo(key).primary == new.id
        assert not own.roles[key], "it follows"
    assert set(own.disk) == set(REPOS)
    assert not deletes(fleet, own)


def test_what_stays_where_people_read_is_not_on_the_move():
    fleet, _own, _, moved = joined_by_another()
    assert fleet.machine.totals().moving == 0
    assert fleet.machine.moves(10, public=False).total == 0
    assert any("as people read from this machine" in line for line in fleet.machine.explain(moved[0]))


def test_what_stays_where_people_read_is_there_when_the_other_worker_goes_down():
    fleet, own, new, moved = joined_by_another()
    fleet.cut(new)
    asked = len(fleet.sent(own))
    fleet.run(int(QUICK.grace_s) + 60)
    assert set(own.disk) == set(REPOS)
    assert all(fleet.repo(key).primary == own.id for key in moved)
    assert not [
        c for c in fleet.sent(own)[asked:] if isinstance(c, Assign) and any(i.orphan for i in c.items)
    ]


def test_who_drains_the_worker_where_people_read_means_it():
    fleet, own, new, _moved = joined_by_another()
    fleet.handle(DrainAsked(own.id))
    fleet.run(20)
    assert own.disk == {}
    assert set(new.disk) == set(REPOS)


def test_it_deletes_what_left_the_catalog_where_people_read_too():
    fleet, own, _new, moved = joined_by_another()
    fleet.catalog(removed=[moved[0]])
    fleet.run(5)
    assert moved[0] not in own.disk
