"""What a worker tells against what was known: its disk is the truth."""

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import AlertKind, CompareRanges
from evermirror.core.fleet.events import DrainAsked
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from tests.support.fleet import QUICK, Fleet

KEYS = [RepoKey(f"forge.example/{i}") for i in range(8)]
HELD, PLANNED, ASKED = CopyState.HELD, CopyState.PLANNED, CopyState.ASKED


def settled(workers=2, settings=QUICK):
    fleet = Fleet(settings)
    for i in range(workers):
        fleet.join(f"w{i}")
    fleet.catalog(*KEYS)
    fleet.run(8)
    assert fleet.machine.totals().moving == 0
    return fleet


def test_what_is_gone_from_the_disk_is_cloned_again():
    fleet = settled()
    worker = fleet.workers[0]
    lost = next(iter(worker.disk))
    fleet.reboot(worker, lost=[lost])
    fleet.connect(worker)
    assert fleet.should(lost) == (worker.id,)
    assert fleet.states(lost)[worker.id] in (PLANNED, ASKED)
    fleet.run(3)
    assert lost in worker.disk


def test_what_was_complete_unknown_to_us_is_held_and_not_asked_again():
    fleet = Fleet()
    worker = fleet.join("only")
    fleet.catalog(KEYS[0])
    fleet.tick()
    fleet.read(worker)
    fleet.cut(worker)
    fleet.finish(worker, KEYS[0])  # its report stays with it
    worker.reports.clear()  # … and is lost with its file
    fleet.reboot(worker)
    fleet.connect(worker)
    assert fleet.states(KEYS[0]) == {worker.id: HELD}
    assert fleet.machine.workers()[0].asked == 0


def test_what_nobody_placed_there_is_kept_until_it_is_covered():
    fleet = settled()
    first, second = fleet.workers
    key = next(iter(first.disk))
    fleet.reboot(second)
    second.disk[key] = 9  # not what the first one has
    fleet.connect(second)
    (found,) = [c for c in fleet.repo(key).copies if c.worker == second.id]
    assert (found.rank, found.state, found.reason) == (None, HELD, Reason.FOUND)
    fleet.run(3)
    assert key not in second.disk  # nudged, they agreed
    assert key in first.disk


def test_a_stray_is_counted_told_and_left_alone():
    fleet = settled()
    worker = fleet.workers[0]
    fleet.reboot(worker)
    worker.disk[RepoKey("forge.example/never-heard-of")] = 3
    fleet.connect(worker)
    fleet.run(3)
    assert fleet.view(worker).strays == 1
    assert [(a.kind, a.facts) for a in fleet.alerts()] == [(AlertKind.STRAY, {"count": "1"})]
    assert RepoKey("forge.example/never-heard-of") in worker.disk


def test_what_left_the_catalog_while_it_was_away_is_deleted_when_it_is_back():
    fleet = settled()
    worker = fleet.workers[0]
    key = next(iter(worker.disk))
    fleet.cut(worker)
    fleet.catalog(removed=[key])
    fleet.connect(worker)
    fleet.run(2)
    assert key not in worker.disk


def test_an_older_report_sent_again_does_not_hide_that_the_disk_lost_it_since():
    """Reports not acknowledged come before the telling; only the telling says what is there now."""
    fleet = settled()
    worker = fleet.workers[0]
    key = next(iter(worker.disk))
    fleet.cut(worker)
    fleet.sync(worker, key)  # its report waits with it
    fleet.reboot(worker, lost=[key])
    fleet.connect(worker)
    assert fleet.states(key)[worker.id] in (PLANNED, ASKED)
    fleet.run(3)
    assert key in worker.disk


def test_a_telling_that_broke_off_says_nothing_of_what_was_not_told():
    fleet = settled(workers=1)
    worker = fleet.workers[0]
    fleet.reboot(worker)
    fleet.connect(worker, tells=False)
    fleet.tell(worker, all_of_it=False)
    assert all(fleet.states(key) == {worker.id: HELD} for key in KEYS)
    fleet.cut(worker)
    fleet.connect(worker)
    assert fleet.machine.totals().moving == 0


def test_what_a_full_worker_lost_goes_to_somebody_with_room():
    """It was accepting no more before it lost it, so that no change of that is ever told."""
    fleet = settled()
    worker, other = fleet.workers
    worker.accepting = False
    fleet.beat(worker)
    lost = next(iter(worker.disk))
    fleet.reboot(worker, lost=[lost])
    fleet.connect(worker)
    assert fleet.should(lost) == (other.id,)
    fleet.run(3)
    assert fleet.holders(lost) == [other]


def test_a_silence_while_it_tells_does_not_count_clones_of_an_earlier_session():
    """They would be counted for ever, and fewer would be asked of it."""
    fleet = Fleet()
    worker, other = fleet.join("a"), fleet.join("b")
    fleet.join("c")
    fleet.catalog(*KEYS)
    fleet.tick()
    fleet.read(worker)
    assert fleet.view(worker).asked > 0
    for key in tuple(worker.clones):
        worker.disk[key] = 7
    fleet.reboot(worker)
    fleet.connect(worker, tells=False)
    worker.connected = False
    fleet.run(40)
    assert fleet.view(worker).record.status == "suspect"
    worker.connected = True
    fleet.beat(worker)
    fleet.tell(worker)
    assert fleet.view(worker).asked == fleet.machine._pace.outstanding(worker.id) == 0
    assert other.connected


# The full comparison

OFTEN = FleetSettings(warm_up_s=0.0, rebalance_gap_s=0.0, compare_every_s=20.0)


def compared(fleet, worker):
    return [c for c in fleet.sent(worker) if isinstance(c, CompareRanges)]


def test_what_silently_got_lost_is_found_by_the_comparison():
    fleet = settled(settings=OFTEN)
    worker = fleet.workers[0]
    lost = next(iter(worker.disk))
    del worker.disk[lost]
    fleet.run(60)
    assert compared(fleet, worker)
    assert lost in worker.disk


def test_what_silently_appeared_or_changed_is_found_by_the_comparison():
    fleet = settled(settings=OFTEN)
    first, second = fleet.workers
    key = next(iter(first.disk))
    second.disk[key] = 7
    changed = next(iter(second.disk))
    second.disk[changed] = fleet.upstream[changed] = 12
    fleet.run(60)
    assert fleet.holders(key) == [first]
    assert fleet.repo(changed).copies[0].digest == 12


def test_where_both_agree_nothing_follows_from_a_comparison():
    fleet = settled(settings=OFTEN)
    writes = sum(len(d.writes) for d in fleet.decisions)
    fleet.run(60)
    assert all(compared(fleet, worker) for worker in fleet.workers)
    assert sum(len(d.writes) for d in fleet.decisions) == writes


def test_a_comparison_leaves_alone_what_waits_for_its_own_answer():
    fleet = settled(settings=OFTEN)
    first, second = fleet.workers
    key = next(iter(first.disk))
    fleet.handle(DrainAsked(first.id))
    fleet.read(second)
    for clone in tuple(second.clones):
        fleet.finish(second, clone)
    assert fleet.states(key)[first.id] is CopyState.LEAVING
    fleet.tick(60)  # the deletion lies unread before the comparison
    assert fleet.states(key)[first.id] is CopyState.LEAVING
    fleet.read(first)
    assert fleet.holders(key) == [second]
    assert first.id not in fleet.states(key)
