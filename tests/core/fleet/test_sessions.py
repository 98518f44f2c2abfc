"""Connections: who may speak, what goes on and what begins anew."""

import pytest

from evermirror.core.fleet import sessions
from evermirror.core.fleet.decisions import AckReports, Other, Refuse, Send, Undelivered, Welcome
from evermirror.core.fleet.events import (
    CommandGiven,
    CommandsAcked,
    CopiesDropped,
    DrainAsked,
    HeartbeatHeard,
    HeldTold,
    OtherReported,
    ReportId,
    WorkerDisconnected,
)
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from tests.support.fleet import Fleet

KEY = RepoKey("forge.example/one")


def only(fleet, kind):
    return [a for a in fleet.decisions[-1].actions if isinstance(a, kind)]


def one_worker():
    fleet = Fleet()
    worker = fleet.join("ann")
    fleet.catalog(KEY)
    fleet.run(3)
    return fleet, worker


def test_ids_are_the_lowest_that_are_free():
    fleet = Fleet()
    ann, bob, cid = (fleet.join(name) for name in ("ann", "bob", "cid"))
    assert [w.id for w in (ann, bob, cid)] == [0, 1, 2]
    fleet.retire(bob)
    assert fleet.join("dan").id == 1


def test_the_same_process_on_both_sides_goes_on_where_it_was():
    fleet, worker = one_worker()
    fleet.cut(worker)
    fleet.connect(worker)
    assert fleet.machine.workers()[0].reconciled
    assert any(a.resumed for d in fleet.decisions[-1:] for a in d.actions if isinstance(a, Welcome))


@pytest.mark.parametrize("which", ["worker", "coordinator"])
def test_another_process_on_either_side_begins_anew(which):
    fleet, worker = one_worker()
    if which == "worker":
        fleet.reboot(worker)
    else:
        fleet.restart()
    fleet.connect(worker, tells=False)
    (welcome,) = [a for a in fleet.decisions[-1].actions if isinstance(a, Welcome)]
    assert (welcome.worker, welcome.resumed) == (worker.id, False)
    assert not fleet.machine.workers()[0].reconciled


def test_a_session_that_broke_before_all_was_told_is_followed_by_a_fresh_one():
    fleet, worker = one_worker()
    fleet.reboot(worker)
    fleet.connect(worker, tells=False)
    fleet.cut(worker)
    fleet.connect(worker, tells=False)
    (welcome,) = only(fleet, Welcome)
    assert not welcome.resumed


def test_a_worker_that_saw_more_than_was_sent_begins_anew():
    fleet, worker = one_worker()
    fleet.cut(worker)
    worker.seen += 5
    fleet.connect(worker, tells=False)
    (welcome,) = only(fleet, Welcome)
    assert not welcome.resumed


def test_a_worker_that_spoke_with_another_coordinator_meanwhile_begins_anew():
    fleet, worker = one_worker()
    fleet.cut(worker)
    worker.epoch += 1
    fleet.connect(worker, tells=False)
    (welcome,) = only(fleet, Welcome)
    assert not welcome.resumed


def test_resumed_what_it_has_not_seen_is_sent_again_in_order():
    fleet, worker = one_worker()
    for n in range(3):
        fleet.handle(CommandGiven(worker.id, n))
    fleet.read(worker, 1)
    fleet.cut(worker)
    fleet.connect(worker)
    again = only(fleet, Send)
    assert [a.command for a in again] == [Other(1), Other(2)]
    assert all(a.session == worker.session for a in again)
    fleet.read(worker)
    assert worker.others == [0, 1, 2]


def test_begun_anew_commands_from_outside_are_told_back_and_the_rest_is_forgotten():
    fleet, worker = one_worker()
    fleet.handle(CommandGiven(worker.id, "hello"))
    fleet.reboot(worker)
    fleet.connect(worker)
    told = [a for d in fleet.decisions for a in d.actions if isinstance(a, Undelivered)]
    assert told == [Undelivered(worker.id, "hello")]
    assert not worker.commands or worker.commands[0][0] == 1


@pytest.mark.parametrize("state", ["away", "telling", "unknown"])
def test_a_command_for_a_worker_that_cannot_get_it_comes_back(state):
    fleet, worker = one_worker()
    fleet.reboot(worker)
    if state == "telling":
        fleet.connect(worker, tells=False)
    who = 77 if state == "unknown" else worker.id
    fleet.handle(CommandGiven(who, "hello"))
    assert fleet.decisions[-1].actions == (Undelivered(who, "hello"),)


