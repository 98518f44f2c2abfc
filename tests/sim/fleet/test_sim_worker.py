"""A simulated worker does what it is told, tells what it did, and remembers what it must."""

from __future__ import annotations

import pytest

from evermirror.core.fleet.decisions import (
    AckReports,
    Assign,
    Assignment,
    CompareRanges,
    Nudge,
    Refuse,
    Release,
    Send,
    Welcome,
)
from evermirror.core.fleet.digests import RANGES, RangeDigests
from evermirror.core.fleet.events import CopiesDropped, CopiesVerified, ReposHandedBack
from evermirror.model.worker import WorkerFacts, WorkerId
from evermirror.sim.fleet.catalog import digest, name, size_mb
from evermirror.sim.fleet.hooks import NoChecks
from evermirror.sim.fleet.messages import Beat, Compared, Hello, Report, Told, Took
from evermirror.sim.fleet.network import DOWN, Habits, Network
from evermirror.sim.fleet.plan import Plan
from evermirror.sim.fleet.reports import ReportLog
from evermirror.sim.fleet.worker import REFUSED_S, Lie
from evermirror.sim.fleet.world import World

ME = WorkerId(7)
A, B, C = name(0), name(1), name(2)
BIG = max(map(name, range(50)), key=size_mb)  # takes half a minute


class Boss:
    """A coordinator by hand: keeps what it hears, says what the test says."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.link = None
        self.closings = 0

    def arrived(self, link, message) -> None:
        self.link = link
        self.heard.append(message)

    def closed(self, link) -> None:
        self.closings += 1

    def take(self, kind):
        """What was heard of this kind, once."""
        found = [message for message in self.heard if isinstance(message, kind)]
        self.heard = [message for message in self.heard if not isinstance(message, kind)]
        return found


class Deletions(NoChecks):
    def __init__(self) -> None:
        self.deleted: list[tuple[WorkerId, str]] = []

    def on_delete(self, worker, key, now) -> None:
        self.deleted.append((worker, key))


class Lab:
    def __init__(self, *, room: int | None = None, trusted: bool = True, slots: int = 10) -> None:
        self.checks = Deletions()
        self.world = World(Plan(room=room, slots=slots), checkers=lambda _world: self.checks)
        self.boss = Boss()
        self.world.network = Network(self.world.time, self.world.rng, Habits(), self.boss, lambda: True)
        self.world.catalog.commit(put=self.world.catalog.new(50))
        self.world.join(facts=WorkerFacts("me", trusted=trusted))
        self.worker = self.world.workers[0]
        self.seq = 0
        self.wait(5)

    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    def say(self, message) -> None:
        self.world.network.send(self.boss.link, DOWN, message)

    def welcome(self, *, resumed: bool = False, epoch: int = 1, acked: int = 0) -> None:
        session, generation = self.boss.link.session, self.worker.log.generation
        self.say(Welcome(session, ME, epoch, resumed))
        self.say(AckReports(ME, session, generation, acked))
        if not resumed:
            self.seq = 0
        self.wait(1)

    def order(self, command, wait: float = 120) -> None:
        self.seq += 1
        self.say(Send(ME, self.boss.link.session, self.seq, command))
        self.wait(wait)

    def assign(self, *keys, wait: float = 120, **details) -> None:
        self.order(Assign(tuple(Assignment(key, False, **details) for key in keys)), wait)

    def reports(self):
        return [(r.seq, r.kind, r.rest[0] if r.rest else ()) for r in self.boss.take(Report)]

    def ack(self, seq: int) -> None:
        self.say(AckReports(ME, self.boss.link.session, self.worker.log.generation, seq))
        self.wait(1)


@pytest.fixture
def lab():
    lab = Lab()
    lab.welcome()
    lab.boss.take(Told)
    return lab


def told(reports, kind):
    return sorted(
        item if isinstance(item, str) else item.key for _, k, items in reports if k is kind for item in items
    )


def test_a_fresh_session_begins_with_all_that_it_holds_even_if_that_is_nothing():
    lab = Lab()
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
    assert lab.world.holders(A) == {0}
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
    assert lab.checks.deleted == []
    lab.order(Release((A, B), delete=True))
    assert told(lab.reports(), CopiesDropped) == sorted([A, B])
    assert lab.checks.deleted == [(ME, A)]
    assert lab.worker.disk == {}
    assert lab.world.holders(A) == set()


def test_a_clone_that_is_stopped_leaves_nothing(lab):
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
    lab.wait(100)
    hello = lab.boss.take(Hello)[-1]
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


def test_a_lost_local_file_begins_a_new_generation(lab):
    lab.assign(A)
    generation = lab.worker.log.generation
    lab.world.crash(0)
    lab.world.lose_file(0)
    lab.world.start(0)
    lab.wait(60)
    hello = lab.boss.take(Hello)[-1]
    assert hello.generation != generation
    assert (hello.epoch, hello.seen) == (0, 0)


def test_a_full_disk_hands_back_what_waits_and_says_so():
    lab = Lab(room=2)
    lab.welcome()
    lab.assign(A, B, C)
    reports = lab.reports()
    assert len(told(reports, CopiesVerified)) == 2
    assert len(told(reports, ReposHandedBack)) == 1
    assert not lab.boss.take(Beat)[-1].accepting


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


def test_upstream_that_moved_is_synced_and_reported_also_after_a_time_down(lab):
    lab.assign(A, B)
    lab.reports()
    lab.world.push(A)
    lab.wait(120)
    assert lab.worker.disk == {A: 2, B: 1}
    assert [items[0].digest for _, _, items in lab.reports()] == [digest(A, 2)]
    lab.world.crash(0)
    lab.world.push(B)
    lab.wait(120)
    assert lab.worker.disk[B] == 1
    lab.world.start(0)
    lab.wait(120)
    assert lab.worker.disk[B] == 2


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


def test_liars_claim_garble_and_invent():
    lab = Lab(trusted=False)
    lab.welcome()
    lab.world.lie(0, Lie.CLAIMS)
    lab.assign(A)
    assert told(lab.reports(), CopiesVerified) == [A]
    assert lab.worker.disk == {}
    lab.world.lie(0, Lie.GARBLES)
    lab.assign(B)
    assert lab.reports()[0][2][0].digest != digest(B, 1)
    assert B in lab.worker.disk
    lab.world.lie(0, Lie.INVENTS)
    assert len(lab.worker.claimed) >= 10


def test_a_trusted_worker_does_not_lie(lab):
    lab.world.lie(0, Lie.CLAIMS)
    assert lab.worker.lies is None


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
