"""When something is placed: at once, together, later, or not at all."""

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import AlertKind
from evermirror.core.fleet.events import CatalogRepo
from evermirror.core.fleet.placing import BARRED_S
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts
from tests.support.fleet import QUICK, Fleet

KEYS = [RepoKey(f"forge.example/{i}") for i in range(60)]


def settled(*names, settings=QUICK, keys=KEYS):
    fleet = Fleet(settings)
    for name in names:
        fleet.join(name)
    fleet.catalog(*keys)
    fleet.run(10)
    return fleet


def should(fleet):
    return {key: fleet.should(key) for key in KEYS}


def no_room_alerts(fleet):
    told = [a for a in fleet.alerts() if a.kind is AlertKind.NO_ROOM]
    assert all(a.over or a.text.startswith(f"{a.facts['count']} repos wait") for a in told)
    return [a.over for a in told]


# The warm-up


def test_nothing_is_placed_while_the_fleet_warms_up():
    fleet = Fleet(FleetSettings(warm_up_s=10.0))
    fleet.catalog(*KEYS)
    fleet.join("a")
    fleet.run(9)
    assert fleet.machine.totals().warming
    assert fleet.machine.totals().owned == 0
    fleet.join("b")
    fleet.run(5)
    assert all(len(worker.disk) > 10 for worker in fleet.workers)
    assert not fleet.machine.totals().warming


def test_enough_workers_end_the_warm_up_early():
    fleet = Fleet(FleetSettings(warm_up_s=600.0, min_workers=2))
    fleet.catalog(*KEYS)
    fleet.join("a")
    fleet.run(3)
    assert fleet.machine.totals().warming
    fleet.join("b")
    fleet.run(1)
    assert fleet.machine.totals().owned == len(KEYS)


def test_a_placement_known_from_before_needs_no_warm_up_and_is_not_reshuffled():
    fleet = settled("a", "b", settings=FleetSettings(warm_up_s=5.0))
    before, clones = should(fleet), [set(worker.disk) for worker in fleet.workers]
    fleet.restart()
    assert not fleet.machine.totals().warming
    for worker in fleet.workers:
        fleet.connect(worker)
    fleet.run(30)
    assert should(fleet) == before
    assert [set(worker.disk) for worker in fleet.workers] == clones


# Joins


def test_a_join_moves_its_share_and_little_else():
    fleet = settled("a", "b", "c")
    before = should(fleet)
    new = fleet.join("d")
    fleet.run(10)
    moved = [key for key in KEYS if should(fleet)[key] != before[key]]
    why = {key: fleet.repo(key).copies[0].reason for key in moved}
    assert all(
        why[key] is Reason.SHED or (fleet.should(key), why[key]) == ((new.id,), Reason.JOINED)
        for key in moved
    )
    assert 10 <= len(moved) <= 1.15 * len(KEYS) / 4


def test_joins_close_together_are_one_change():
    fleet = settled("a", settings=FleetSettings(warm_up_s=0.0, rebalance_gap_s=20.0))
    fleet.tick(30)
    fleet.join("b")
    fleet.tick(2)
    assert fleet.view(fleet.workers[1]).wanted > 0
    fleet.join("c")
    fleet.tick(5)
    fleet.join("d")
    fleet.tick(5)
    assert [fleet.view(w).wanted for w in fleet.workers[2:]] == [0, 0]
    fleet.tick(15)
    assert all(fleet.view(w).wanted > 10 for w in fleet.workers[2:])


def test_a_worker_is_given_its_share_only_when_it_told_what_it_holds():
    fleet = settled("a")
    late = fleet.join("b")
    fleet.reboot(late)
    fleet.connect(late, tells=False)
    fleet.tick(5)
    assert fleet.view(late).wanted == 0
    fleet.tell(late)
    fleet.tick(2)
    assert fleet.view(late).wanted > 10


# No room


def test_what_nobody_can_take_waits_visibly_and_is_tried_when_there_is_room():
    fleet = Fleet()
    fleet.join("a", capacity=20)
    fleet.catalog(*KEYS)
    fleet.run(10)
    assert fleet.machine.totals().no_room == 40
    assert no_room_alerts(fleet) == [False]
    quiet = len([d for d in fleet.decisions if d.writes])
    fleet.run(50)
    assert len([d for d in fleet.decisions if d.writes]) == quiet  # nothing spins
    fleet.join("b")
    fleet.run(10)
    assert fleet.machine.totals().no_room == 0
    assert no_room_alerts(fleet) == [False, True]


def test_room_that_a_removal_leaves_is_used():
    fleet = Fleet()
    fleet.join("a", capacity=20)
    fleet.catalog(*KEYS[:25])
    fleet.run(10)
    gone = [key for key in KEYS[:25] if fleet.should(key)][:5]
    fleet.catalog(removed=gone)
    fleet.run(10)
    assert fleet.machine.totals().no_room == 0


