"""Each checker by example: the smallest change that breaks its promise, and its twin that does not."""

from types import SimpleNamespace

import pytest

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import (
    AckReports,
    Alert,
    AlertKind,
    Assign,
    Assignment,
    CopyRow,
    Decision,
    DropCopies,
    PutCopies,
    PutSalt,
    PutWorker,
    Release,
    ReportTaken,
    Send,
    Welcome,
)
from evermirror.core.fleet.events import CatalogRepo
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId, WorkerRecord
from evermirror.sim.fleet.worker import digest
from tests.support.sim.fleet.checkers import Checkers
from tests.support.sim.fleet.story import Story, Violation, in_short
from tests.support.sim.fleet.world import HOUR, Plan, World

ONE, TWO = RepoKey("h.example/one"), RepoKey("h.example/two")
A, B, C, D = (WorkerId(n) for n in range(4))
NAMES = "abcd"
PLANNED, ASKED, HELD, LEAVING = CopyState.PLANNED, CopyState.ASKED, CopyState.HELD, CopyState.LEAVING
ALIVE, SUSPECT, DOWN = Liveness.ALIVE, Liveness.SUSPECT, Liveness.DOWN


class FakeMachine:
    """What a machine shows, as the test says."""

    def __init__(self, fake):
        self.fake = fake
        self.braked = self.warming = False
        self.no_room = set()
        self.repos = None
        self.heard_at = {}

    def totals(self):
        repos = len(self.fake.store.repos) if self.repos is None else self.repos
        return SimpleNamespace(braked=self.braked, warming=self.warming, repos=repos)

    def repo(self, key):
        rows = self.fake.rows(key)
        copies = tuple(
            SimpleNamespace(worker=row.worker, rank=row.rank, state=row.state, digest=self.told(row))
            for row in rows
        )
        salt = self.fake.checks._scene.shadow.salts.get(key, 0)
        return SimpleNamespace(copies=copies, no_room=key in self.no_room, salt=salt, verified=False)

    def told(self, row):
        version = self.fake.workers[row.worker].disk.get(row.key)
        return 0 if version is None else digest(row.key, version)

    def workers(self):
        return tuple(
            SimpleNamespace(
                record=record, accepting=True, connected=True, reconciled=True, wanted=0, stalled=False,
                heard_at=self.heard_at.get(record.id, 0.0),
            )
            for record in self.fake.checks._scene.shadow.records.values()
        )  # fmt: skip


class FakeWorld:
    """The truth, set by hand; decisions are committed as the world would."""

    utc_s = 1_700_000_000.0

    def __init__(self, **settings):
        self.plan = Plan(settings=FleetSettings(**settings))
        self.story = Story()
        self.time = SimpleNamespace(now=0.0)
        self.store = SimpleNamespace(repos={}, reports={})
        self.witness = SimpleNamespace(disk={})
        self.dead = set()
        self.catalog = SimpleNamespace(is_dead=lambda key: key in self.dead)
        self.network = SimpleNamespace(reachable=lambda index: True)
        self.workers = [self._worker(n) for n in range(4)]
        self.machine = FakeMachine(self)
        self.coordinator = SimpleNamespace(machine=self.machine, stalled=False)
        self.checks = Checkers(self)
        self.list(ONE, TWO)

    def _worker(self, n):
        link = SimpleNamespace(session=n + 1, cuts=0, broken=False)
        facts = WorkerFacts(NAMES[n], trusted=True)
        return SimpleNamespace(
            index=n, id=WorkerId(n), name=NAMES[n], facts=facts, disk={}, lies=None,
            connected=True, welcomed=True, link=link, seen=0,
        )  # fmt: skip

    def serves(self, index):
        return False

    def list(self, *keys, **facts):
        self.store.repos.update({key: CatalogRepo(key, **facts) for key in keys})

    def worker(self, id):
        return self.workers[id]

    def holders(self, key):
        return {worker.index for worker in self.workers if key in worker.disk}

    def rows(self, key):
        return list(self.checks._scene.shadow.copies.get(key, {}).values())

    def decide(self, *parts, after_s=0.0):
        """Writes and actions, in any order; as much time passes first, second by second."""
        self.live(after_s)
        writes = tuple(p for p in parts if not isinstance(p, Send | Welcome | AckReports | Alert))
        for write in writes:
            if isinstance(write, ReportTaken):
                self.store.reports[write.worker, write.generation] = write.seq
        actions = tuple(p for p in parts if p not in writes)
        self.checks.on_decision(Decision(writes, actions), self.time.now)
        self.checks.on_step(self.time.now)

    def live(self, seconds):
        for _ in range(int(seconds)):
            self.time.now += 1.0
            self.checks.on_step(self.time.now)

    def join(self, *workers, trusted=True, **changes):
        for worker in workers:
            self.workers[worker].facts = WorkerFacts(NAMES[worker], trusted=trusted)
            self.decide(record(worker, trusted=trusted, **changes), Welcome(worker + 1, worker, 1, False))


