"""A simulated worker does what it is told, tells what it did, and remembers what it must."""

from __future__ import annotations

import pytest

from evermirror.core.fleet.decisions import Assignment, CompareRanges, Nudge, Refuse, Release
from evermirror.core.fleet.digests import RANGES, RangeDigests
from evermirror.core.fleet.events import CopiesDropped, CopiesVerified, ReposHandedBack
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.worker import WorkerFacts
from evermirror.sim.fleet.messages import Beat, Compared, Hello, Report, ReportLog, Told, Took
from evermirror.sim.fleet.worker import REFUSED_S, digest
from evermirror.sim.fleet.world import FleetWorld
from tests.support.sim.fleet.lab import BIG, ME, A, B, Boss, C, WorkerLab, told


class BossWorld(FleetWorld):
    def __init__(self) -> None:
        super().__init__(1, FleetSettings(), slots=10)
        self.deletions = []

    def make_coordinator(self):
        return Boss()

    def deleting(self, worker, key) -> None:
        super().deleting(worker, key)
        self.deletions.append((worker.id, key))


@pytest.fixture
def lab():
    lab = WorkerLab(BossWorld())
    lab.welcome()
    lab.boss.take(Told)
    return lab


def test_a_fresh_session_begins_with_all_that_it_holds_even_if_that_is_nothing():
    lab = WorkerLab(BossWorld())
    hello = lab.boss.take(Hello)[0]
    assert (hello.worker, hello.epoch, hello.seen) == (None, 0, 0)
    assert lab.boss.take(Told) == []
    lab.welcome()
    assert lab.boss.take(Told) == [Told((), True)]
    assert lab.boss.take(Beat)


def test_what_is_assigned_is_cloned_and_told_with_its_digest(lab):
    lab.assign(A, B)
    reports = lab.reports()
    assert told(reports, CopiesVerified) == sorted([A, B])
    assert {copy.digest for _, _, items in reports for copy in items} == {digest(A, 1), digest(B, 1)}
    assert [seq for seq, _, _ in reports] == list(range(1, len(reports) + 1))
    assert lab.worker.disk == {A: 1, B: 1}
    assert lab.boss.take(Took)[-1].seq == 1


def test_a_command_that_comes_twice_is_done_once(lab):
    lab.assign(A)
    lab.reports()
    lab.seq = 0
    lab.assign(A)
    assert lab.reports() == []


def test_a_gap_in_the_commands_is_a_broken_promise(lab):
    lab.seq = 5
    with pytest.raises(AssertionError, match="commands"):
        lab.assign(A)


def test_only_release_with_delete_takes_a_copy_off_the_disk(lab):
    lab.assign(A)
    lab.reports()
    lab.order(Release((A, B), delete=False))
    assert [told(r := lab.reports(), CopiesVerified), told(r, CopiesDropped)] == [[A], [B]]
    assert lab.world.deletions == []
    lab.order(Release((A, B), delete=True))
    assert told(lab.reports(), CopiesDropped) == sorted([A, B])
    assert lab.world.deletions == [(ME, A)]
    assert lab.worker.disk == {}


def test_a_clone_that_is_stopped_leaves_nothing(lab):
    lab.world.traffic.rate_mb_s = 5.0
    lab.assign(BIG, wait=3)
    assert lab.worker.clones.running == 1
    lab.order(Release((BIG,), delete=False))
    assert told(lab.reports(), CopiesDropped) == [BIG]
    lab.wait(10_000)
    assert lab.worker.disk == {}
    assert lab.worker.clones.running == 0


def test_reports_are_kept_until_acknowledged_and_sent_again_in_the_next_session(lab):
    lab.assign(A)
    lab.assign(B)
    sent = lab.reports()
    lab.ack(1)
    lab.world.network.break_link(lab.boss.link)
    hello = lab.hello()
    assert (hello.worker, hello.epoch, hello.seen) == (ME, 1, 2)
    assert lab.reports() == []  # not before it is told where to go on
    lab.welcome(resumed=True, acked=1)
    assert lab.reports() == sent[1:]
    assert lab.boss.take(Told) == []


def test_a_report_that_was_missed_is_sent_again_once(lab):
    lab.assign(A)
    lab.assign(B)
    sent = lab.reports()
    lab.ack(0)
    assert lab.reports() == sent
    lab.ack(0)
    assert lab.reports() == []


def test_a_crash_keeps_disk_and_reports_and_loses_clones_under_way(lab):
    lab.assign(A)
    lab.world.traffic.rate_mb_s = 5.0
    lab.assign(BIG, wait=3)
    before = lab.boss.take(Hello)[-1]
    lab.world.crash(0, told=True)
    lab.wait(60)
    assert lab.boss.closings == 1
    lab.world.start(0)
    lab.wait(10)
    hello = lab.boss.take(Hello)[-1]
    assert hello.boot != before.boot
    assert hello.generation == before.generation
    sent = lab.reports()
    lab.welcome()
    assert lab.reports() == sent
    assert [copy.key for chunk in lab.boss.take(Told) for copy in chunk.copies] == [A]
    lab.wait(10_000)
    assert lab.worker.disk == {A: 1}


def test_a_clone_comes_through_the_relay_where_the_source_is_up_and_has_it(lab):
    lab.assign(A)
    other = lab.world.join(facts=WorkerFacts("other"))[0]
    worker = lab.world.workers[other]
    for source, relayed in ((ME, 1), (None, 0)):
        before = lab.world.relayed
        worker.clones.ask(Assignment(A, False, source))
        worker.clones.fill_slots()
        lab.wait(100)
        assert lab.world.relayed - before == relayed
        worker.lose([A])


def test_a_nudge_is_answered_even_if_nothing_moved(lab):
    lab.assign(A)
    lab.reports()
    lab.order(Nudge((A, B)))
    assert told(lab.reports(), CopiesVerified) == [A]


def test_ranges_are_compared_and_those_that_differ_told(lab):
    lab.assign(A, B)
    lab.order(CompareRanges(RangeDigests((0,) * RANGES)))
    answer = lab.boss.take(Compared)[0]
    assert sorted(copy.key for copy in answer.copies) == sorted([A, B])
    assert len(answer.ranges) in (1, 2)


def test_who_is_refused_waits_long(lab):
    lab.say(Refuse(lab.boss.link.session, "no"))
    lab.wait(1)
    lab.boss.take(Hello)
    lab.wait(REFUSED_S - 10)
    assert lab.boss.take(Hello) == []
    lab.wait(20)
    assert len(lab.boss.take(Hello)) == 1


def test_what_is_noted_goes_out_as_one_report_for_each_run_of_a_kind():
    sent: list[Report] = []
    log = ReportLog(9, sent.append)
    log.acked(9, 0)
    assert log.note(CopiesDropped, A)
    assert not log.note(CopiesDropped, B)
    log.note(ReposHandedBack, C)
    log.note(CopiesDropped, C)
    log.write()
    assert [(r.seq, r.kind, r.rest[0]) for r in sent] == [
        (1, CopiesDropped, (A, B)),
        (2, ReposHandedBack, (C,)),
        (3, CopiesDropped, (C,)),
    ]
    log.acked(8, 3)  # of another local file
    assert len(log.kept) == 3
    log.acked(9, 2)
    assert [r.seq for r in log.kept] == [3]
