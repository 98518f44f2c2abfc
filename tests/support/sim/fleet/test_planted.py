"""Faults planted into the machine or its shell, each found by the checker whose promise it breaks.

A checker that has never failed shows nothing. Each fault here is one that somebody could really write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from evermirror.core.fleet import placement
from evermirror.core.fleet.attendance import GRACE, Attendance
from evermirror.core.fleet.brake import Brake
from evermirror.core.fleet.copies import NOBODY, UNWANTED
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import PutSalt
from evermirror.core.fleet.fill import fill
from evermirror.core.fleet.handover import HELD, LEAVING, Handover
from evermirror.core.fleet.ids import IdBitmap
from evermirror.core.fleet.inbox import Inbox, Taken
from evermirror.core.fleet.liveness import Rounds
from evermirror.core.fleet.membership import Membership
from evermirror.core.fleet.outbox import Outbox
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.placing import Placing
from evermirror.core.fleet.rebalance import Rebalancer
from evermirror.core.fleet.reconcile import Reconciler
from evermirror.core.fleet.sessions import Sessions
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.shares import Budget
from evermirror.model.worker import Liveness, WorkerId
from tests.support.sim.fleet.checkers import Checkers
from tests.support.sim.fleet.faults import Faults
from tests.support.sim.fleet.script import Script, ScriptError
from tests.support.sim.fleet.store import SimStore
from tests.support.sim.fleet.story import Story, Violation
from tests.support.sim.fleet.world import HOUR, Plan, World

SCRIPTS = Path(__file__).parents[3] / "scenarios" / "fleet"
SEEDS = 8  # tried in turn until the fault shows
SMALL = Plan(
    workers=6,
    repos=60,
    trusted=0.7,
    private=0.2,
    duration_s=3 * HOUR,
    calm_s=1 * HOUR,
    settings=FleetSettings(warm_up_s=60.0),
)
CRASHES = Faults(worker_crash=1.5, worker_break=2.0, join=1.0, drain=1.0, push=20.0)


@dataclass(frozen=True)
class Planted:
    """``promises``: which checkers may find it first."""

    plant: Callable[[pytest.MonkeyPatch], None]
    promises: set[str]
    plan: Plan


PLANTED: dict[str, Planted] = {}


def planted(name: str, *promises: str, **changes: object):
    def keep(plant):
        PLANTED[name] = Planted(plant, set(promises), replace(SMALL, **changes))
        return plant

    return keep


@planted("the grace is a little too short", "grace", faults=CRASHES)
def _(patch):
    suspect = Attendance._suspect

    def short(self, member, utc_s, draft):
        suspect(self, member, utc_s, draft)
        self._timers.set((GRACE, member.id), self.lived_s + self._settings.grace_s - 10.0)

    patch.setattr(Attendance, "_suspect", short)


@planted("people lose what moves to a worker that joins", "kept", faults=Faults(join=4.0), serving=True)
def _(patch):
    patch.setattr(Member, "keeps_moved", property(lambda self: False))


@planted("a pause counts as time lived", "suspicion", "grace", faults=Faults(stall=2.0, stall_s=HOUR))
def count_pauses(patch):
    def naive(self, mono_s):
        before, self._ticked_at = self._ticked_at, mono_s
        if before is not None:
            self.lived_s += mono_s - before
            self.rounds = int(self.lived_s / self._heartbeat_s)

    patch.setattr(Rounds, "tick", naive)


@planted("reports are acknowledged before they are written", "reports", faults=CRASHES)
def _(patch):
    commit = SimStore.commit
    behind: list[tuple] = []

    def late(self, writes, catalog=None):
        if behind:
            commit(self, *behind.pop())
        if catalog is not None:
            commit(self, writes, catalog)
        else:
            behind.append((writes, catalog))

    patch.setattr(SimStore, "commit", late)


PATIENT = replace(SMALL.settings, clone_patience_s=100 * HOUR)  # or others would be given what hangs


@planted(
    "a first clone that failed keeps its place", "settled", dead=0.5, calm_s=0.5 * HOUR, settings=PATIENT
)
def _(patch):
    patch.setattr(Handover, "told_deferred", lambda self, row, c, draft: None)


RATED = replace(SMALL.settings, host_rate=0.2, polls_per_second=1.0)


@planted("a share counts as given up before its worker says so", "rates", faults=CRASHES, settings=RATED)
def _(patch):
    split = Budget.split

    def hasty(self, own, sharing, tellable, back):
        changed = split(self, own, sharing, tellable, back)
        self.bound = self.given.copy()
        return changed

    patch.setattr(Budget, "split", hasty)


LIES = Faults(worker_lie=6.0, worker_crash=0.5)


@planted("the word of an untrusted worker counts as proof", "verified", faults=LIES, trusted=0.3)
def _(patch):
    patch.setattr(Member, "proves", property(lambda self: self.alive))


@planted("what is not wanted is deleted at once", "kept", faults=CRASHES)
def _(patch):
    patch.setattr(Handover, "_covered", lambda self, row, c, copies: True)
    patch.setattr(Handover, "_all_wanted_held", lambda self, copies: True)


@planted("a copy with other refs counts as the same", "kept", faults=replace(CRASHES, push=300.0))
def _(patch):
    def any_digest(self, row, c, copies):
        one = self._one
        return any(
            one.c_rank[o] != UNWANTED and one.c_state[o] == HELD and self._member(o).vouches for o in copies
        )

    patch.setattr(Handover, "_covered", any_digest)


@planted("a command is left out when a worker resumes", "sessions", "commands", faults=CRASHES)
def _(patch):
    resend = Outbox.resend
    patch.setattr(Outbox, "resend", lambda self, seen: resend(self, seen)[1:])


@planted(
    "the id of a worker that is down is given away",
    "ids",
    faults=replace(CRASHES, worker_death=1.0, join=3.0),
)
def _(patch):
    enlist = Crew.enlist

    def hasty(self, facts, now_utc_s):
        for member in list(self):
            if member.record.liveness is Liveness.DOWN:
                self.dismiss(member.id)
                break
        return enlist(self, facts, now_utc_s)

    patch.setattr(Crew, "enlist", hasty)


@planted("an untrusted worker's word allows a deletion", "kept", faults=CRASHES, trusted=0.3)
def _(patch):
    patch.setattr(Member, "vouches", property(lambda self: self.ready and self.alive))


@planted(
    "how often a repo was handed back is forgotten",
    "salt",
    faults=Faults(worker_full=2.0, coordinator_crash=4.0, commit=20.0, commit_share=0.1),
)
def _(patch):
    apply = SimStore._apply
    patch.setattr(
        SimStore, "_apply", lambda self, write: None if isinstance(write, PutSalt) else apply(self, write)
    )


@planted(
    "messages of old links are heard",
    "sessions",
    "settled",
    faults=replace(CRASHES, worker_break=10.0, push=300.0),
)
def _(patch):
    patch.setattr(Sessions, "current", lambda self, worker, session: self._crew.get(worker))


@planted(
    "a report after a missing one is taken",
    "reports",
    faults=replace(CRASHES, coordinator_crash=6.0, push=300.0),
)
def _(patch):
    restore = Inbox.restore
    patch.setattr(
        Inbox, "restore", lambda self, worker, generation, seq: restore(self, worker, generation, seq - 1)
    )


@planted("the brake does not hold", "brake", faults=Faults(partition=3.0, cut_s=HOUR))
def _(patch):
    patch.setattr(Brake, "update", lambda self, suspects, members: False)


@planted("private repos go to anybody", "private", trusted=0.4)
def _(patch):
    wishes = Rebalancer._wishes

    def open_to_all(self, rows, joined, barred):
        found = wishes(self, rows, joined, barred)
        return replace(found, trusted_only=np.zeros(len(rows), bool))

    patch.setattr(Rebalancer, "_wishes", open_to_all)
    patch.setattr(Handover, "may_know", lambda self, row, member: True)  # which would not ask for them


@planted("clones are asked for without a bound", "pace")
def _(patch):
    def all_of_it(self, worker):
        known = self._workers[worker]
        lane = known.orphans or known.rest
        return lane.pop() if lane else None

    patch.setattr(Pace, "take", all_of_it)


def forget_placement(patch, when):
    """Where things are is not asked for: everything is where the ring says."""
    wishes = Rebalancer._wishes

    def forgetful(self, rows, joined, barred):
        found = wishes(self, rows, joined, barred)
        if not when(self, rows, joined):
            return found
        nobody = np.full_like(found.should, NOBODY)
        return replace(found, should=nobody, held_row=found.held_row[:0], held_worker=found.held_worker[:0])

    patch.setattr(Rebalancer, "_wishes", forgetful)


@planted("a join computes everything anew", "still", faults=Faults(join=3.0), repos=300)
def _(patch):
    forget_placement(patch, lambda self, rows, joined: joined and self._table.copies)


@planted("a restarted coordinator begins from nothing", "restart", faults=Faults(coordinator_crash=3.0))
def _(patch):
    restored = SimStore.restored
    patch.setattr(SimStore, "restored", lambda self: replace(restored(self), copies=()))


@planted(
    "a restarted coordinator places everything again",
    "still",
    faults=Faults(coordinator_crash=3.0, worker_crash=1.0),
    repos=300,
)
def _(patch):
    restored = Placing.restored

    def all_again(self):
        restored(self)
        self._all_due = True

    patch.setattr(Placing, "restored", all_again)
    forget_placement(patch, lambda self, rows, joined: not joined and len(rows) == len(self._table))


@planted("what a lost worker had is given to nobody", "owned", faults=Faults(worker_death=1.0))
def _(patch):
    patch.setattr(Membership, "gone", lambda self, member, now_s, draft: None)


@planted("a new repo is passed over", "owned", faults=Faults(commit=6.0, commit_share=0.1))
def _(patch):
    place = Rebalancer.place

    def almost(self, rows, *rest, **named):
        return place(self, rows[1:] if len(self._table) > 60 else rows, *rest, **named)

    patch.setattr(Rebalancer, "place", almost)


@planted("the bound on load is ignored", "load", "settled", repos=600, workers=10, private=0.0)
def _(patch):
    place = Rebalancer.place

    def unbounded(self, *rest, **named):
        self._settings = replace(self._settings, load_bound=9.0)
        return place(self, *rest, **named)

    patch.setattr(Rebalancer, "place", unbounded)


@planted(
    "the bound on load is ignored among unequal workers",
    "load",
    repos=600,
    workers=10,
    weights=(0.5, 1.0, 2.0),
    replicas=(1, 2, 3),
)
def _(patch):
    place = Rebalancer.place

    def unbounded(self, *rest, **named):
        self._settings = replace(self._settings, load_bound=9.0)
        return place(self, *rest, **named)

    patch.setattr(Rebalancer, "place", unbounded)


@planted(
    "a light worker is given as much as a heavy one",
    "load",
    repos=600,
    workers=10,
    weights=(0.5, 1.0, 2.0),
)
def _(patch):
    sites = Rebalancer._sites

    def all_alike(self, rows):
        found = sites(self, rows)
        return replace(found, weight=np.ones_like(found.weight))

    patch.setattr(Rebalancer, "_sites", all_alike)
    patch.setattr(Member, "weight_for_new", lambda self, now_utc_s: 1.0)


@planted("everything is said to be beyond the bound", "load", repos=600, workers=10, weights=(0.5, 1.0, 2.0))
def _(patch):
    def as_it_comes(seating, bounds, leavers):
        nothing = np.zeros_like(bounds.most)
        fill(seating, replace(bounds, placing=nothing, most=nothing), leavers)

    patch.setattr(placement, "fill", as_it_comes)


def find(plan: Plan) -> Violation | None:
    """The first broken promise in a few seeds."""
    for seed in range(1, SEEDS + 1):
        try:
            World(replace(plan, seed=seed), Checkers, Story()).run()
        except Violation as violation:
            return violation
    return None


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_found(name, monkeypatch):
    case = PLANTED[name]
    case.plant(monkeypatch)
    violation = find(case.plan)
    assert violation is not None, "not found"
    assert violation.promise in case.promises, violation.message


@pytest.mark.parametrize("name", PLANTED)
def test_without_the_fault_every_promise_is_kept(name):
    World(replace(PLANTED[name].plan, seed=1), Checkers, Story()).run()


# Some faults need a race that chance hardly makes: the scripts make it.

IN_SCRIPTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {}


def planted_for(script: str, name: str):
    def keep(plant):
        IN_SCRIPTS[name] = (plant, script)
        return plant

    return keep


@planted_for("report_twice_and_gap", "a report that came twice counts twice")
def _(patch):
    def forgiving(self, worker, generation, seq):
        return Taken.GAP if seq > self.last(worker, generation) + 1 else Taken.NEW

    patch.setattr(Inbox, "check", forgiving)


planted_for("paused_coordinator", "a pause counts")(count_pauses)


@planted_for("wanted_again_while_leaving", "a copy that was told to go counts")
def _(patch):
    told = Handover.told_complete

    def believe(self, row, c, digest, verified_s, draft):
        told(self, row, c, digest, verified_s, draft)
        if self._one.c_state[c] == LEAVING:
            self._set_state(row, c, HELD, draft)

    patch.setattr(Handover, "told_complete", believe)


@planted_for("old_sessions_late_messages", "messages of old links are heard")
def _(patch):
    patch.setattr(Sessions, "current", lambda self, worker, session: self._crew.get(worker))


@planted_for("disk_wiped", "a copy that is not told of is believed to be there")
def _(patch):
    patch.setattr(Reconciler, "_is_missing", lambda self, row, c, draft: None)


@planted_for("no_room_and_room_again", "who waits for room is never tried again")
def _(patch):
    rows_due = Placing._rows_due
    patch.setattr(
        Placing, "_rows_due", lambda self, joined: rows_due(self, joined=False) if self._all_due else None
    )


@planted_for("release_in_flight_resumed", "a command that was not seen is not sent again")
def _(patch):
    patch.setattr(Outbox, "resend", lambda self, seen: [])


@planted_for("crash_before_write", "a report is acknowledged although it was never written")
def _(patch):
    patch.setattr(Inbox, "last", lambda self, worker, generation: 1)


@planted_for("stray", "what nobody knows is deleted")
def _(patch):
    told = Reconciler.told

    def tidy(self, member, copies, now_s, draft):
        for held in copies:
            if self._table.row_of(held.key) < 0:
                draft.delete(member.id, held.key, held.digest)
        told(self, member, copies, now_s, draft)

    patch.setattr(Reconciler, "told", tidy)


@planted_for("drain_and_retire", "the id of a worker that is down is given away")
def _(patch):
    take = IdBitmap.take

    def again(self):
        self.free(take(self))
        return WorkerId(0)

    patch.setattr(IdBitmap, "take", again)


@pytest.mark.parametrize("name", IN_SCRIPTS)
def test_planted_fault_spoils_its_script(name, monkeypatch):
    plant, script = IN_SCRIPTS[name]
    path = SCRIPTS / f"{script}.txt"
    Script.read(path).play()
    plant(monkeypatch)
    with pytest.raises(ScriptError, match=rf"^{script}\.txt:\d+: "):
        Script.read(path).play()