def record(worker, liveness=ALIVE, duty=Duty.ACTIVE, trusted=True, name=None, capacity=None, weight=1.0):
    facts = WorkerFacts(name or NAMES[worker], trusted=trusted, capacity=capacity, weight=weight)
    return PutWorker(WorkerRecord(worker, facts, liveness, duty))


def put(key, worker, state, rank=0, reason=Reason.HOME):
    return PutCopies((CopyRow(key, worker, rank, state, reason, 0.0),))


def drop(key, worker):
    return DropCopies(((key, worker),))


def delete(worker, *keys, seq=1, version=None):
    digests = tuple(digest(key, version) if version else 0 for key in keys)
    return Send(worker, worker + 1, seq, Release(keys, True, digests))


def ask(worker, *keys, seq=1):
    return Send(worker, worker + 1, seq, Assign(tuple(Assignment(key, True) for key in keys)))


def report(worker, seq):
    return ReportTaken(worker, 7, seq)


def breaks(promise):
    return pytest.raises(Violation, match=rf"^t=[\d.]+ {promise}: ")


@pytest.fixture
def fake():
    world = FakeWorld()
    world.join(A, B, C)
    return world


def test_checkers_are_what_the_world_calls():
    assert isinstance(World(Plan(), Checkers).checks, Checkers)


# kept


def held_by(fake, key, *workers, version=1):
    for worker in workers:
        fake.workers[worker].disk[key] = version
        fake.decide(put(key, worker, HELD, rank=None if worker == A else 0))


def test_the_only_copy_may_not_be_told_to_go(fake):
    held_by(fake, ONE, A)
    with breaks("kept"):
        fake.decide(put(ONE, A, LEAVING, rank=None), delete(A, ONE))


def test_a_copy_may_go_when_a_trusted_worker_has_the_same(fake):
    held_by(fake, ONE, A, B)
    fake.decide(put(ONE, A, LEAVING, rank=None), delete(A, ONE))
    fake.checks.on_delete(A, ONE, 0.0)


def test_an_older_copy_elsewhere_is_not_enough(fake):
    held_by(fake, ONE, B, version=1)
    held_by(fake, ONE, A, version=2)
    with breaks("kept"):
        fake.decide(delete(A, ONE))


def test_an_untrusted_or_quarantined_holder_does_not_count(fake):
    held_by(fake, ONE, A, B)
    fake.decide(record(B, duty=Duty.QUARANTINED))
    with breaks("kept"):
        fake.decide(delete(A, ONE, seq=1))
    fake.decide(record(B, trusted=False))
    with breaks("kept"):
        fake.decide(delete(A, ONE, seq=2))
    fake.witness.disk[ONE] = 1
    fake.decide(delete(A, ONE, seq=3))


def test_two_copies_do_not_cover_each_other(fake):
    held_by(fake, ONE, A, B)
    fake.decide(delete(A, ONE))
    with breaks("kept"):
        fake.decide(delete(B, ONE))


def test_what_left_the_catalog_may_go(fake):
    held_by(fake, ONE, A)
    del fake.store.repos[ONE]
    fake.decide(delete(A, ONE))
    fake.checks.on_delete(A, ONE, 0.0)


def test_a_copy_lost_by_a_fault_excuses_until_it_is_known(fake):
    held_by(fake, ONE, A, B)
    del fake.workers[B].disk[ONE]
    fake.checks.on_disk_lost(B, [ONE], 0.0)
    fake.decide(delete(A, ONE))
    held_by(fake, TWO, A, B)
    del fake.workers[B].disk[TWO]
    fake.checks.on_disk_lost(B, [TWO], 0.0)
    fake.decide(put(TWO, B, PLANNED))
    with breaks("kept"):
        fake.decide(delete(A, TWO, seq=2))