def test_who_reads_nothing_gets_no_more_than_its_outbox_and_all_of_it_later():
    fleet = Fleet(FleetSettings(warm_up_s=0.0, rebalance_gap_s=0.0, outbox_max=16))
    worker, other = fleet.join("ann"), fleet.join("bob")
    fleet.catalog(*[f"forge.example/{i}" for i in range(40)])
    fleet.run(10)
    for n in range(40):
        fleet.handle(CommandGiven(worker.id, n))
    assert len(worker.commands) < 16
    fleet.handle(DrainAsked(worker.id))
    fleet.read(other)
    for key in tuple(other.clones):
        fleet.finish(other, key)
    assert len(worker.commands) <= 16
    fleet.run(10)
    assert not worker.disk
    assert len(other.disk) == 40


def test_two_workers_cannot_have_one_name():
    fleet = Fleet()
    fleet.join("ann")
    second = fleet.join("ann")
    (refused,) = only(fleet, Refuse)
    assert "another worker has the name 'ann'" in refused.reason
    assert second.id is None


def test_a_worker_may_take_another_name_that_is_free():
    fleet, worker = one_worker()
    fleet.reboot(worker)
    worker.facts = type(worker.facts)("anna", trusted=True)
    assert fleet.connect(worker)
    assert fleet.machine.workers()[0].record.facts.name == "anna"
    fleet.join("ann")
    assert len(fleet.machine.workers()) == 2


@pytest.mark.parametrize("name", ["x" * 256, "ann\n", "\x1b[2Jann", "\u202eann"])
def test_a_name_that_people_cannot_read_is_refused(name):
    fleet = Fleet()
    assert fleet.join(name).id is None
    (refused,) = only(fleet, Refuse)
    assert "printable letters" in refused.reason


def test_a_retired_worker_is_refused():
    fleet, worker = one_worker()
    fleet.retire(worker)
    fleet.workers.append(worker)
    assert not fleet.connect(worker)
    (refused,) = only(fleet, Refuse)
    assert "retired" in refused.reason


def test_when_all_ids_are_taken_a_newcomer_is_refused(monkeypatch):
    monkeypatch.setattr(sessions, "WORKERS_MAX", 1)
    fleet, _ = one_worker()
    fleet.join("bob")
    (refused,) = only(fleet, Refuse)
    assert "retire" in refused.reason
    assert len(fleet.machine.workers()) == 1


def test_an_older_connection_is_refused_and_its_events_mean_nothing():
    fleet, worker = one_worker()
    old = worker.session
    fleet.cut(worker, noticed=False)
    fleet.connect(worker)
    before = len(fleet.store.reports)
    for event in (
        HeartbeatHeard(worker.id, old, accepting=False),
        CommandsAcked(worker.id, old, 1),
        HeldTold(worker.id, old, (), last=True),
        CopiesDropped(ReportId(worker.id, old, 1, worker.seq + 1), (KEY,)),
        WorkerDisconnected(worker.id, old),
    ):
        decision = fleet.handle(event)
        assert decision.writes == ()
        assert decision.actions == ()
    view = fleet.machine.workers()[0]
    assert view.connected
    assert view.accepting
    assert view.held == 1
    assert len(fleet.store.reports) == before
    fleet.sessions = old - 1
    worker.connected = False
    assert not fleet.connect(worker)


# Reports


def test_a_report_is_taken_once_and_its_number_is_written_with_it():
    fleet, worker = one_worker()
    fleet.report(worker, OtherReported)
    (taken,) = fleet.decisions[-1].writes
    assert (taken.worker, taken.seq) == (worker.id, worker.seq)
    again = fleet.handle(OtherReported(ReportId(worker.id, worker.session, 1, worker.seq)))
    assert again.writes == ()
    assert [a.seq for a in again.actions if isinstance(a, AckReports)] == [worker.seq]


def test_a_gap_is_answered_with_the_last_that_is_known():
    fleet, worker = one_worker()
    decision = fleet.handle(CopiesDropped(ReportId(worker.id, worker.session, 1, worker.seq + 2), (KEY,)))
    assert decision.writes == ()
    assert [a.seq for a in decision.actions if isinstance(a, AckReports)] == [worker.seq]
    assert fleet.machine.workers()[0].held == 1


def test_numbers_are_known_after_a_restart():
    fleet, worker = one_worker()
    fleet.restart()
    fleet.connect(worker)
    assert not worker.reports
    decision = fleet.handle(OtherReported(ReportId(worker.id, worker.session, 1, worker.seq)))
    assert decision.writes == ()


def test_what_was_reported_while_away_arrives_later_once():
    fleet, worker = one_worker()
    fleet.cut(worker)
    for _ in range(3):
        fleet.sync(worker, KEY)
    assert len(worker.reports) == 3
    fleet.connect(worker)
    assert not worker.reports
    assert max(r.seq for r in fleet.store.reports.values()) == worker.seq
