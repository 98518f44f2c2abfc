"""First clones that take too long are given to another worker.

Every minute each worker that was asked for clones is looked at:

    what it shows                                                      what follows
    ────────────────────────────────────────────────────────────────   ─────────────────────────────────────
    a clone done, or a running sync that moves, within the patience    nothing
    nothing moved for longer than the patience                         the worker is *stalled*
    untrusted: no clone done for PRETENCE times the patience,          the worker is *stalled*
    whatever its heartbeats say of progress; or half of what it was
    asked for is overdue
    untrusted: a clone that is overdue                                 that repo goes to another worker
    untrusted: a clone that failed or waits for longer than the        that repo goes to another worker, at
    patience                                                           most DEFERRED_TRIES times

Rules
- The patience is PATIENCE_FACTOR times the median of late, ``clone_patience_s`` at least and PATIENCE_MAX_S
  at most. The median is that of trusted workers. While none of them has cloned, each worker has one vote.
- A clone of an untrusted worker is overdue PRETENCE times the patience after the first request for it,
  whatever else that worker completes. Each worker that tries the repo has twice as long as the one before,
  so that a very large repo ends somewhere.
- A stalled worker gets nothing new, and what it was to clone goes to others. It is tried again after a pause
  that doubles each time; a trusted one also as soon as it completes a clone.
- Nothing is taken from a worker while no other one could take it.
- A worker that is suspect is left to liveness (attendance.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.attendance import Attendance, Timers
from evermirror.core.fleet.copies import NOBODY, UNWANTED, Reason
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Alert, AlertKind, PutSalt
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.handover import ASKED, DEFERRED, HELD, PLANNED
from evermirror.core.fleet.membership import Membership
from evermirror.core.fleet.placing import Placing
from evermirror.core.fleet.table import SALTS, FleetTable
from evermirror.model.worker import WorkerId

SLOW_LOOK, STALLED = "slow-look", "stalled"  # timers: (SLOW_LOOK, 0) and (STALLED, worker)
LOOK_EVERY_S = 60.0  # or half of the least patience, where that is less
LATELY = 501  # first clones whose duration is remembered, of all trusted workers together
LATELY_OF_ONE = 21  # the same of each untrusted worker
PATIENCE_MAX_S = 6 * 3600.0  # whatever the median: a step of the clock must not hold repos for days
PATIENCE_FACTOR = 20.0  # times the median: few honest clones take so much longer than most
PRETENCE = 10.0  # times the patience: so long the word of an untrusted worker about progress is believed
DEFERRED_TRIES = 3  # workers that try a repo whose clone fails: then it is the repo, not the worker
MOVED_MAX = 500  # repos given to others at one look, so that a large list of dead ones moves gently
PAUSE_S = 3600.0  # before a stalled worker is tried again; doubles each time, up to PAUSES times
PAUSES = 5
DOUBLINGS = 5  # of the time that a clone has until it is overdue

Copies = NDArray[np.int32]
Mask = NDArray[np.bool_]


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
        timers: Timers,
    ) -> None:
        self._least_s = patience_s
        self._table = table
        self._crew = crew
        self._attendance = attendance
        self._placing = placing
        self._membership = membership
        self._timers = timers
        self._watched: dict[WorkerId, _Watch] = {}
        self._stalls: dict[WorkerId, int] = {}  # in a row, without a clone done in between
        self._took_s: dict[WorkerId | None, deque[float]] = {}  # None: of all trusted workers
        self._look_s = min(LOOK_EVERY_S, patience_s / 2)
        timers.set((SLOW_LOOK, 0), self._look_s)

    @property
    def patience_s(self) -> float:
        """So long a worker may show nothing for what it was asked for."""
        trusted = self._took_s.get(None)
        votes = trusted if trusted else [median(took_s) for took_s in self._took_s.values()]
        if not votes:
            return self._least_s
        return max(self._least_s, min(PATIENCE_FACTOR * median(votes), PATIENCE_MAX_S))

    # What workers show

    def heard(self, member: Member, progress: int) -> None:
        """A heartbeat: where ``progress`` is another than before, something that runs there got further."""
        watch = self._watched.get(member.id)
        if watch is not None and progress and progress != member.progress:
            watch.moved_at = self._attendance.lived_s
        member.progress = progress

    def done(self, member: Member, took_s: float, draft: Draft) -> None:
        """A first clone was complete, so long after it was asked for."""
        trusted = member.record.facts.trusted
        whose, kept = (None, LATELY) if trusted else (member.id, LATELY_OF_ONE)
        self._took_s.setdefault(whose, deque(maxlen=kept)).append(max(took_s, 0.0))
        if (watch := self._watched.get(member.id)) is not None:
            watch.moved_at = watch.done_at = self._attendance.lived_s
        if trusted or not member.stalled:
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
        self._took_s.pop(worker, None)
        self._timers.cancel((STALLED, worker))

    # The look

    def look(self, now_s: float, draft: Draft) -> None:
        """Now and then; ``now_s`` is UTC."""
        lived_s, patience_s = self._attendance.lived_s, self.patience_s
        self._timers.set((SLOW_LOOK, 0), lived_s + self._look_s)
        n = self._table.copies
        wanted, states = self._table.c_rank[:n] != UNWANTED, self._table.c_state[:n]
        asked, planned = (self._count(wanted & (states == state)) for state in (ASKED, PLANNED))
        overdue = self._count(self._overdue(now_s, patience_s))
        for member in tuple(self._crew):
            if not asked[member.id] and (member.ready or not planned[member.id]):
                self._watched.pop(member.id, None)
                continue
            watch = self._watched.setdefault(member.id, _Watch(lived_s, lived_s))
            if not member.alive:  # once it is back, it has until the next look to show something
                watch.moved_at = max(watch.moved_at, lived_s - patience_s + self._look_s)
                continue
            idle_s, barren_s = lived_s - watch.moved_at, lived_s - watch.done_at
            pretends = not member.record.facts.trusted and (
                barren_s > PRETENCE * patience_s or 2 * overdue[member.id] > asked[member.id]
            )
            if (idle_s > patience_s or pretends) and self._others(member):
                self._stall(member, max(barren_s if pretends else idle_s, patience_s), now_s, draft)
        self._move_overdue(now_s, patience_s, draft)

    def _count(self, copies: Mask) -> NDArray[np.intp]:
        """How many of these copies each worker has."""
        return np.bincount(self._table.c_worker[: len(copies)][copies], minlength=NOBODY + 1)

    def _overdue(self, now_s: float, patience_s: float) -> Mask:
        """Clones that untrusted workers were asked for too long ago."""
        table, n = self._table, self._table.copies
        found: Mask = (table.c_state[:n] == ASKED) & (table.c_rank[:n] != UNWANTED)
        found &= self._on_untrusted()[table.c_worker[:n]]
        copies = np.flatnonzero(found)
        has_s = PRETENCE * patience_s * 2.0 ** np.minimum(table.salt[table.c_row[copies]], DOUBLINGS)
        found[copies] = table.c_since[copies] + has_s < now_s
        return found

    def _on_untrusted(self) -> Mask:
        """By worker: it is untrusted and alive, and another one could take what it has."""
        takers = [m for m in self._crew if m.takes and m.ready][:2]
        untrusted = (m for m in self._crew if m.alive and not m.record.facts.trusted)
        return self._by_worker(m for m in untrusted if any(taker is not m for taker in takers))

    def _by_worker(self, members: Iterable[Member]) -> Mask:
        mask = np.zeros(NOBODY + 1, bool)
        mask[[m.id for m in members]] = True
        return mask

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

    def _move_overdue(self, now_s: float, patience_s: float, draft: Draft) -> None:
        """Clones that untrusted workers do not complete, or say that they fail, are tried by others."""
        table, n = self._table, self._table.copies
        failed = (table.c_state[:n] == DEFERRED) & (table.c_rank[:n] != UNWANTED)
        failed &= table.c_since[:n] < max(now_s - patience_s, 0.0)
        failed &= self._on_untrusted()[table.c_worker[:n]]
        held = np.zeros(table.rows, bool)
        alive = self._by_worker(m for m in self._crew if m.alive)
        held[table.c_row[:n][(table.c_state[:n] == HELD) & alive[table.c_worker[:n]]]] = True
        rows = table.c_row[:n][failed]
        failed[failed] = ~held[rows] & (table.salt[rows] < DEFERRED_TRIES)
        moved = np.flatnonzero(failed | self._overdue(now_s, patience_s))[:MOVED_MAX]
        self._give_to_others(moved.astype(np.int32), now_s, draft)

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