def test_deleting_without_another_copy_is_noticed_at_the_disk_too(fake):
    held_by(fake, ONE, A, B)
    fake.decide(delete(A, ONE))
    del fake.workers[B].disk[ONE]
    with breaks("kept"):
        fake.checks.on_delete(A, ONE, 0.0)


def test_a_copy_told_to_go_is_not_held_until_a_fresh_session(fake):
    held_by(fake, ONE, A, B)
    fake.decide(put(ONE, A, LEAVING, rank=None), delete(A, ONE, version=1))
    with breaks("kept"):
        fake.decide(put(ONE, A, HELD), report(A, 1))
    fake.decide(put(ONE, A, LEAVING), Welcome(1, A, 2, False))
    fake.decide(put(ONE, A, HELD))


def test_a_worker_that_has_other_refs_by_then_may_decline(fake):
    held_by(fake, ONE, A, B)
    fake.workers[A].disk[ONE] = 2  # not told yet
    fake.decide(put(ONE, A, LEAVING, rank=None), delete(A, ONE, version=1))
    fake.decide(put(ONE, A, HELD, rank=None), report(A, 1))
    with breaks("kept"):
        fake.decide(delete(A, ONE, seq=2, version=2))


# owned, whole


def test_a_worker_gone_for_longer_than_grace_owns_nothing_alone(fake):
    fake.decide(put(ONE, A, HELD), put(TWO, B, HELD))
    fake.workers[A].connected = False
    fake.checks.sweep(0.0)
    fake.live(620)
    fake.checks.sweep(0.0)
    fake.live(120)
    with breaks("owned"):
        fake.checks.sweep(0.0)
    fake.decide(put(ONE, B, PLANNED, rank=1))
    fake.checks.sweep(0.0)


def test_grace_begins_with_the_last_heartbeat_that_came_however_late(fake):
    fake.join(A, B)
    fake.decide(put(ONE, A, HELD), put(TWO, B, HELD))
    fake.workers[A].connected = False
    fake.checks.sweep(0.0)
    fake.live(300)
    fake.machine.heard_at[A] = fake.utc_s  # the network had kept it
    fake.checks.sweep(0.0)
    fake.live(620)
    fake.checks.sweep(0.0)
    fake.live(120)
    with breaks("owned"):
        fake.checks.sweep(0.0)


def test_the_brake_and_a_restart_give_more_time(fake):
    fake.decide(put(ONE, A, HELD), put(TWO, B, HELD))
    fake.workers[A].connected = False
    fake.checks.sweep(0.0)
    fake.live(660)
    fake.checks.on_restart(fake.time.now)
    fake.checks.sweep(0.0)
    fake.live(660)
    fake.decide(Alert(AlertKind.BRAKE, "fleet", "", over=True))
    fake.checks.sweep(0.0)


def test_a_repo_wanted_nowhere_waits_visibly(fake):
    fake.decide(put(ONE, A, HELD))
    fake.checks.sweep(0.0)
    fake.machine.no_room.add(TWO)
    fake.live(100)
    fake.checks.sweep(0.0)
    fake.machine.no_room.clear()
    with breaks("owned"):
        fake.checks.sweep(0.0)


def test_the_fleet_knows_every_repo(fake):
    fake.machine.repos = 1
    with breaks("whole"):
        fake.checks.sweep(0.0)


# still


def test_a_repo_does_not_leave_a_worker_that_can_keep_it(fake):
    fake.decide(put(ONE, A, HELD), put(TWO, B, HELD))
    fake.checks.sweep(0.0)
    fake.live(40)
    fake.checks.sweep(0.0)  # nobody is new any more
    with breaks("still"):
        fake.decide(put(TWO, B, HELD, rank=None), put(TWO, A, PLANNED, reason=Reason.NEXT))