def test_a_repo_for_trusted_workers_waits_for_one():
    fleet = Fleet()
    fleet.join("a", trusted=False)
    fleet.catalog(CatalogRepo(KEYS[0], trusted_only=True), KEYS[1])
    fleet.run(5)
    assert fleet.repo(KEYS[0]).no_room
    assert not fleet.repo(KEYS[1]).no_room
    trusted = fleet.join("b")
    fleet.run(5)
    assert fleet.should(KEYS[0]) == (trusted.id,)


# Handed back


def test_handed_back_it_goes_to_another_with_a_salt_and_not_here_again_for_a_while():
    fleet = Fleet()
    first, second = fleet.join("a"), fleet.join("b")
    fleet.catalog(*KEYS)
    fleet.tick()
    fleet.read(first)
    key = next(iter(first.clones))
    fleet.finish(first, key, room=False)
    (copy,) = fleet.repo(key).copies
    assert (copy.worker, copy.reason) == (second.id, Reason.REHASHED)
    assert fleet.repo(key).salt == fleet.store.salts[key] == 1
    fleet.run(5)
    assert fleet.holders(key) == [second]


def test_handed_back_by_all_it_waits_and_is_offered_again_after_a_while():
    fleet = Fleet()
    worker = fleet.join("a")
    fleet.catalog(KEYS[0])
    fleet.tick()
    fleet.read(worker)
    fleet.finish(worker, KEYS[0], room=False)
    fleet.tick(5)
    assert fleet.repo(KEYS[0]).no_room
    assert fleet.repo(KEYS[0]).copies == ()
    fleet.tick(int(BARRED_S / 9) - 2, gap_s=9.0)
    assert fleet.repo(KEYS[0]).no_room
    fleet.run(5, gap_s=9.0)
    assert fleet.holders(KEYS[0]) == [worker]
    assert no_room_alerts(fleet) == [False, True]


def test_what_is_handed_back_though_it_is_not_known_there_is_ignored():
    fleet = settled("a", "b")
    worker = fleet.workers[0]
    worker.clones[RepoKey("forge.example/unknown")] = None
    fleet.finish(worker, RepoKey("forge.example/unknown"), room=False)
    assert fleet.machine.totals().moving == 0


# Holes


def test_more_replicas_add_copies_and_fewer_take_them_away():
    fleet = settled("a", "b", "c")
    fleet.catalog(CatalogRepo(KEYS[0], replicas=3))
    fleet.run(5)
    assert len(fleet.holders(KEYS[0])) == 3
    first = fleet.should(KEYS[0])[0]
    fleet.catalog(KEYS[0])
    fleet.run(5)
    assert [w.id for w in fleet.holders(KEYS[0])] == [first]


def test_pins_move_a_repo_to_those_named():
    fleet = settled("a", "b", "c")
    for name, worker in zip("abc", fleet.workers, strict=True):
        fleet.catalog(CatalogRepo(KEYS[0], pins=(name, "nobody")))
        fleet.run(5)
        assert fleet.holders(KEYS[0]) == [worker]
    fleet.catalog(KEYS[0])
    fleet.run(5)
    assert fleet.holders(KEYS[0]) == [fleet.workers[2]]  # nothing calls it away


def test_a_worker_that_takes_a_pinned_name_is_given_what_is_pinned_to_it():
    fleet = settled("a", "b")
    fleet.catalog(CatalogRepo(KEYS[0], pins=("z",)))
    worker = next(w for w in fleet.workers if KEYS[0] not in w.disk)
    fleet.reboot(worker)
    worker.facts = WorkerFacts("z", trusted=True)
    fleet.connect(worker)
    fleet.run(5)
    assert fleet.holders(KEYS[0]) == [worker]


def test_a_repo_that_is_put_twice_at_once_is_one_repo():
    fleet = settled("a", "b", keys=())
    fleet.catalog(KEYS[0], CatalogRepo(KEYS[0], replicas=2), KEYS[1])
    fleet.run(5)
    assert len(fleet.holders(KEYS[0])) == 2
    assert fleet.machine.totals().repos == 2


def test_holes_of_a_placement_from_before_are_filled_after_a_restart():
    fleet = settled("a", "b")
    lost = [at for at in fleet.store.copies if at[0] == KEYS[0]]
    del fleet.store.copies[lost[0]]
    fleet.restart()
    for worker in fleet.workers:
        worker.disk.pop(KEYS[0], None)
        fleet.connect(worker)
    fleet.run(20)
    assert len(fleet.holders(KEYS[0])) == 1
    assert fleet.repo(KEYS[0]).copies[0].state is CopyState.HELD


def test_rows_of_workers_that_nobody_knows_are_left_out_at_a_start():
    fleet = settled("a", "b")
    gone = fleet.workers.pop(0)
    del fleet.store.workers[gone.id]
    fleet.restart()
    fleet.connect(fleet.workers[0])
    fleet.run(30)
    assert set(fleet.workers[0].disk) == set(KEYS)
