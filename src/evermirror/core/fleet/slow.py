"""First clones that take too long are given to another worker.

Every minute each worker that was asked for clones is looked at:

    what it shows                                                      what follows
    ────────────────────────────────────────────────────────────────   ─────────────────────────────────────
    a clone done, or a running sync that moves, within the patience    nothing
    nothing moved for longer than the patience                         the worker is *stalled*
    untrusted: no clone done for PRETENCE times the patience,          the worker is *stalled*
    whatever its heartbeats say of progress
    untrusted: a clone that failed or waits for longer than the        that repo goes to another worker, at
    patience                                                           most DEFERRED_TRIES times

Rules
- The patience is PATIENCE_FACTOR times the fleet's median of late, and ``clone_patience_s`` at least.
- A stalled worker gets nothing new, and what it was to clone goes to others. It is tried again after a pause
  that doubles each time, or as soon as it completes a clone.
- Nothing is taken from a worker while no other one could take it.
- A worker that is suspect is left to liveness (attendance.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.attendance import Attendance, Timers
from evermirror.core.fleet.copies import UNWANTED, Reason
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Alert, AlertKind, PutSalt
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.handover import ASKED, DEFERRED, PLANNED, Handover
from evermirror.core.fleet.membership import Membership
from evermirror.core.fleet.placing import Placing
from evermirror.core.fleet.table import SALTS, FleetTable
from evermirror.model.worker import WorkerId

SLOW_LOOK, STALLED = "slow-look", "stalled"  # timers: (SLOW_LOOK, 0) and (STALLED, worker)
LOOK_EVERY_S = 60.0  # or half of the least patience, where that is less
LATELY = 501  # first clones whose duration is remembered
PATIENCE_FACTOR = 20.0  # times the median: few honest clones take so much longer than most
PRETENCE = 10.0  # times the patience: so long the word of an untrusted worker about progress is believed
DEFERRED_TRIES = 3  # workers that try a repo whose clone fails: then it is the repo, not the worker
DEFERRED_MAX = 500  # repos given to others at one look, so that a large list of dead ones moves gently
PAUSE_S = 3600.0  # before a stalled worker is tried again; doubles each time, up to PAUSES times
PAUSES = 5

Copies = NDArray[np.int32]


@dataclass(slots=True)
class _Watch:
    """A worker that was asked for clones; times are lived seconds."""

    moved_at: float  # something was done or got further
    done_at: float  # a clone was complete


class SlowClones:
    """Watches clones that workers were asked for, and gives overdue ones to others."""

    def __init__(
        self,
        patience_s: float,
        table: FleetTable,
        crew: Crew,
        attendance: Attendance,
        placing: Placing,
        membership: Membership,
        handover: Handover,
        timers: Timers,
    ) -> None:
        self._least_s = patience_s
        self._table = table
        self._crew = crew
        self._attendance = attendance
        self._placing = placing
        self._membership = membership
        self._handover = handover
        self._timers = timers
        self._watched: dict[WorkerId, _Watch] = {}
        self._stalls: dict[WorkerId, int] = {}  # in a row, without a clone done in between
        self._took_s: deque[float] = deque(maxlen=LATELY)
        self._look_s = min(LOOK_EVERY_S, patience_s / 2)
        timers.set((SLOW_LOOK, 0), self._look_s)

    @property
    def patience_s(self) -> float:
        """So long a worker may show nothing for what it was asked for."""
        return max(self._least_s, PATIENCE_FACTOR * median(self._took_s)) if self._took_s else self._least_s

    # What workers show

    def heard(self, member: Member, progress: int) -> None:
        """A heartbeat: where ``progress`` is another than before, something that runs there got further."""
        watch = self._watched.get(member.id)
        if watch is not None and progress and progress != member.progress:
            watch.moved_at = self._attendance.lived_s
        member.progress = progress

    def done(self, member: Member, took_s: float, draft: Draft) -> None:
        """A first clone was complete, so long after it was asked for."""
        self._took_s.append(max(took_s, 0.0))
        if (watch := self._watched.get(member.id)) is not None:
            watch.moved_at = watch.done_at = self._attendance.lived_s
        self._stalls.pop(member.id, None)
        self.try_again(member.id, draft)

    def try_again(self, worker: int, draft: Draft) -> None:
        """A stalled worker may be asked again."""
        member = self._crew.get(WorkerId(worker))
        self._timers.cancel((STALLED, worker))
        if member is not None and member.stalled:
            member.stalled = False
            self._membership.gate(member)
            self._placing.room_changed()
            draft.act(_alert(member, "is asked for clones again", over=True))

    def forget(self, worker: WorkerId) -> None:
        """It does not come back."""
        self._watched.pop(worker, None)
        self._stalls.pop(worker, None)
        self._timers.cancel((STALLED, worker))

    # The look

    def look(self, now_s: float, draft: Draft) -> None:
        """Now and then; ``now_s`` is UTC."""
        lived_s, patience_s = self._attendance.lived_s, self.patience_s
        self._timers.set((SLOW_LOOK, 0), lived_s + self._look_s)
        for member in tuple(self._crew):
            if not self._is_waited_for(member):
                self._watched.pop(member.id, None)
                continue
            watch = self._watched.setdefault(member.id, _Watch(lived_s, lived_s))
            if not member.alive:  # once it is back, it has until the next look to show something
                watch.moved_at = max(watch.moved_at, lived_s - patience_s + self._look_s)
                continue
            idle_s, barren_s = lived_s - watch.moved_at, lived_s - watch.done_at
            pretends = not member.record.facts.trusted and barren_s > PRETENCE * patience_s
            if (idle_s > patience_s or pretends) and self._others(member):
                self._stall(member, barren_s if pretends else idle_s, now_s, draft)
        self._move_deferred(now_s, patience_s, draft)

    def _is_waited_for(self, member: Member) -> bool:
        """Clones were asked of it; or would be, if it told what it holds."""
        states = self._table.c_state[self._wanted_on(member)]
        return bool((states == ASKED).any()) or (not member.ready and bool((states == PLANNED).any()))

    def _wanted_on(self, member: Member) -> Copies:
        on = self._table.copies_on(member.id)
        wanted: Copies = on[self._table.c_rank[on] != UNWANTED]
        return wanted

    def _others(self, member: Member) -> bool:
        """Somebody else could take what it has."""
        trusted = member.record.facts.trusted
        return any(
            m.takes and m.ready and (m.record.facts.trusted or not trusted)
            for m in self._crew
            if m is not member
        )

    def _stall(self, member: Member, idle_s: float, now_s: float, draft: Draft) -> None:
        stalls = self._stalls[member.id] = self._stalls.get(member.id, 0) + 1
        member.stalled = True
        self._membership.gate(member)
        self._watched.pop(member.id, None)
        pause_s = PAUSE_S * 2 ** min(stalls - 1, PAUSES)
        self._timers.set((STALLED, member.id), self._attendance.lived_s + pause_s)
        on = self._wanted_on(member)
        taken = on[self._table.c_state[on] == ASKED]
        minutes = str(round(idle_s / 60))
        text = f"completed no first clone that it was asked for in {minutes} min; they go to others"
        draft.act(_alert(member, text, facts={"minutes": minutes, "count": str(len(taken))}))
        self._give_to_others(taken, now_s, draft)
        self._membership.move_waiting(member, now_s, draft)

    def _move_deferred(self, now_s: float, patience_s: float, draft: Draft) -> None:
        """An untrusted worker's word that a clone fails is checked by others."""
        table, n = self._table, self._table.copies
        untrusted = [m for m in self._crew if m.alive and not m.record.facts.trusted and self._others(m)]
        if not untrusted:
            return
        late = (table.c_state[:n] == DEFERRED) & (table.c_rank[:n] != UNWANTED)
        late &= table.c_since[:n] < max(now_s - patience_s, 0.0)
        late &= np.isin(table.c_worker[:n], [m.id for m in untrusted])
        copies = np.flatnonzero(late).astype(np.int32)
        copies = copies[table.salt[table.c_row[copies]] < DEFERRED_TRIES][:DEFERRED_MAX]
        alone = [c for c in copies.tolist() if not self._handover.held_alive(table.one.c_row[c])]
        self._give_to_others(np.array(alone, np.int32), now_s, draft)

    def _give_to_others(self, copies: Copies, now_s: float, draft: Draft) -> None:
        """Another place on the ring for each, and not this worker for a while; it is told to stop."""
        one, rows = self._table.one, []
        for c in copies.tolist():
            row, worker = one.c_row[c], one.c_worker[c]
            one.c_rank[c] = UNWANTED
            draft.copy_changed(row, worker)
            draft.touched[row] = None
            one.salt[row] = (one.salt[row] + 1) % SALTS
            draft.write(PutSalt(self._table.key_of(row), one.salt[row]))
            self._placing.bar(row, WorkerId(worker))
            rows.append(row)
        self._placing.place(np.array(rows, np.int32), now_s, draft, why=Reason.SLOW)


def _alert(member: Member, text: str, *, over: bool = False, facts: dict[str, str] | None = None) -> Alert:
    name = member.record.facts.name
    return Alert(AlertKind.SLOW, name, f"worker {name} {text}", over, facts or {})