@pytest.mark.parametrize("after", [record(A, DOWN), record(A, duty=Duty.DRAINING), record(A, trusted=False)])
def test_what_a_lost_worker_had_may_move(after):
    fake = FakeWorld(grace_s=0.0)
    fake.join(A, B, C)
    fake.list(ONE, trusted_only=True)
    fake.decide(put(ONE, A, HELD), put(ONE, B, HELD, rank=1), put(ONE, C, HELD, rank=2))
    fake.decide(record(A, SUSPECT), after_s=40)
    fake.decide(after)
    fake.decide(put(ONE, A, HELD, rank=None))


def test_a_joining_worker_takes_its_share_once():
    fake = FakeWorld()
    fake.join(A, B)
    keys = [RepoKey(f"h.example/{n}") for n in range(60)]
    fake.list(*keys)
    for key in keys:
        fake.decide(put(key, A, HELD), put(key, B, HELD, rank=1))
    fake.join(C)
    moved = [
        w for key in keys for w in (put(key, A, HELD, rank=None), put(key, C, PLANNED, reason=Reason.JOINED))
    ]
    fake.decide(*moved[:60])
    with breaks("still"):
        fake.decide(*moved[60:62])
    fake.join(D)
    with breaks("still"):
        too_many = [w for key in keys for w in (put(key, B, HELD, rank=None), put(key, D, PLANNED))]
        fake.decide(*too_many)


def test_a_repo_handed_back_may_move(fake):
    fake.decide(put(ONE, A, ASKED), put(TWO, B, HELD), put(TWO, C, HELD, rank=1))
    fake.decide(drop(ONE, A), put(ONE, B, PLANNED, reason=Reason.REHASHED), PutSalt(ONE, 1))


# load, pace, private


def test_nobody_is_given_more_than_its_bound_while_another_has_room():
    fake = FakeWorld()
    fake.join(A, B)
    keys = [RepoKey(f"h.example/{n}") for n in range(40)]
    fake.list(*keys)
    fake.decide(*(put(key, A if n % 2 else B, PLANNED) for n, key in enumerate(keys)))
    more = [RepoKey(f"h.example/more{n}") for n in range(20)]
    fake.list(*more)
    with breaks("load"):
        fake.decide(*(put(key, A, PLANNED) for key in more))


def light_and_heavy():
    fake = FakeWorld()
    fake.join(A, weight=0.5)
    fake.join(B, weight=2.0)
    keys = [RepoKey(f"h.example/{n}") for n in range(100)]
    fake.list(*keys)
    return fake, keys


def test_a_light_worker_has_a_lower_bound_than_a_heavy_one():
    fake, keys = light_and_heavy()
    fake.decide(*(put(key, B if n % 5 else A, PLANNED) for n, key in enumerate(keys)))
    fake, keys = light_and_heavy()
    with breaks("load"):
        fake.decide(*(put(key, B if n % 3 else A, PLANNED) for n, key in enumerate(keys)))


def test_every_copy_that_is_given_counts_not_only_the_last():
    fake, keys = light_and_heavy()
    given = [put(key, B if n % 2 else A, PLANNED) for n, key in enumerate(keys)]
    with breaks("load"):
        fake.decide(*given, put(ONE, A, PLANNED, reason=Reason.KEPT))


def test_beyond_the_bound_is_only_what_nobody_else_could_take():
    def given(fake, keys, forced):
        parts = [put(key, A, PLANNED, rank=1, reason=Reason.OVERFULL) for key in forced]
        return [*(put(key, B if n % 5 else A, PLANNED) for n, key in enumerate(keys)), *parts]

    fake, keys = light_and_heavy()
    heavys = [key for n, key in enumerate(keys) if n % 5]
    fake.decide(*given(fake, keys, heavys[:30]))  # two copies of these: one is the light one's
    fake, keys = light_and_heavy()
    more = [RepoKey(f"h.example/more{n}") for n in range(30)]
    fake.list(*more)
    with breaks("load"):
        fake.decide(*given(fake, keys, more))


def test_clones_start_slowly_and_are_bounded():
    fake = FakeWorld(moves_first=1, moves_per_worker=2)
    fake.join(A)
    fake.decide(put(ONE, A, ASKED), ask(A, ONE))
    fake.decide(put(ONE, A, HELD), report(A, 1))
    three, four = RepoKey("h.example/three"), RepoKey("h.example/four")
    fake.decide(put(TWO, A, ASKED), put(three, A, ASKED), ask(A, TWO, three, seq=2))
    with breaks("pace"):
        fake.decide(put(four, A, ASKED), ask(A, four, seq=3))
    fast = FakeWorld(moves_first=1)
    fast.join(A)
    with breaks("pace"):
        fast.decide(put(ONE, A, ASKED), put(TWO, A, ASKED), ask(A, ONE, TWO))


