"""When something is placed: at once for the rows that need it, and now and then for all.

- A repo that is new, lost or handed back is placed at once, alone.
- Workers that joined get their share together, at most once in ``rebalance_gap_s``, over all repos.
- Repos that nobody could take are tried again when something changed that may give them room, not before.
- Repos with fewer or more copies than they should have are looked for after a restart and at every sweep.
- Nothing is placed while the fleet warms up.
- A worker that handed a repo back is not offered it again for BARRED_S.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.attendance import Attendance, Timers
from evermirror.core.fleet.copies import NOBODY, PROOF, UNWANTED, Reason
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.rebalance import Rebalancer
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.table import NO_ROOM, REMOVED, FleetTable
from evermirror.core.fleet.warmup import WarmUp
from evermirror.model.worker import Duty, WorkerId

BARRED = "barred"  # timers of this part: (BARRED, row)
BARRED_S = 3600.0  # a worker that handed a repo back is not offered it again for so long

Rows = NDArray[np.int32]


class Placing:
    """Decides when, and for which rows; rebalance.py does it."""

    def __init__(
        self,
        settings: FleetSettings,
        table: FleetTable,
        crew: Crew,
        attendance: Attendance,
        rebalancer: Rebalancer,
        timers: Timers,
    ) -> None:
        self._settings = settings
        self._table = table
        self._crew = crew
        self._attendance = attendance
        self._rebalancer = rebalancer
        self._timers = timers
        self._warm_up = WarmUp(settings.warm_up_s, settings.min_workers, has_cache=False)
        self._joined: set[WorkerId] = set()  # to be given their share
        self._joining: set[WorkerId] = set()  # these keep what they hold until it is decided
        self._all_due = False  # look at all: bounds changed, somebody may be over
        self._holes_due = False
        self._room_changed = False
        self._placed_all_at = float("-inf")  # lived seconds
        self._barred: dict[int, set[WorkerId]] = {}  # row → workers that handed it back
        self._no_room_told = False

    # What may be known

    @property
    def warming(self) -> bool:
        return not self._warm_up.over(self._attendance.lived_s, 0)

    # What makes a placement due

    def restored(self) -> None:
        """A placement is known from before: it is gone on from."""
        self._warm_up = WarmUp(0.0, None, has_cache=True)
        self._holes_due = True
        self._rebalancer.replan()

    def joins(self, member: Member) -> None:
        if member.record.duty is Duty.ACTIVE:
            self._joined.add(member.id)
            self._joining.add(member.id)
            member.joining = True
            self._room_changed = True

    def leaves(self, member: Member) -> None:
        self._joined.discard(member.id)
        member.joining = False

    def bounds_changed(self) -> None:
        """A worker's weight, capacity or trust is another."""
        self._all_due = self._room_changed = True

    def room_changed(self) -> None:
        self._room_changed = True

    def prove(self, proving: bool) -> None:
        """Whether repos that only untrusted workers would hold are placed with a trusted one too."""
        if self._rebalancer.proving is not proving:
            self._rebalancer.proving = proving
            self._holes_due = True

    def sweep(self) -> Rows:
        """Look for holes soon; the rows with copies that wait to go."""
        self._holes_due = True
        return self.with_unwanted(self._table.catalog_rows())

    def bar(self, row: int, worker: WorkerId) -> None:
        self._barred.setdefault(row, set()).add(worker)
        self._timers.set((BARRED, row), self._attendance.lived_s + BARRED_S)

    def unbar(self, row: int) -> None:
        self._timers.cancel((BARRED, row))
        if self._barred.pop(row, None) is not None:
            self._room_changed = True

    # Placing

    def place(
        self,
        rows: Rows,
        now_s: float,
        draft: Draft,
        *,
        joined: tuple[WorkerId, ...] = (),
        why: Reason | None = None,
    ) -> None:
        """These rows, at once; ``why`` is the reason of what has to move."""
        if self.warming:
            return  # everything is placed at its end
        listed = rows[(self._table.flags[rows] & REMOVED) == 0]
        barred: dict[int, tuple[int, ...]] = {}
        if self._barred:
            barred = {row: tuple(self._barred[row]) for row in listed.tolist() if row in self._barred}
        self._rebalancer.place(listed, now_s, draft, joined=joined, barred=barred, why=why)

    def tick(self, now_s: float, draft: Draft) -> None:
        """Whatever is due, within the pace that ``rebalance_gap_s`` sets."""
        lived_s = self._attendance.lived_s
        if self.warming:
            if not self._warm_up.over(lived_s, self._attendance.alive):
                return
            self._all_due = True
        elif lived_s - self._placed_all_at < self._settings.rebalance_gap_s:
            return
        ready = {w for w in self._joined if (m := self._crew.get(w)) is not None and m.ready and m.takes}
        rows = self._rows_due(joined=bool(ready))
        if rows is not None:
            self._placed_all_at = lived_s
            self._joined -= ready
            self._all_due = self._holes_due = self._room_changed = False
            self.place(rows, now_s, draft, joined=tuple(sorted(ready)))
        self._end_joining(draft)

    def _end_joining(self, draft: Draft) -> None:
        """Shares are decided, also of those who cannot take one now: what they hold in vain may go."""
        decided = {w for w in self._joining if (m := self._crew.get(w)) is None or m.ready}
        if not decided:
            return
        self._joining -= decided
        table, n = self._table, self._table.copies
        holds = np.zeros(NOBODY + 1, bool)
        for worker in decided:
            if (member := self._crew.get(worker)) is not None:
                member.joining = False
                holds[worker] = True
        in_vain = (table.c_rank[:n] == UNWANTED) & holds[table.c_worker[:n]]
        draft.touched.update(dict.fromkeys(table.c_row[:n][in_vain].tolist()))

    def _rows_due(self, *, joined: bool) -> Rows | None:
        if joined or self._all_due:
            return self._table.catalog_rows()
        if self._holes_due:
            return self._with_holes()
        if self._room_changed and self._rebalancer.no_room:
            return np.flatnonzero(self._table.flags[: self._table.rows] & NO_ROOM).astype(np.int32)
        return None

    def _with_holes(self) -> Rows:
        """Repos with fewer copies than they should have, or more; or without a proof that they need."""
        table = self._table
        n = table.copies
        wanted = (table.c_rank[:n] < PROOF) & (table.c_worker[:n] != NOBODY)
        has = np.bincount(table.c_row[:n][wanted], minlength=table.rows)
        rows = table.catalog_rows()
        unlike: Rows = rows[(has[rows] != table.replicas[rows]) | self._rebalancer.unproven(rows)]
        return unlike

    def with_unwanted(self, rows: Rows) -> Rows:
        """Those of the rows that have copies which are not wanted."""
        table = self._table
        n = table.copies
        has = np.zeros(table.rows, bool)
        has[table.c_row[:n][(table.c_rank[:n] == UNWANTED) & (table.c_worker[:n] != NOBODY)]] = True
        found: Rows = rows[has[rows]]
        return found

    def tell_room(self, draft: Draft) -> None:
        """Somebody must know when repos wait for room, and when no more do."""
        waiting = self._rebalancer.no_room
        if self._no_room_told == (waiting > 0):
            return
        self._no_room_told = waiting > 0
        text = f"{waiting} repos wait: no worker can take them" if waiting else "every repo has room"
        facts = {"count": str(waiting)}
        draft.act(Alert(AlertKind.NO_ROOM, "fleet", text, over=not waiting, facts=facts))
