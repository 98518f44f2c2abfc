"""Workers that no relay has a line to: nobody can read what they hold.

Aggregators tell which holders their relays have no line to. One that stays so for ``grace_s`` is
*unreachable*: what it should hold goes to others, it gets nothing new, and its copies do not count as held.
They stay on its disk until they are covered elsewhere. With a line again it takes its share as a worker that
joins does.

Where more than ``brake_share`` of the workers are without a line, the relay is to blame and not they; and
nothing is taken from a worker while nobody else could take it.
"""

from __future__ import annotations

from collections.abc import Set

from evermirror.core.fleet.attendance import Attendance, Timers
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.membership import Membership
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.worker import WorkerId

UNREACHED = "unreached"  # timers of this part: (UNREACHED, worker)


class Reach:
    """Which workers relays have no line to, as aggregators told last."""

    def __init__(
        self,
        settings: FleetSettings,
        crew: Crew,
        attendance: Attendance,
        membership: Membership,
        timers: Timers,
    ) -> None:
        self._settings = settings
        self._crew = crew
        self._attendance = attendance
        self._membership = membership
        self._timers = timers
        self._unreached: frozenset[WorkerId] = frozenset()

    def told(self, workers: Set[WorkerId], draft: Draft) -> None:
        """All that are without a line now."""
        new, back = frozenset(workers) - self._unreached, self._unreached - workers
        self._unreached = frozenset(workers)
        for worker in sorted(new):
            self._timers.set((UNREACHED, worker), self._attendance.lived_s + self._settings.grace_s)
        for worker in sorted(back):
            self._timers.cancel((UNREACHED, worker))
            member = self._crew.get(worker)
            if member is not None and member.unreachable:
                member.unreachable = False
                self._membership.reached(member, draft)
                draft.act(_alert(member, "is reached by a relay again", over=True))

    def grace_ended(self, worker: int, now_s: float, draft: Draft) -> None:
        """It was without a line for long enough; looked at again where it cannot be given up now."""
        member = self._crew.get(WorkerId(worker))
        if member is None or member.unreachable or member.id not in self._unreached:
            return
        if not member.alive or member.serves or self._is_relays_fault() or not self._others(member):
            self._timers.set((UNREACHED, worker), self._attendance.lived_s + self._settings.grace_s)
            return
        member.unreachable = True
        draft.act(_alert(member, "is reached by no relay; its repos go to others"))
        self._membership.unreached(member, now_s, draft)

    def forget(self, worker: WorkerId) -> None:
        """It does not come back."""
        self._unreached -= {worker}
        self._timers.cancel((UNREACHED, worker))

    def _is_relays_fault(self) -> bool:
        there = [m for m in self._crew if m.alive]
        without = sum(m.id in self._unreached for m in there)
        return without > self._settings.brake_share * len(there)

    def _others(self, member: Member) -> bool:
        trusted = member.record.facts.trusted
        return any(
            m.takes and (m.record.facts.trusted or not trusted)
            for m in self._crew
            if m is not member and m.id not in self._unreached
        )


def _alert(member: Member, text: str, *, over: bool = False) -> Alert:
    name = member.record.facts.name
    return Alert(AlertKind.UNREACHABLE, name, f"worker {name} {text}", over)