def test_all_clones_together_are_bounded():
    fake = FakeWorld(moves_total=1)
    fake.join(A, B)
    fake.decide(put(ONE, A, ASKED), ask(A, ONE))
    with breaks("pace"):
        fake.decide(put(TWO, B, ASKED), ask(B, TWO))


def test_a_private_repo_is_asked_of_trusted_workers_only():
    fake = FakeWorld()
    fake.join(A)
    fake.join(B, trusted=False)
    fake.list(ONE, trusted_only=True)
    fake.decide(put(ONE, A, ASKED), ask(A, ONE))
    with breaks("private"):
        fake.decide(put(ONE, B, ASKED), ask(B, ONE))


# grace, suspicion, brake, ids


def test_down_comes_after_a_whole_grace(fake):
    fake.decide(record(A, SUSPECT), after_s=60)
    with breaks("grace"):
        fake.decide(record(A, DOWN), after_s=590)
    fake.decide(record(B, SUSPECT))
    fake.decide(record(B, DOWN), after_s=600)


def test_a_pause_is_not_part_of_the_grace(fake):
    fake.decide(record(A, SUSPECT), after_s=60)
    fake.time.now += 3600.0
    with breaks("grace"):
        fake.decide(record(A, DOWN))


def test_nobody_is_suspected_right_after_its_welcome(fake):
    with breaks("suspicion"):
        fake.decide(record(A, SUSPECT), after_s=10)


def test_nobody_is_suspected_over_a_link_that_was_sound(fake):
    fake.decide(put(ONE, A, HELD), put(TWO, B, HELD))
    fake.checks.sweep(0.0)
    fake.live(60)
    fake.workers[B].link.cuts = 2  # cut and healed
    fake.checks.sweep(0.0)
    fake.decide(record(B, SUSPECT))
    with breaks("suspicion"):
        fake.decide(record(A, SUSPECT))


def test_nobody_is_declared_down_while_too_many_are_suspect(fake):
    fake.decide(record(A, SUSPECT), record(B, SUSPECT), after_s=60)
    fake.decide(Alert(AlertKind.BRAKE, "fleet", ""), after_s=700)
    with breaks("brake"):
        fake.decide(record(A, DOWN))


def test_a_brake_that_was_overruled_holds_nobody(fake):
    fake.decide(record(A, SUSPECT), record(B, SUSPECT), Alert(AlertKind.BRAKE, "fleet", ""), after_s=60)
    fake.decide(Alert(AlertKind.BRAKE, "fleet", "", over=True), record(A, DOWN), record(B, DOWN), after_s=700)


def test_an_id_is_one_workers_until_it_retires(fake):
    with breaks("ids"):
        fake.decide(record(A, name="somebody"))
    fake.decide(record(B, duty=Duty.RETIRED))
    fake.decide(record(B, name="somebody"))


# reports, sessions, salt, restart


@pytest.mark.parametrize("seq", [1, 3])
def test_a_report_is_taken_once_and_in_order(fake, seq):
    fake.decide(report(A, 1))
    with breaks("reports"):
        fake.decide(report(A, seq))


def test_what_is_acknowledged_is_in_the_store(fake):
    fake.decide(report(A, 1))
    fake.checks.on_report_acked(A, 7, 1, 0.0)
    with breaks("reports"):
        fake.checks.on_report_acked(A, 7, 2, 0.0)


def test_a_report_of_one_worker_makes_no_copy_of_another_complete(fake):
    with breaks("reports"):
        fake.decide(put(ONE, A, HELD), report(B, 1))


def test_commands_go_to_the_newest_session_without_a_hole(fake):
    fake.decide(put(ONE, A, ASKED), ask(A, ONE, seq=1))
    with breaks("sessions"):
        fake.decide(ask(A, ONE, seq=3))
    fake.decide(Welcome(9, A, 1, False))
    with breaks("sessions"):
        fake.decide(ask(A, ONE, seq=1))


