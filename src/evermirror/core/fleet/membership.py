"""What follows when a worker comes, falls silent, goes down, fills up, or is wanted for less.

| what happens             | its ranks            | its copies                     | clones asked of it |
|--------------------------|----------------------|--------------------------------|--------------------|
| suspect                  | stay                 | others poll instead            | none               |
| down                     | go to others         | known, until it tells anew     | none               |
| back                     | its share, with what | told; settled one by one       | from few on        |
|                          | it still holds first |                                |                    |
| full disk                | stay, but for what   | stay                           | none               |
|                          | it was not asked yet |                                |                    |
| reached by no relay      | go to others         | stay until covered             | none               |
| draining                 | go to others         | stay until covered             | none               |
| quarantined              | go to others         | count for nothing, stay        | none               |
| retired                  | go to others         | forgotten                      | none; its id is free |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evermirror.core.fleet.attendance import Attendance
from evermirror.core.fleet.copies import UNWANTED, Reason
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Alert, AlertKind, DutyChanged, Refuse
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.handover import ASKED, PLANNED, Handover
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.placing import Placing
from evermirror.core.fleet.table import TRUSTED_ONLY, FleetTable
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId


class Membership:
    """The consequences; who is there is decided by attendance.py, by people, and by the workers
    themselves."""

    def __init__(
        self,
        table: FleetTable,
        crew: Crew,
        attendance: Attendance,
        placing: Placing,
        handover: Handover,
        pace: Pace,
    ) -> None:
        self._table = table
        self._crew = crew
        self._attendance = attendance
        self._placing = placing
        self._handover = handover
        self._pace = pace

    def gate(self, member: Member) -> None:
        """Whether clones may be asked of it now."""
        if member.takes and member.ready:
            self._pace.resume(member.id)
        else:
            self._pace.pause(member.id)

    # Signs of life, and silence

    def heard(self, member: Member, now_s: float, draft: Draft) -> None:
        self._attendance.heard(member, now_s)
        before = member.record.liveness
        if before is Liveness.ALIVE:
            return
        self._attendance.revive(member, now_s, draft)
        if before is Liveness.DOWN and member.reconciled:  # a fresh session has nothing under way
            self._count_asked(member)
        self.gate(member)
        self.touch_all(member, draft)  # also what only it holds: nobody was its primary meanwhile
        if before is Liveness.DOWN:
            self._placing.joins(member)

    def _count_asked(self, member: Member) -> None:
        """What it was asked for before it was given up is still under way."""
        table = self._table
        on = table.copies_on(member.id)
        self._pace.asked(member.id, int((table.c_state[on] == ASKED).sum()))

    def suspected(self, members: Iterable[Member], draft: Draft) -> None:
        for member in members:  # what it was asked for counts on: silent to us, it may still clone
            self.gate(member)
            self._touch_shared(member, draft)

    def gone(self, member: Member, now_s: float, draft: Draft) -> None:
        """Down, or retired: what it should hold goes to others."""
        self._placing.leaves(member)
        self._pace.forget(member.id)
        self.gate(member)
        self._give_away(member, now_s, draft, Reason.LOST)

    def changed(self, member: Member, before: WorkerFacts, now_s: float, draft: Draft) -> None:
        """It came back with another weight, capacity or name, or its token is trusted no more."""
        self._placing.bounds_changed()
        if before.trusted and not member.record.facts.trusted:
            self._give_away(member, now_s, draft, Reason.LOST, trusted_only=True)

    def unreached(self, member: Member, now_s: float, draft: Draft) -> None:
        """Nobody can read from it: what it should hold goes to others."""
        self._placing.leaves(member)
        self.gate(member)
        self._give_away(member, now_s, draft, Reason.LOST)

    def reached(self, member: Member, draft: Draft) -> None:
        """It can be read from again: it takes its share."""
        self.gate(member)
        self._placing.joins(member)
        self.touch_all(member, draft)

    def set_accepting(self, member: Member, accepting: bool, now_s: float, draft: Draft) -> None:
        """Its disk guard speaks. What it was not yet asked for goes elsewhere; the rest it hands back
        itself."""
        member.accepting = accepting
        self.gate(member)
        if accepting:
            self._placing.room_changed()
        else:
            self.move_waiting(member, now_s, draft)

    def move_waiting(self, member: Member, now_s: float, draft: Draft) -> None:
        """It takes nothing: what it was not yet asked for goes elsewhere."""
        table = self._table
        on = table.copies_on(member.id)
        waiting = on[(table.c_state[on] == PLANNED) & (table.c_rank[on] != UNWANTED)]
        rows = table.c_row[waiting].copy()
        for c, row in zip(waiting.tolist(), rows.tolist(), strict=True):
            self._handover.drop(row, c, draft)
        self._placing.place(rows, now_s, draft, why=Reason.NEXT)

    def _give_away(
        self, member: Member, now_s: float, draft: Draft, why: Reason, *, trusted_only: bool = False
    ) -> None:
        """What should be on it should be elsewhere; or only what none but trusted workers may hold."""
        table = self._table
        on = table.copies_on(member.id)
        rows = table.c_row[on[table.c_rank[on] != UNWANTED]].copy()
        if trusted_only:
            rows = rows[(table.flags[rows] & TRUSTED_ONLY) != 0]
        self._placing.place(rows, now_s, draft, why=why)
        self.touch_all(member, draft)

    def touch_all(self, member: Member, draft: Draft) -> None:
        draft.touched.update(dict.fromkeys(self._table.c_row[self._table.copies_on(member.id)].tolist()))

    def _touch_shared(self, member: Member, draft: Draft) -> None:
        """Repos that others hold too: their primary may be another now."""
        table = self._table
        rows = table.c_row[table.copies_on(member.id)]
        shared = rows[table.c_next[table.first[rows]] >= 0]
        draft.touched.update(dict.fromkeys(shared.tolist()))

    # What people want of a worker

    def drain(self, worker: WorkerId, now_s: float, draft: Draft) -> None:
        self._relieve(worker, Duty.DRAINING, now_s, draft, Reason.DRAINED)

    def quarantine(self, worker: WorkerId, reason: str, now_s: float, draft: Draft) -> None:
        member = self._relieve(worker, Duty.QUARANTINED, now_s, draft, Reason.LOST)
        if member is not None:
            draft.act(_quarantine_alert(member, f"is quarantined: {reason}", facts={"reason": reason}))

    def _relieve(
        self, worker: WorkerId, duty: Duty, now_s: float, draft: Draft, why: Reason
    ) -> Member | None:
        """The worker, if that was news."""
        member = self._crew.get(worker)
        if member is None or member.record.duty in (duty, Duty.QUARANTINED):
            return None  # a quarantined one that is drained would count again
        member.note(duty.value, now_s, duty=duty)
        draft.worker_changed(member)
        draft.act(DutyChanged(member.record))
        self._placing.leaves(member)
        self.gate(member)
        self._give_away(member, now_s, draft, why)
        return member

    def resume(self, worker: WorkerId, now_s: float, draft: Draft) -> None:
        """Back to active, from draining or quarantine."""
        member = self._crew.get(worker)
        if member is None or member.record.duty is Duty.ACTIVE:
            return
        if member.record.duty is Duty.QUARANTINED:
            draft.act(_quarantine_alert(member, "is released", over=True))
        member.note(Duty.ACTIVE.value, now_s, duty=Duty.ACTIVE)
        draft.worker_changed(member)
        draft.act(DutyChanged(member.record))
        self.gate(member)
        self._placing.joins(member)
        self.touch_all(member, draft)

    def retire(self, member: Member, now_s: float, draft: Draft) -> None:
        """It does not come back: nothing of it is known any more, and its id is free."""
        if member.record.duty is Duty.QUARANTINED:
            draft.act(_quarantine_alert(member, "is retired", over=True))
        member.strays = 0
        tell_strays(member, draft)
        member.note(Duty.RETIRED.value, now_s, duty=Duty.RETIRED)
        draft.worker_changed(member)
        draft.act(DutyChanged(member.record))
        if member.connected:
            draft.act(Refuse(member.session, "this worker was retired"))
            member.connected = False
        self.gone(member, now_s, draft)
        for c in self._table.copies_on(member.id).tolist():
            self._handover.drop(self._table.one.c_row[c], c, draft)
        self._pace.forget(member.id)
        self._crew.dismiss(member.id)
        self._attendance.unwatch(member, draft)


def tell_strays(member: Member, draft: Draft) -> None:
    """People are told of what nobody knows on its disk, and when there is nothing of the kind any more."""
    name, known = member.record.facts.name, member.strays_shown
    member.strays_shown = member.strays > 0
    if member.strays:
        text = f"worker {name} holds {member.strays} repos that the catalog never had; they are left alone"
        draft.act(Alert(AlertKind.STRAY, name, text, facts={"count": str(member.strays)}))
    elif known:
        text = f"worker {name} no longer holds repos that the catalog never had"
        draft.act(Alert(AlertKind.STRAY, name, text, over=True))


def _quarantine_alert(
    member: Member, text: str, *, over: bool = False, facts: Mapping[str, str] | None = None
) -> Alert:
    name = member.record.facts.name
    return Alert(AlertKind.QUARANTINE, name, f"worker {name} {text}", over, facts or {})
