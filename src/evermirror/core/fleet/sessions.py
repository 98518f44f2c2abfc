"""Connections of workers: who may speak, where both numbered streams go on, and what a report's number says.

      WorkerConnected                                  HeldTold(last)
 away ───────────────┬─ same boot, same epoch ──▶ RESUMED ─────────────────────▶ reconciled: commands flow
                     │    outbox: what it has not seen is sent again                 ▲
                     └─ else ───────────────────▶ FRESH ── tells all it holds ───────┘
                          outbox: emptied

A session is a number that grows; an event of a lower one is late and means nothing: what it carried is sent
again in the newest session, if it was a report, or follows anew from the tables, if it was a command.
"""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import AckReports, Other, Refuse, ReportTaken, Send, Undelivered, Welcome
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import ReportId, WorkerConnected
from evermirror.core.fleet.inbox import Inbox, Taken
from evermirror.core.fleet.worker_texts import NAME_CHARS_MAX, is_worker_name
from evermirror.model.worker import WEIGHT_MAX, WORKERS_MAX, WorkerId


class Sessions:
    """The newest connection of each worker."""

    def __init__(self, crew: Crew, inbox: Inbox, epoch: int) -> None:
        self._crew = crew
        self._inbox = inbox
        self._epoch = epoch

    def current(self, worker: WorkerId, session: int) -> Member | None:
        """The worker, if this is its newest connection."""
        member = self._crew.get(worker)
        return member if member is not None and member.connected and member.session == session else None

    def connect(self, event: WorkerConnected, utc_s: float, draft: Draft) -> tuple[Member, bool] | None:
        """The worker and whether its session is fresh; None where it may not join."""
        member = None if event.worker is None else self._crew.get(event.worker)
        refusal = self.refusal(event)
        if refusal:
            draft.act(Refuse(event.session, refusal))
            return None
        if member is None:
            member = self._crew.enlist(event.facts, utc_s)
            member.note("joined", utc_s)
            draft.worker_changed(member)
        elif member.record.facts != event.facts:
            self._crew.rename(member, event.facts.name)
            member.record = replace(member.record, facts=event.facts)
            draft.worker_changed(member)
        resumed = (
            member.reconciled
            and member.boot == event.boot
            and event.epoch == self._epoch
            and event.seen <= member.outbox.last
        )
        member.session, member.boot, member.connected = event.session, event.boot, True
        member.serves = event.serves
        draft.act(Welcome(event.session, member.id, self._epoch, resumed))
        known = self._inbox.last(member.id, event.generation)
        draft.act(AckReports(member.id, event.session, event.generation, known))
        if resumed:
            for seq, command in member.outbox.resend(event.seen):
                draft.act(Send(member.id, event.session, seq, command))
        else:
            self._begin_anew(member, draft)
        return member, not resumed

    def refusal(self, event: WorkerConnected) -> str:
        """Why it may not join; empty where it may."""
        member = None if event.worker is None else self._crew.get(event.worker)
        if event.worker is not None and member is None:
            return "this worker has retired, or was never registered; join with a new token"
        if member is not None and event.session <= member.session:
            return "a newer connection of this worker exists"
        if member is None and len(self._crew) >= WORKERS_MAX:
            return f"{WORKERS_MAX} workers are registered; retire those that do not come back"
        if not 0 < event.facts.weight <= WEIGHT_MAX:
            return f"a weight is above 0 and at most {WEIGHT_MAX:g}, not {event.facts.weight}"
        if not is_worker_name(event.facts.name):
            return f"a worker's name has at most {NAME_CHARS_MAX} printable letters: set worker.name"
        other = self._crew.named(event.facts.name)
        if other is not None and other is not member:
            name = event.facts.name
            return (
                f"another worker has the name {name!r}: set worker.name here, use a token of another name, or"
                f" retire the other with `evermirror worker retire {name}`"
            )
        return ""

    def _begin_anew(self, member: Member, draft: Draft) -> None:
        """Nothing that was sent is still to be done; commands from outside are told back."""
        for _, command in member.outbox.resend(0):
            if isinstance(command, Other):
                draft.act(Undelivered(member.id, command.command))
        member.outbox.reset()
        member.reconciled = False
        member.deferred.clear()

    def give(self, worker: WorkerId, command: object, draft: Draft) -> None:
        """A command from outside, in order with the rest."""
        member = self._crew.get(worker)
        if member is None or not draft.takes_for(member):
            draft.act(Undelivered(worker, command))
        else:
            draft.send(member, Other(command))

    def report(self, id_: ReportId, draft: Draft) -> Member | None:
        """The worker, if this report is to be taken now."""
        member = self.current(id_.worker, id_.session)
        if member is None:
            return None
        new = self._inbox.check(id_.worker, id_.generation, id_.seq) is Taken.NEW
        if new:
            self._inbox.take(id_.worker, id_.generation, id_.seq)
            draft.write(ReportTaken(id_.worker, id_.generation, id_.seq))
        known = self._inbox.last(id_.worker, id_.generation)
        draft.act(AckReports(id_.worker, id_.session, id_.generation, known))
        return member if new else None