def test_what_a_worker_has_not_seen_is_sent_again(fake):
    fake.decide(put(ONE, A, ASKED), put(TWO, A, ASKED), ask(A, ONE, seq=1), ask(A, TWO, seq=2))
    fake.workers[A].seen = 1
    fake.decide(Welcome(1, A, 1, True), ask(A, TWO, seq=2))
    with breaks("sessions"):
        fake.decide(Welcome(1, A, 1, True))


def test_a_salt_changes(fake):
    fake.decide(PutSalt(ONE, 1))
    with breaks("salt"):
        fake.decide(PutSalt(ONE, 1))


def test_a_restarted_machine_knows_what_was_written(fake):
    fake.decide(put(ONE, A, HELD))
    fake.checks.on_restart(1.0)
    fake.machine.repo = lambda key: SimpleNamespace(copies=(), salt=0)
    with breaks("restart"):
        fake.checks.on_restart(2.0)


# settled


def settle(fake):
    fake.workers[A].disk[ONE] = fake.workers[B].disk[TWO] = 1
    fake.decide(put(ONE, A, HELD), put(TWO, B, HELD))


def test_a_settled_fleet_is_well(fake):
    settle(fake)
    fake.checks.at_end()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda fake: fake.workers[A].disk.clear(),
        lambda fake: setattr(fake.workers[A], "connected", False),
        lambda fake: setattr(fake.machine, "braked", True),
        lambda fake: setattr(fake.coordinator, "machine", None),
        lambda fake: fake.decide(put(ONE, A, PLANNED)),
        lambda fake: fake.decide(put(ONE, B, HELD, rank=1)),
        lambda fake: fake.list(RepoKey("h.example/three")),
        lambda fake: (fake.list(RepoKey("h.example/three")), fake.machine.no_room.add("h.example/three")),
        lambda fake: (fake.workers[B].disk.update({ONE: 1}), fake.decide(put(ONE, B, HELD, rank=None))),
        lambda fake: fake.store.repos.pop(TWO),
    ],
    ids=[
        "not on the disk",
        "worker away",
        "braked",
        "no coordinator",
        "still planned",
        "too many",
        "too few",
        "waits although there is room",
        "not deleted",
        "removed and still there",
    ],
)
def test_whatever_is_not_settled_is_told(fake, spoil):
    settle(fake)
    spoil(fake)
    with breaks("settled"):
        fake.checks.at_end()


# The whole, and the story


def test_a_violation_tells_how_to_see_it_again(fake):
    fake.story.tell(12.5, "a crashed")
    with pytest.raises(Violation) as caught:
        fake.decide(PutSalt(ONE, 0))
    assert caught.value.promise == "salt"
    assert caught.value.lines == ("t=12.500 a crashed",)
    assert caught.value.replay == "World(Plan(seed=1), Checkers, Story()).run()"
    assert "a crashed" in str(caught.value)


def test_a_plan_is_told_by_what_is_special_about_it():
    plan = Plan(seed=7, workers=3, settings=FleetSettings(replicas=2))
    assert in_short(plan) == "Plan(seed=7, workers=3, settings=FleetSettings(replicas=2))"
    assert in_short(Plan()) == "Plan(seed=1)"


def test_the_same_seed_is_the_same_story_and_another_is_another():
    def story(seed):
        told = Story()
        plan = Plan(seed=seed, duration_s=HOUR)
        world = World(plan, Checkers, told)
        world.begin()
        world.advance(HOUR)
        return told.digest, world.outcome().trace

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_a_story_keeps_its_last_lines_and_counts_all():
    story = Story(keep=2)
    for n in range(5):
        story.tell(float(n), f"line {n}")
    assert story.last() == ("t=3.000 line 3", "t=4.000 line 4")
    assert story.last(1) == ("t=4.000 line 4",)
    assert story.last(0) == ()
    assert story.told == 5


def test_lines_cut_otherwise_are_another_story():
    one, other = Story(), Story()
    one.tell(0.0, "a\nt=0.000 b")
    other.tell(0.0, "a")
    other.tell(0.0, "b")
    assert one.told != other.told
    shorter = Story()
    shorter.tell(0.0, "a")
    assert shorter.digest != other.digest
