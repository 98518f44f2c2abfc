"""What workers say: whose word counts now, and which part makes what of it.

A report that is numbered is taken once; anything else counts in the newest session alone. telling.py says
what the rest of the fleet makes of it. All that a worker holds is compared with it now and then.
"""

from __future__ import annotations

from evermirror.core.fleet.attendance import Attendance, Timers
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.decisions import CompareRanges
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import (
    ClonesDeferred,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    HeldTold,
    Moment,
    OtherReported,
    RangesCompared,
    ReposHandedBack,
)
from evermirror.core.fleet.rates import FleetRates
from evermirror.core.fleet.reconcile import Reconciler
from evermirror.core.fleet.sessions import Sessions
from evermirror.core.fleet.telling import Telling
from evermirror.model.worker import WorkerId

COMPARE = "compare"  # a timer of each worker


class Words:
    """One method for each thing that a worker may say."""

    def __init__(
        self,
        compare_every_s: float,
        crew: Crew,
        sessions: Sessions,
        reconciler: Reconciler,
        telling: Telling,
        rates: FleetRates,
        attendance: Attendance,
        timers: Timers,
    ) -> None:
        self._compare_every_s = compare_every_s
        self._crew = crew
        self._sessions = sessions
        self._reconciler = reconciler
        self._telling = telling
        self._rates = rates
        self._attendance = attendance
        self._timers = timers

    def held_told(self, event: HeldTold, now: Moment, draft: Draft) -> None:
        member = self._sessions.current(event.worker, event.session)
        if member is None or member.reconciled:
            return
        self._reconciler.told(member, event.copies, now.utc_s, draft)
        if event.last:
            self._telling.told_all(member, now.utc_s, draft)
            self._rates.ready(member, now.utc_s, draft)
            gap_s = self._compare_every_s
            spread_s = gap_s * (member.id % 61) / 61  # so that not all compare at the same moment
            self._timers.set((COMPARE, member.id), self._attendance.lived_s + gap_s + spread_s)

    def copies_verified(self, event: CopiesVerified, now: Moment, draft: Draft) -> None:
        member = self._sessions.report(event.id, draft)
        if member is not None:
            took_s = self._reconciler.verified(member, event.copies, now.utc_s, draft)
            self._telling.cloned(member, took_s, draft)

    def copies_dropped(self, event: CopiesDropped, now: Moment, draft: Draft) -> None:
        member = self._sessions.report(event.id, draft)
        if member is not None:
            self._reconciler.dropped(member, event.keys, draft)
            self._telling.lost_some(member, now.utc_s, draft)

    def deletions_declined(self, event: DeletionsDeclined, now: Moment, draft: Draft) -> None:
        member = self._sessions.report(event.id, draft)
        if member is not None:
            self._reconciler.declined(member, event.copies, draft)

    def clones_deferred(self, event: ClonesDeferred, now: Moment, draft: Draft) -> None:
        member = self._sessions.report(event.id, draft)
        if member is not None:
            self._reconciler.deferred(member, event.keys, draft)

    def repos_handed_back(self, event: ReposHandedBack, now: Moment, draft: Draft) -> None:
        member = self._sessions.report(event.id, draft)
        if member is not None:
            self._telling.handed_back(member, event.keys, now.utc_s, draft)

    def other_reported(self, event: OtherReported, now: Moment, draft: Draft) -> None:
        self._sessions.report(event.id, draft)

    # The full comparison

    def compare(self, worker: int, now: Moment, draft: Draft) -> None:
        """It is time to."""
        member = self._crew.get(WorkerId(worker))
        if member is None:
            return
        self._timers.set((COMPARE, worker), self._attendance.lived_s + self._compare_every_s)
        if draft.takes_for(member):
            draft.send(member, CompareRanges(self._reconciler.digests(member)))

    def ranges_compared(self, event: RangesCompared, now: Moment, draft: Draft) -> None:
        member = self._sessions.current(event.worker, event.session)
        if member is not None and member.reconciled:
            self._reconciler.compared(member, frozenset(event.ranges), event.copies, now.utc_s, draft)
            self._telling.lost_some(member, now.utc_s, draft)
