"""The mind of the fleet: one door for everything that happens, and what follows from it.

    event ──▶ handle ──▶ the part that knows ──▶ facts change in the tables, rows are touched
                                                     │
               alone, handover: settle each touched row; then pace: who may be asked for more
                                                     │
                                                     ▼
                                          Decision(writes, actions)

Rules
- Writes are persisted before actions start. All that is sent follows from what is persisted: after a crash
  a new machine is made from the store, with a new epoch; every session is then fresh, and what a worker
  tells of its disk against the persisted copies gives the same commands again.
- Events of an older session of a worker are ignored: the newest session counts.
- A report is taken once, in order; its number is written together with what follows from it. One that could
  not be handled is not taken.
- Joins within ``rebalance_gap_s`` are one change of the placement. Losses, new repos and repos handed back
  are placed at once, for the rows concerned alone.
- The parts: attendance (who is there), words (what workers say), rebalance (who should hold what), reconcile
  (who really does), handover (from one to the other, repo by repo), pace (how fast), rates (who may ask
  upstream how often). This file only routes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from evermirror.core.fleet.alone import settle_alone
from evermirror.core.fleet.attendance import GRACE, Attendance, Timers
from evermirror.core.fleet.copies import UNWANTED
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import NOTHING, AckReports, Decision, EventFailed, ReportTaken
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import (
    AggregatorsTold,
    BrakeOverruled,
    CatalogChanged,
    CloneHastened,
    ClonesDeferred,
    CommandGiven,
    CommandsAcked,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    DrainAsked,
    DutyResumed,
    Event,
    HeartbeatHeard,
    HeldTold,
    Moment,
    OtherReported,
    QuarantineAsked,
    RangesCompared,
    ReposHandedBack,
    RetireAsked,
    Ticked,
    UnreachedTold,
    WitnessHeld,
    WitnessLost,
    WorkerConnected,
    WorkerDisconnected,
)
from evermirror.core.fleet.explain import explain
from evermirror.core.fleet.handover import PLANNED, UNTOLD, Handover
from evermirror.core.fleet.inbox import Inbox
from evermirror.core.fleet.letters import LettersLost
from evermirror.core.fleet.listing import Listing
from evermirror.core.fleet.look import (
    losing,
    may_read,
    primary_of,
    repo_view,
    speaks_for,
    totals,
    worker_views,
)
from evermirror.core.fleet.membership import Membership
from evermirror.core.fleet.moves import Moves, moves
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.placing import BARRED, Placing
from evermirror.core.fleet.rates import FleetRates
from evermirror.core.fleet.reach import UNREACHED, Reach
from evermirror.core.fleet.rebalance import Rebalancer
from evermirror.core.fleet.reconcile import Reconciler
from evermirror.core.fleet.restoring import CHUNK as RESTORE_CHUNK
from evermirror.core.fleet.restoring import Tables
from evermirror.core.fleet.sessions import Sessions
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.slow import SLOW_LOOK, STALLED, SlowClones
from evermirror.core.fleet.telling import Telling
from evermirror.core.fleet.views import Losing, RepoView, Restored, Totals, WorkerView
from evermirror.core.fleet.wheel import TimerWheel
from evermirror.core.fleet.words import COMPARE, Words
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Liveness, WorkerId, WorkerRecord

NUDGE, SWEEP = "nudge", "sweep"  # timers, beside those of the parts


class FleetMachine:
    """``handle`` is the only way to change it; everything else looks."""

    def __init__(
        self, settings: FleetSettings, epoch: int, started: Moment, restored: Restored | None = None
    ) -> None:
        self.settings = settings
        self._now_s = started.utc_s
        tables = restored.tables if restored is not None and restored.tables is not None else Tables()
        self._table = tables.table
        self._crew = Crew(settings.outbox_max)
        self._timers: Timers = TimerWheel(settings.tick_s)
        self._pace = Pace(settings.moves_first, settings.moves_per_worker, settings.moves_total)
        self._inbox = Inbox()
        self._attendance = Attendance(settings, self._crew, self._timers)
        self._handover = Handover(self._table, self._crew, self._pace)
        self._reconciler = Reconciler(self._table, self._handover)
        self._rebalancer = Rebalancer(settings, self._table, self._crew, self._pace, self._handover)
        self._listing = Listing(settings.replicas, self._table, self._rebalancer, self._handover)
        self._sessions = Sessions(self._crew, self._inbox, epoch)
        self._placing = Placing(
            settings, self._table, self._crew, self._attendance, self._rebalancer, self._timers
        )
        self._membership = Membership(
            self._table, self._crew, self._attendance, self._placing, self._handover, self._pace
        )
        self._slow = SlowClones(
            settings.clone_patience_s,
            self._table,
            self._crew,
            self._attendance,
            self._placing,
            self._membership,
            self._timers,
        )
        self._reach = Reach(settings, self._crew, self._attendance, self._membership, self._timers)
        self._rates = FleetRates(settings, self._table, self._crew)
        self._words = Words(
            settings.compare_every_s,
            self._crew,
            self._sessions,
            self._reconciler,
            Telling(
                self._table, self._reconciler, self._membership, self._placing, self._handover, self._slow
            ),
            self._rates,
            self._attendance,
            self._timers,
        )
        self._routes: dict[type, Callable[[Any, Moment, Draft], None]] = {
            AggregatorsTold: lambda event, now, draft: self._placing.prove(not event.some),
            BrakeOverruled: self._brake_overruled,
            CatalogChanged: self._catalog_changed,
            CloneHastened: lambda event, now, draft: self._hasten(event.key),
            ClonesDeferred: self._words.clones_deferred,
            CommandGiven: self._command_given,
            CommandsAcked: self._commands_acked,
            CopiesDropped: self._words.copies_dropped,
            CopiesVerified: self._words.copies_verified,
            DeletionsDeclined: self._words.deletions_declined,
            DrainAsked: lambda event, now, draft: self._membership.drain(event.worker, now.utc_s, draft),
            DutyResumed: lambda event, now, draft: self._membership.resume(event.worker, now.utc_s, draft),
            HeldTold: self._words.held_told,
            OtherReported: self._words.other_reported,
            QuarantineAsked: lambda event, now, draft: self._membership.quarantine(
                event.worker, event.reason, now.utc_s, draft
            ),
            RangesCompared: self._words.ranges_compared,
            ReposHandedBack: self._words.repos_handed_back,
            RetireAsked: self._retire_asked,
            Ticked: self._ticked,
            UnreachedTold: lambda event, now, draft: self._reach.told(event.workers, draft),
            WitnessHeld: lambda event, now, draft: self._listing.witnessed(event.copies, draft),
            WitnessLost: lambda event, now, draft: self._listing.unwitnessed(event.keys),
            WorkerConnected: self._worker_connected,
            WorkerDisconnected: self._worker_disconnected,
        }
        self._rings: dict[str, Callable[[int, Moment, Draft], None]] = {
            GRACE: self._grace_ended,
            COMPARE: self._words.compare,
            NUDGE: lambda row, now, draft: draft.touched.update({row: None}),
            BARRED: lambda row, now, draft: self._placing.unbar(row),
            SWEEP: self._sweep,
            SLOW_LOOK: lambda about, now, draft: self._slow.look(now.utc_s, draft),
            UNREACHED: lambda worker, now, draft: self._reach.grace_ended(worker, now.utc_s, draft),
            STALLED: lambda worker, now, draft: self._slow.try_again(worker, draft),
        }
        self._attendance.tick(started.mono_s, started.utc_s, Draft(self._table, self._crew))
        self._timers.set((SWEEP, 0), settings.compare_every_s)
        if restored is not None:
            self._restore(restored, tables)

    # The door

    def handle(self, event: Event, now: Moment) -> Decision:
        """Take in what happened; what is to be persisted, and then done."""
        self._now_s = now.utc_s
        if type(event) is HeartbeatHeard and self._nothing_new(event, now):
            return NOTHING
        draft = Draft(self._table, self._crew)
        try:
            if isinstance(event, HeartbeatHeard):
                self._heartbeat_heard(event, now, draft)
            else:
                self._routes[type(event)](event, now, draft)
            self._settle(draft, now)
        except Exception as error:
            if self.lost is not None:
                raise  # the tables cannot be read: nothing is to be decided from them
            raise EventFailed(event, self.untaken(draft.salvaged())) from error
        decision = draft.close()
        if decision.writes or decision.actions:
            self._rates.changed()
        return decision

    def untaken(self, decision: Decision) -> Decision:
        """The same without the report that it took: its worker will send that again."""
        taken = [write for write in decision.writes if isinstance(write, ReportTaken)]
        for report in taken:
            self._inbox.give_back(report.worker, report.generation, report.seq)
        if not taken:
            return decision
        writes = tuple(write for write in decision.writes if not isinstance(write, ReportTaken))
        return Decision(writes, tuple(a for a in decision.actions if not isinstance(a, AckReports)))

    def _settle(self, draft: Draft, now: Moment) -> None:
        for row in settle_alone(self._table, self._crew, draft.touched, draft):
            self._handover.settle(row, draft, self)
        self._ask_for_more(draft, now)
        self._placing.tell_room(draft)

    def _ask_for_more(self, draft: Draft, now: Moment) -> None:
        """As many planned copies as their workers and the whole fleet may have at once."""
        one = self._table.one
        for worker in self._pace.ready():
            member = self._crew[worker]
            while draft.takes_for(member) and (c := self._pace.take(worker)) is not None:
                wanted = one.c_worker[c] == worker and one.c_state[c] == PLANNED and one.c_rank[c] != UNWANTED
                if wanted and self._handover.may_know(one.c_row[c], member):
                    self._handover.ask(c, draft, now.utc_s)
                    self._pace.asked(worker)

    def nudge_due(self, row: int) -> bool:
        """For handover: at most one nudge of a row in ``nudge_gap_s``; it is looked at again after that."""
        if (NUDGE, row) in self._timers:
            return False
        self._timers.set((NUDGE, row), self._attendance.lived_s + self.settings.nudge_gap_s)
        return True

    # What others see

    def repo(self, key: RepoKey) -> RepoView | None:
        return repo_view(self._table, self._crew, self._handover, key)

    @property
    def lost(self) -> LettersLost | None:
        """Why this machine is of no use any more: an event may be half taken in. None while all is well."""
        return self._table.lost

    def refusal(self, event: WorkerConnected) -> str:
        """Why such a worker would not be let in; empty where it would."""
        return self._sessions.refusal(event)

    def primary_of(self, key: RepoKey) -> WorkerId | None:
        return primary_of(self._table, self._handover, key)

    def speaks_for(self, key: RepoKey, worker: WorkerId) -> bool:
        return speaks_for(self._table, self._crew, self._handover, key, worker)

    def may_read(self, key: RepoKey, worker: WorkerId) -> bool:
        return may_read(self._table, self._crew, self._handover, key, worker)

    def record(self, worker: WorkerId) -> WorkerRecord | None:
        return self._crew.record(worker)

    def workers(self) -> tuple[WorkerView, ...]:
        return worker_views(self._table, self._crew, self._rates.told)

    def rates_in_use(self) -> dict[str, tuple[float, float]]:
        """For each rate that is split, by host and "" for all: the most that may be in use, and the rate."""
        return self._rates.in_use()

    def totals(self) -> Totals:
        return totals(
            self._table,
            self._crew,
            self._rebalancer,
            self._now_s,
            braked=self._attendance.braked,
            warming=self._placing.warming,
        )

    def losing(self, worker: WorkerId) -> Losing:
        """What would follow if this worker were gone."""
        return losing(self._table, self._crew, worker)

    def moves(self, limit: int, *, public: bool) -> Moves:
        """Repos with a copy that comes or goes."""
        return moves(self._table, self._crew, limit, public=public)

    def explain(self, key: RepoKey) -> tuple[str, ...]:
        """Why a repo is where it is, in plain lines."""
        return explain(self._table, self._crew, self._rebalancer, self.repo(key))

    @property
    def nbytes(self) -> int:
        """Of the tables, which are nearly all of it."""
        return self._table.nbytes

    # Start

    def _restore(self, restored: Restored, tables: Tables) -> None:
        for record in restored.workers:
            member = self._crew.restore(record)
            if member is not None:
                self._attendance.watch(member)
                self._membership.gate(member)
        self._table.replicas[: self._table.rows] = self.settings.replicas
        self._rebalancer.pins.update(tables.pins)
        repos = iter(restored.repos)
        while chunk := list(islice(repos, RESTORE_CHUNK)):
            rows = self._listing.put([repo for repo, _ in chunk])
            self._table.salt[rows] = [salt for _, salt in chunk]
        self._listing.restore_removed(restored.removed)
        tables.know(member.id for member in self._crew)
        tables.put_copy_rows(restored.copies)
        if self._table.copies or len(self._crew):
            self._placing.restored()
        for report in restored.reports:
            self._inbox.restore(report.worker, report.generation, report.seq)
        self._table.c_primary[: self._table.copies] = UNTOLD
        self._rates.restored()

    # Workers

    def _worker_connected(self, event: WorkerConnected, now: Moment, draft: Draft) -> None:
        known = None if event.worker is None else self._crew.get(event.worker)
        before = None if known is None else known.record.facts
        joined = self._sessions.connect(event, now.utc_s, draft)
        if joined is None:
            return
        member, fresh = joined
        self._membership.heard(member, now.utc_s, draft)
        if fresh:
            self._pace.forget(member.id, keep_queue=True)
            self._reconciler.begin(member)
            self._rates.began(member, event.limits)
        else:
            self._rates.acked(member)
            self._rates.ready(member, now.utc_s, draft)
            self._handover.was_away(member)
            self._membership.touch_all(member, draft)
        self._membership.gate(member)
        if before is not None and before != member.record.facts:
            self._membership.changed(member, before, now.utc_s, draft)

    def _worker_disconnected(self, event: WorkerDisconnected, now: Moment, draft: Draft) -> None:
        member = self._sessions.current(event.worker, event.session)
        if member is not None:
            member.connected = False
            self._membership.gate(member)

    def _nothing_new(self, event: HeartbeatHeard, now: Moment) -> bool:
        """Nearly every heartbeat: noted, and that is all."""
        member = self._sessions.current(event.worker, event.session)
        if member is None:
            return True
        if member.accepting is not event.accepting or member.record.liveness is not Liveness.ALIVE:
            return False
        self._attendance.heard(member, now.utc_s)
        self._slow.heard(member, event.progress)
        return True

    def _heartbeat_heard(self, event: HeartbeatHeard, now: Moment, draft: Draft) -> None:
        member = self._sessions.current(event.worker, event.session)
        if member is None:
            return
        self._membership.heard(member, now.utc_s, draft)
        self._slow.heard(member, event.progress)
        if member.accepting is not event.accepting:
            self._membership.set_accepting(member, event.accepting, now.utc_s, draft)

    def _retire_asked(self, event: RetireAsked, now: Moment, draft: Draft) -> None:
        member = self._crew.get(event.worker)
        if member is not None:
            self._membership.retire(member, now.utc_s, draft)
            self._inbox.forget(member.id)
            self._rates.forget(member.id)
            self._slow.forget(member.id)
            self._reach.forget(member.id)
            self._timers.cancel((COMPARE, member.id))

    def _brake_overruled(self, event: BrakeOverruled, now: Moment, draft: Draft) -> None:
        for member in self._attendance.overrule(now.utc_s, draft):
            self._gone_down(member, now, draft)

    def _gone_down(self, member: Member, now: Moment, draft: Draft) -> None:
        self._membership.gone(member, now.utc_s, draft)
        self._rates.gone(member.id)

    # The catalog

    def _catalog_changed(self, event: CatalogChanged, now: Moment, draft: Draft) -> None:
        self._listing.remove(event.removed, draft)
        for row in self._listing.forget(event.forgotten, draft):
            self._timers.cancel((NUDGE, row))
            self._placing.unbar(row)
        if event.removed:
            self._placing.room_changed()
        if event.put:
            rows = np.unique(self._listing.put(event.put))
            known = rows[self._table.first[rows] >= 0]
            self._handover.tell_again(known)
            draft.touched.update(dict.fromkeys(known.tolist()))
            self._placing.place(rows, now.utc_s, draft)
            self._rates.listed(rows, now.utc_s, draft)
            for repo in event.put:
                if repo.urgent:  # it may have been planned before it was
                    self._hasten(repo.key)

    def _hasten(self, key: RepoKey) -> None:
        """Its planned copies are the next that their workers are asked for."""
        one, row = self._table.one, self._table.row_of(key)
        for c in self._table.copies_of(row) if row >= 0 else ():
            if one.c_state[c] == PLANNED and one.c_rank[c] != UNWANTED:
                self._pace.hasten(WorkerId(one.c_worker[c]), c)

    # Commands from outside, acknowledgements

    def _command_given(self, event: CommandGiven, now: Moment, draft: Draft) -> None:
        self._sessions.give(event.worker, event.command, draft)

    def _commands_acked(self, event: CommandsAcked, now: Moment, draft: Draft) -> None:
        member = self._sessions.current(event.worker, event.session)
        if member is not None:
            member.outbox.acked(event.seq)
            self._rates.acked(member)
            if member.deferred and draft.takes_for(member):
                draft.touched.update(dict.fromkeys(member.deferred))
                member.deferred.clear()

    # Time

    def _ticked(self, event: Ticked, now: Moment, draft: Draft) -> None:
        self._membership.suspected(self._attendance.tick(now.mono_s, now.utc_s, draft), draft)
        for kind, about in self._timers.advance(self._attendance.lived_s):
            self._rings[kind](about, now, draft)
        self._placing.tick(now.utc_s, draft)
        self._rates.tick(self._attendance.lived_s, now.utc_s, draft)

    def _grace_ended(self, worker: int, now: Moment, draft: Draft) -> None:
        member = self._attendance.grace_ended(WorkerId(worker), now.utc_s, draft)
        if member is not None:
            self._gone_down(member, now, draft)

    def _sweep(self, about: int, now: Moment, draft: Draft) -> None:
        """Now and then everything unfinished is looked at again, so that nothing hangs on a step that was
        missed."""
        self._timers.set((SWEEP, 0), self._attendance.lived_s + self.settings.compare_every_s)
        draft.touched.update(dict.fromkeys(self._placing.sweep().tolist()))
