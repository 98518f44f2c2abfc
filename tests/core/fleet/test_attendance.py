"""Who is alive, suspect and down, as the whole machine sees it."""

from evermirror.core.fleet.decisions import AlertKind
from evermirror.core.fleet.events import BrakeOverruled, Ticked
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from tests.support.fleet import Fleet

# Suspect after 2 × (2 + 2) s at most, down 10 s later.
SHORT = FleetSettings(warm_up_s=0.0, rebalance_gap_s=0.0, heartbeat_s=2.0, max_missed=2, grace_s=10.0)
KEYS = [RepoKey(f"forge.example/{i}") for i in range(20)]


def fleet_of(count, settings=SHORT):
    fleet = Fleet(settings)
    for i in range(count):
        fleet.join(f"w{i}")
    fleet.catalog(*KEYS)
    fleet.run(10)
    return fleet


def statuses(fleet):
    return [view.record.status for view in fleet.machine.workers()]


def brake_alerts(fleet):
    return [a.over for a in fleet.alerts() if a.kind is AlertKind.BRAKE]


def test_silence_makes_suspect_and_then_down():
    fleet = fleet_of(3)
    fleet.cut(fleet.workers[0])
    fleet.tick(5)
    assert statuses(fleet)[0] == "alive"
    fleet.tick(4)
    assert statuses(fleet)[0] == "suspect"
    fleet.tick(6)
    assert statuses(fleet)[0] == "suspect"
    fleet.tick(6)
    assert statuses(fleet)[0] == "down"


def test_a_coordinator_that_slept_for_an_hour_suspects_nobody():
    fleet = fleet_of(3)
    fleet.time_s += 3600
    fleet.handle(Ticked())
    fleet.time_s += 1
    fleet.handle(Ticked())
    assert statuses(fleet) == ["alive"] * 3


def test_a_grace_is_not_over_by_sleeping_through_it():
    fleet = fleet_of(3)
    fleet.cut(fleet.workers[0])
    fleet.tick(9)
    fleet.tick(1, gap_s=3600.0)
    assert statuses(fleet)[0] == "suspect"


def test_when_most_fall_silent_nobody_is_declared_down():
    fleet = fleet_of(4)
    for worker in fleet.workers[:3]:
        fleet.cut(worker)
    fleet.tick(100)
    assert statuses(fleet) == ["suspect"] * 3 + ["alive"]
    assert brake_alerts(fleet) == [False]
    assert fleet.machine.totals().braked


def test_when_some_come_back_the_grace_of_the_others_begins_anew():
    fleet = fleet_of(4)
    for worker in fleet.workers[:3]:
        fleet.cut(worker)
    fleet.tick(100)
    fleet.connect(fleet.workers[0])
    assert brake_alerts(fleet) == [False, True]
    fleet.tick(8)
    assert statuses(fleet)[1:3] == ["suspect"] * 2
    fleet.tick(4)
    assert statuses(fleet) == ["alive", "down", "down", "alive"]


def test_overruled_those_whose_grace_is_over_are_down():
    fleet = fleet_of(4)
    for worker in fleet.workers[:3]:
        fleet.cut(worker)
    fleet.tick(100)
    fleet.handle(BrakeOverruled())
    assert statuses(fleet) == ["down"] * 3 + ["alive"]
    fleet.run(10)
    assert fleet.machine.totals().held == len(KEYS)
    assert set(fleet.workers[3].disk) == set(KEYS)


def test_overruled_before_a_grace_is_over_it_is_waited_for():
    fleet = fleet_of(4)
    for worker in fleet.workers[:3]:
        fleet.cut(worker)
    fleet.tick(9)
    fleet.handle(BrakeOverruled())
    assert statuses(fleet) == ["suspect"] * 3 + ["alive"]
    fleet.tick(12)
    assert statuses(fleet) == ["down"] * 3 + ["alive"]


def test_the_only_worker_is_never_declared_down_by_itself():
    fleet = fleet_of(1)
    fleet.cut(fleet.workers[0])
    fleet.tick(100)
    assert statuses(fleet) == ["suspect"]
    fleet.connect(fleet.workers[0])
    assert statuses(fleet) == ["alive"]
    assert not fleet.machine.totals().braked


def test_a_suspect_that_retires_releases_the_brake():
    fleet = fleet_of(3)
    gone, also = fleet.workers[:2]
    fleet.cut(gone)
    fleet.cut(also)
    fleet.tick(9)
    assert fleet.machine.totals().braked
    fleet.retire(gone)
    assert not fleet.machine.totals().braked
    fleet.tick(12)
    assert statuses(fleet) == ["down", "alive"]


def test_each_suspicion_is_a_flap_but_not_while_the_brake_is_on():
    fleet = fleet_of(4)
    fleet.cut(fleet.workers[0])
    fleet.tick(9)
    assert fleet.view(fleet.workers[0]).record.flap_score == 1.0
    for worker in fleet.workers[1:3]:
        fleet.cut(worker)
    fleet.tick(9)
    assert fleet.machine.totals().braked
    assert [fleet.view(w).record.flap_score for w in fleet.workers[1:]] == [0.0] * 3


def test_ups_and_downs_are_remembered():
    fleet = fleet_of(3)
    worker = fleet.workers[0]
    fleet.cut(worker)
    fleet.tick(30)
    fleet.connect(worker)
    record = fleet.view(worker).record
    assert [word for _, word in record.history] == ["joined", "suspect", "down", "up"]
    assert fleet.store.workers[worker.id] == record


def test_after_a_restart_everybody_is_expected_and_the_silent_fall_once():
    fleet = fleet_of(4)
    fleet.cut(fleet.workers[0])
    fleet.tick(9)
    before = {key: fleet.should(key) for key in KEYS}
    fleet.restart()
    for worker in fleet.workers[1:]:
        fleet.connect(worker)
    fleet.tick(5)
    assert {key: fleet.should(key) for key in KEYS} == before
    fleet.tick(5)
    assert fleet.view(fleet.workers[0]).record.flap_score == 1.0
    fleet.tick(12)
    assert statuses(fleet) == ["down", "alive", "alive", "alive"]


def test_who_was_down_before_a_restart_is_down_after_it():
    fleet = fleet_of(3)
    fleet.cut(fleet.workers[0])
    fleet.tick(30)
    fleet.restart()
    for worker in fleet.workers[1:]:
        fleet.connect(worker)
    fleet.run(5)
    assert statuses(fleet) == ["down", "alive", "alive"]
    fleet.connect(fleet.workers[0])
    fleet.run(10)
    assert statuses(fleet) == ["alive"] * 3
    assert fleet.workers[0].disk
