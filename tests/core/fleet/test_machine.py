"""Random events against the machine, with workers that obey, and its rules looked at after each."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evermirror.core.fleet.copies import UNWANTED, CopyState
from evermirror.core.fleet.decisions import AlertKind, Release, Send
from evermirror.core.fleet.events import (
    BrakeOverruled,
    CatalogRepo,
    CommandGiven,
    DrainAsked,
    DutyResumed,
    HeldCopy,
    QuarantineAsked,
    Ticked,
    WitnessHeld,
    WitnessLost,
)
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.table import NO_ROOM
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness
from tests.support.fleet import Fleet

KEYS = [RepoKey(f"forge.example/r{i}") for i in range(6)]
NAMES = ("ann", "bob", "cid", "dan", "eve")
HURRIED = FleetSettings(
    warm_up_s=3.0,
    heartbeat_s=2.0,
    max_missed=2,
    grace_s=8.0,
    rebalance_gap_s=2.0,
    moves_first=1,
    moves_per_worker=3,
    moves_total=5,
    nudge_gap_s=10.0,
    compare_every_s=40.0,
    outbox_max=16,
    points=20,
)

keys = st.sampled_from(KEYS)
numbers = st.integers(0, 4)
repos = st.builds(
    CatalogRepo,
    keys,
    trusted_only=st.booleans(),
    replicas=st.sampled_from([None, 1, 2, 3]),
    pins=st.sampled_from([(), (), ("ann",), ("eve", "bob")]),
)


class FleetRules(RuleBasedStateMachine):
    """Whatever happens, in whatever order."""

    @initialize(begin=st.integers(0, 4), put=st.lists(repos, max_size=4, unique_by=lambda repo: repo.key))
    def start(self, begin, put):
        self.fleet = Fleet(HURRIED)
        self.witness = {}
        self.restarted = False
        self.safe = set()  # complete somewhere, and nobody was told or forced to lose it
        self.fleet.before_act = self.check_send
        for name in NAMES[:begin]:
            self.fleet.join(name, trusted=name != "cid")
        self.fleet.catalog(*put)

    # What happens

    @rule(
        name=st.sampled_from(NAMES),
        capacity=st.sampled_from([None, None, 0, 2]),
        weight=st.sampled_from([1.0, 0.5, 3.0]),
    )
    def joins(self, name, capacity, weight):
        if name not in [w.facts.name for w in self.fleet.workers]:
            self.fleet.join(name, trusted=name != "cid", capacity=capacity, weight=weight)

    def worker(self, number):
        return self.fleet.workers[number % len(self.fleet.workers)] if self.fleet.workers else None

    @rule(
        put=st.lists(repos, max_size=3),
        removed=st.lists(keys, max_size=2),
        forgotten=st.lists(keys, max_size=3),
    )
    def catalog(self, put, removed, forgotten):
        self.fleet.catalog(*put, removed=removed, forgotten=forgotten)
        self.safe -= set(KEYS) - set(self.fleet.store.catalog)

    @rule(times=st.integers(1, 6), gap_s=st.sampled_from([0.5, 1.0, 2.0]))
    def time_passes(self, times, gap_s):
        self.fleet.tick(times, gap_s)

    @rule(gap_s=st.sampled_from([30.0, 3600.0]))
    def time_is_slept_through(self, gap_s):
        self.fleet.tick(1, gap_s)

    @rule(number=numbers, times=st.integers(1, 12))
    def one_is_silent(self, number, times):
        silent = self.worker(number)
        for _ in range(times):
            self.fleet.time_s += 2.0
            for worker in self.fleet.workers:
                if worker is not silent:
                    self.fleet.beat(worker)
            self.fleet.handle(Ticked())

    @rule(number=numbers, count=st.sampled_from([1, None]))
    def reads(self, number, count):
        if worker := self.worker(number):
            self.fleet.read(worker, count)
            self.note_safe()

    @rule(number=numbers, room=st.sampled_from([True, True, False]), all_of_them=st.booleans())
    def ends_clones(self, number, room, all_of_them):
        if worker := self.worker(number):
            for key in tuple(worker.clones)[: None if all_of_them else 1]:
                self.fleet.finish(worker, key, room=room)
            self.note_safe()

    @rule()
    def all_work(self):
        self.fleet.work()
        self.note_safe()

    @rule(key=keys, digest=st.integers(1, 3))
    def upstream_moves(self, key, digest):
        self.fleet.upstream[key] = digest

    @rule(number=numbers)
    def syncs(self, number):
        if worker := self.worker(number):
            for key in worker.disk:
                self.fleet.sync(worker, key)

    @rule(number=numbers, noticed=st.booleans())
    def is_cut(self, number, noticed):
        if worker := self.worker(number):
            self.fleet.cut(worker, noticed=noticed)

    @rule(
        number=numbers,
        tells=st.sampled_from([True, True, False]),
        trusted=st.sampled_from([None, None, True, False]),
    )
    def connects(self, number, tells, trusted):
        worker = self.worker(number)
        if worker and not worker.connected:
            if trusted is not None:
                worker.facts = type(worker.facts)(
                    worker.facts.name, trusted, worker.facts.weight, worker.facts.capacity
                )
            self.fleet.connect(worker, tells=tells)

    @rule(number=numbers, all_of_it=st.booleans())
    def tells(self, number, all_of_it):
        worker = self.worker(number)
        if worker and worker.connected and not self.fleet.view(worker).reconciled:
            self.fleet.tell(worker, all_of_it=all_of_it)

    @rule(number=numbers, lost=st.lists(keys, max_size=2))
    def reboots(self, number, lost):
        if worker := self.worker(number):
            self.safe -= set(lost) & set(worker.disk)
            self.fleet.reboot(worker, lost=lost)

    @rule(number=numbers, accepting=st.booleans())
    def disk_guard(self, number, accepting):
        if worker := self.worker(number):
            worker.accepting = accepting
            self.fleet.beat(worker)

    @rule(number=numbers, event=st.sampled_from([DrainAsked, DutyResumed, QuarantineAsked]))
    def people(self, number, event):
        if worker := self.worker(number):
            self.fleet.handle(event(worker.id, "why") if event is QuarantineAsked else event(worker.id))

    @rule(number=numbers)
    def retires(self, number):
        if worker := self.worker(number):
            self.fleet.retire(worker)
            self.safe -= set(worker.disk)

    @rule()
    def brake_is_overruled(self):
        self.fleet.handle(BrakeOverruled())

    @rule(number=numbers)
    def command(self, number):
        if worker := self.worker(number):
            self.fleet.handle(CommandGiven(worker.id, "hello"))

    @rule(key=keys, digest=st.integers(1, 3))
    def witness_holds(self, key, digest):
        self.witness[key] = digest
        self.fleet.handle(WitnessHeld((HeldCopy(key, digest),)))

    @rule()
    def witness_is_lost(self):
        self.witness.clear()
        self.fleet.handle(WitnessLost())

    @rule()
    def coordinator_restarts(self):
        before = self.seen()
        self.fleet.restart()
        self.restarted = True
        self.witness.clear()
        assert self.seen() == before

    # What must hold

    def seen(self):
        """Should and really, as far as they are persisted."""
        views = [self.fleet.machine.repo(key) for key in KEYS]
        return [
            view and (view.removed, view.salt, {(c.worker, c.rank, c.state, c.reason) for c in view.copies})
            for view in views
        ]

    def note_safe(self):
        held = {key for worker in self.fleet.workers for key in worker.disk}
        self.safe |= held & set(self.fleet.store.catalog)

    def check_send(self, send: Send):
        """Nothing is told to be deleted without a copy that covers it."""
        if not isinstance(send.command, Release) or not send.command.delete or self.was_sent(send):
            return
        crew = {view.record.id: view for view in self.fleet.machine.workers()}
        for key in send.command.keys:
            view = self.fleet.repo(key)
            copy = next(c for c in view.copies if c.worker == send.worker)
            assert copy.state is CopyState.LEAVING
            covers = [
                c
                for c in view.copies
                if c.rank is not None and c.state is CopyState.HELD and c.digest == copy.digest
                if crew[c.worker].record.facts.trusted and crew[c.worker].reconciled
            ]
            assert view.removed or covers or self.witness.get(key) == copy.digest

    def was_sent(self, send):
        """In an earlier connection of the same session: then it is no new decision."""
        earlier = (a for decision in self.fleet.decisions[:-1] for a in decision.actions)
        return any(isinstance(a, Send) and a.command is send.command for a in earlier)

    @invariant()
    def no_copy_is_lost(self):
        held = {key for worker in self.fleet.workers for key in worker.disk}
        lost = self.safe - held
        assert all(key in self.witness for key in lost), f"{lost} is nowhere"

    @invariant()
    def every_clone_under_way_is_counted(self):
        machine = self.fleet.machine
        for view in machine.workers():
            counted = view.record.liveness is not Liveness.DOWN and view.reconciled
            outstanding = machine._pace.outstanding(view.record.id)
            assert outstanding == (view.asked if counted else 0)
        assert machine._pace.total_outstanding == sum(
            machine._pace.outstanding(view.record.id) for view in machine.workers()
        )

    @invariant()
    def every_repo_has_owners_or_waits_visibly(self):
        machine = self.fleet.machine
        crew = {view.record.id: view.record for view in machine.workers()}
        if machine.totals().warming:
            return
        for key in self.fleet.store.catalog:
            view = self.fleet.repo(key)
            wanted = [c for c in view.copies if c.rank is not None]
            assert len(wanted) == view.replicas or view.no_room or self.restarted
            assert len(wanted) <= view.replicas
            for copy in wanted:
                assert crew[copy.worker].duty is Duty.ACTIVE
                assert crew[copy.worker].liveness is not Liveness.DOWN

    @invariant()
    def those_that_wait_for_room_are_counted(self):
        table = self.fleet.machine._table
        assert self.fleet.machine.totals().no_room == np.count_nonzero(table.flags[: table.rows] & NO_ROOM)
        told = [a.over for a in self.fleet.alerts() if a.kind is AlertKind.NO_ROOM][-1:]
        assert self.restarted or (told == [False]) == (self.fleet.machine.totals().no_room > 0)

    @invariant()
    def the_store_knows_what_the_machine_knows(self):
        table = self.fleet.machine._table
        rows = {
            (table.key_of(int(table.c_row[c])), int(table.c_worker[c])): (
                None if table.c_rank[c] == UNWANTED else int(table.c_rank[c]),
                int(table.c_state[c]),
            )
            for c in range(table.copies)
            if table.c_row[c] >= 0
        }
        stored = {at: (row.rank, int(row.state)) for at, row in self.fleet.store.copies.items()}
        assert stored == rows

    def teardown(self):
        """When everybody is back and time passes, everything ends as it should."""
        if not hasattr(self, "fleet"):
            return
        fleet = self.fleet
        for worker in fleet.workers:
            worker.accepting = True
            if not worker.connected or not fleet.view(worker).reconciled:
                fleet.cut(worker)
                assert fleet.connect(worker)
        fleet.run(60, gap_s=3.0)  # several nudges, comparisons and sweeps
        crew = {view.record.id: view for view in fleet.machine.workers()}
        quarantined = {w for w, view in crew.items() if view.record.duty is Duty.QUARANTINED}
        for key in KEYS:
            view = fleet.machine.repo(key)
            if view is None:
                continue
            for copy in view.copies:
                assert copy.state is CopyState.HELD or copy.worker in quarantined, fleet.machine.explain(key)
            if view.removed:
                assert {c.worker for c in view.copies} <= quarantined
                continue
            told = [w.id for w in fleet.workers if w.roles.get(key) and w.id not in quarantined]
            assert told == ([] if view.primary is None else [view.primary])
            trusted = {
                c.digest for c in view.copies if c.rank is not None and crew[c.worker].record.facts.trusted
            }
            stay = [c for c in view.copies if c.rank is None and c.worker not in quarantined]
            assert not [c for c in stay if c.digest in trusted and len(self.fleet.should(key)) > 0]
        assert fleet.machine.totals().planned == 0


TestFleetRules = FleetRules.TestCase
TestFleetRules.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_worker_speaks_only_for_what_it_was_given():
    fleet = Fleet()
    first, second = fleet.join("a"), fleet.join("b")
    fleet.catalog(*KEYS)
    fleet.run(5)
    key = KEYS[0]
    holder = fleet.holders(key)[0]
    other = second if holder is first else first
    assert fleet.machine.speaks_for(key, holder.id)
    assert not fleet.machine.speaks_for(key, other.id)
    other.disk[key] = holder.disk[key]
    fleet.reboot(other)
    fleet.connect(other)  # it tells that it holds it, too
    assert any(copy.worker == other.id for copy in fleet.machine.repo(key).copies)
    assert not fleet.machine.speaks_for(key, other.id)
