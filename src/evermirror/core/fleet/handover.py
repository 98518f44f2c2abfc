"""The hand-over of one repo: make before break, as an explicit machine over its copies.

A copy is a repo on a worker. Its *rank* says whether it should be there (0 is wanted first, none is
unwanted); its *state* says what is really there. A repo moves by nothing else than its copies going through
these states:

        placed             pace.py allows: Assign           told complete
  none ────────▶ PLANNED ─────────────────────▶ ASKED ─────────────────────▶ HELD
   ▲               │ unwanted                     │  └─failed, or must wait:   │
   │               │                              │    DEFERRED ──complete────▶│
   │               │                              │ unwanted: Release(stop)    │  unwanted and covered:
   │◀──────────────┘                              ▼                            │  Release(delete)
   │                                          STOPPING ──told complete──▶ HELD ▼
   │◀──────────────told dropped──────────────────┘                          LEAVING
   │◀──────────────told dropped─────────────────────────────────────────────────┘

Rules
- DEFERRED is ASKED without a place in pace.py's window: a repo that is gone, refused or unreachable waits for
  nobody and holds up nobody. Its worker tries again by itself, and is told again in a fresh session.
- Only a HELD copy is ever told to be deleted, and only when every wanted copy is HELD and one that counts
  has the same digest: a wanted copy on a trusted worker that is alive and has told in this session what it
  holds, or the witness (the aggregator). A digest that is not known equals nothing.
- A worker from whose machine people read keeps what moved to others, as a follower, until it is drained:
  adding a worker takes nothing away from those people, also while the newcomer is away or the disk is full.
- A worker that joins (again) deletes nothing before its share is decided: it may be given what it holds.
- A clone that is no longer wanted is stopped, not deleted: it may be complete, and the only one, with its
  report on the way. The worker answers which.
- The command to delete names the digest that is covered. A worker that has other refs by then declines.
- STOPPING and LEAVING end by the worker's answer alone, also when the copy is wanted again meanwhile: then
  it is PLANNED anew. A fresh session ends them too: nothing sent before it is still to be done
  (reconcile.py).
- A repo that left the catalog is deleted everywhere. A quarantined worker is told nothing.
- A repo that only trusted workers may hold does not exist for the others: none of them is asked for it, told
  of it, nudged or named as a source. One that was given it before is told to stop, and to delete its copy if
  one that counts has the refs that it had by then; what it says of it afterwards counts for nothing.
- Copies that differ while one waits to be deleted are nudged, every ``nudge_gap_s``, until they agree. Not
  while its worker is away: it is looked at again when that comes back.
- Primary, who polls and pushes: the first by rank among HELD copies on live workers; else an unwanted HELD
  one; else the first ASKED one; else the first DEFERRED one. A change of role is an Assign of what is held
  already; a follower whose refs differ from the primary's looks at once.

``settle`` is level-triggered: it looks at the copies as they are and may be called at any time, any number
of times.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import UNWANTED, CopyState
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Assignment
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.table import CHECKED, REMOVED, TRUSTED_ONLY, URGENT, FleetTable
from evermirror.model.worker import Duty, WorkerId

FOLLOWER, PRIMARY, UNTOLD = 0, 1, 2  # the role that a copy's worker was told last

PLANNED, ASKED, HELD = CopyState.PLANNED, CopyState.ASKED, CopyState.HELD
STOPPING, LEAVING, DEFERRED = CopyState.STOPPING, CopyState.LEAVING, CopyState.DEFERRED
_AFTER: dict[int, int] = {HELD: 0, ASKED: 0x1000, DEFERRED: 0x2000}  # whose workers may poll, in this order


class Reminders(Protocol):
    """Remembers to look at a row again."""

    def nudge_due(self, row: int) -> bool:
        """Whether the row may be nudged now; if so, the next time is noted."""
        ...


class Handover:
    """The rules above, over the tables of the machine."""

    def __init__(self, table: FleetTable, crew: Crew, pace: Pace) -> None:
        self._table = table
        self._one = table.one
        self._crew = crew
        self._pace = pace
        self._asked_at: dict[int, int] = {}  # copies planned again → UTC seconds of the first request

    # What is asked of every row that changed

    def settle(self, row: int, draft: Draft, reminders: Reminders) -> None:
        """Take every step that the present facts allow."""
        copies = self._table.copies_of(row)
        if self._one.flags[row] & REMOVED:
            for c in copies:
                self._remove(row, c, draft)
            return
        unwanted = [c for c in copies if self._one.c_rank[c] == UNWANTED]
        if unwanted:
            copies = self._drop_planned(row, unwanted, copies, draft)
            for c in unwanted:
                if c in copies:
                    self._let_go(row, c, copies, draft, reminders)
        self._tell_roles(row, copies, draft)

    def may_know(self, row: int, member: Member) -> bool:
        """Whether this worker may learn that the repo exists."""
        return not self._one.flags[row] & TRUSTED_ONLY or member.record.facts.trusted

    def allowed(self, row: int, copies: list[int]) -> list[int]:
        """Those on workers that may know of it: a repo that became private is told to no untrusted one."""
        if not self._one.flags[row] & TRUSTED_ONLY:
            return copies
        return [c for c in copies if self.may_know(row, self._member(c))]

    def _drop_planned(self, row: int, unwanted: list[int], copies: list[int], draft: Draft) -> list[int]:
        """Those that were never asked for go at once; the copies that are left."""
        gone = [c for c in unwanted if self._one.c_state[c] == PLANNED]
        for c in gone:
            self.drop(row, c, draft)
        return [c for c in copies if c not in gone] if gone else copies

    def _remove(self, row: int, c: int, draft: Draft) -> None:
        """The catalog dropped it: no copy is needed."""
        one = self._one
        state = one.c_state[c]
        if state == PLANNED:
            self.drop(row, c, draft)
        elif state != LEAVING and (member := self._reachable(row, c, draft)) is not None:
            self._leave(row, c, member, draft, digest=0)

    def _let_go(self, row: int, c: int, copies: list[int], draft: Draft, reminders: Reminders) -> None:
        """One step of an unwanted copy towards its end."""
        state = self._one.c_state[c]
        if state in (ASKED, DEFERRED):
            if (member := self._reachable(row, c, draft)) is not None:
                self._set_state(row, c, STOPPING, draft)
                draft.stop(member.id, self._table.key_of(row))
        elif state == HELD and not self._member(c).keeps_moved and self._all_wanted_held(copies):
            if self._covered(row, c, copies):
                if self._member(c).joining:
                    return  # looked at again when its share is decided
                if (member := self._reachable(row, c, draft)) is not None:
                    self._leave(row, c, member, draft, digest=self._one.c_digest[c])
            elif not self.may_know(row, self._member(c)):
                return  # it looks no more: its refs and theirs never become equal
            elif self._differ(c, copies) and self._member(c).ready and reminders.nudge_due(row):
                self._nudge(row, copies, draft)

    def _leave(self, row: int, c: int, member: Member, draft: Draft, *, digest: int) -> None:
        self._set_state(row, c, LEAVING, draft)
        draft.delete(member.id, self._table.key_of(row), digest)

    def _all_wanted_held(self, copies: list[int]) -> bool:
        one = self._one
        wanted = [c for c in copies if one.c_rank[c] != UNWANTED]
        return bool(wanted) and all(one.c_state[c] == HELD for c in wanted)

    def _covered(self, row: int, c: int, copies: list[int]) -> bool:
        """Another verified copy of the very same refs exists, so that this one is not needed."""
        one = self._one
        digest = one.c_digest[c]
        if digest == 0:
            return False
        if one.witness[row] == digest:
            return True
        return any(
            one.c_rank[o] != UNWANTED
            and one.c_state[o] == HELD
            and one.c_digest[o] == digest
            and self._member(o).vouches
            for o in copies
            if o != c
        )

    def _differ(self, c: int, copies: list[int]) -> bool:
        """Otherwise it only waits for one that is trusted, or for the witness: no look at upstream helps."""
        digests = self._one.c_digest
        return digests[c] == 0 or any(
            self._one.c_rank[o] != UNWANTED and digests[o] != digests[c] for o in copies
        )

    def _nudge(self, row: int, copies: list[int], draft: Draft) -> None:
        key = self._table.key_of(row)
        for c in self.allowed(row, copies):
            member = self._member(c)
            if self._one.c_state[c] == HELD and member.alive and draft.takes_for(member):
                draft.nudge(member.id, key)

    # Roles

    def primary_of(self, copies: list[int]) -> int:
        """The copy whose worker polls, or -1."""
        one = self._one
        best, best_value = -1, 0x10000
        for c in copies:
            after, rank = _AFTER.get(one.c_state[c]), one.c_rank[c]
            if after is None or (after and rank == UNWANTED) or not self._member(c).alive:
                continue
            rank += after
            if rank < best_value:
                best, best_value = c, rank
        return best

    def _tell_roles(self, row: int, copies: list[int], draft: Draft) -> None:
        one = self._one
        may_know = self.allowed(row, copies)
        primary = self.primary_of(may_know)
        for c in may_know:
            if one.c_state[c] not in _AFTER:
                continue
            told, role = one.c_primary[c], PRIMARY if c == primary else FOLLOWER
            if told == role:
                continue
            if (member := self._reachable(row, c, draft)) is not None:
                one.c_primary[c] = role
                draft.assign(member.id, self._assignment(row, c, copies, role == PRIMARY))
                if role == FOLLOWER and self._is_behind(c, primary):
                    draft.nudge(member.id, self._table.key_of(row))
        for c in copies if len(may_know) < len(copies) else ():
            if c not in may_know:
                self._silence(row, c, draft)

    def _silence(self, row: int, c: int, draft: Draft) -> None:
        """It became private, and this worker may know nothing new of it: it keeps its copy, and looks no
        more."""
        one = self._one
        if one.c_state[c] != HELD or one.c_primary[c] == FOLLOWER:
            return
        if (member := self._reachable(row, c, draft)) is not None:
            one.c_primary[c] = FOLLOWER
            draft.stop(member.id, self._table.key_of(row))

    def _is_behind(self, c: int, primary: int) -> bool:
        """A follower looks only when it is told to: it may have missed that while it was away."""
        one = self._one
        digest = one.c_digest[primary] if one.c_state[primary] == HELD else 0
        return one.c_state[c] == HELD and digest not in (0, one.c_digest[c])

    def was_away(self, member: Member) -> None:
        """Its session goes on: what it follows and is behind with is told anew, and so looked at."""
        table, one = self._table, self._one
        on = table.copies_on(member.id)
        for c in on[table.c_primary[on] == FOLLOWER].tolist():
            allowed = self.allowed(one.c_row[c], table.copies_of(one.c_row[c]))
            primary = self.primary_of(allowed)
            if primary >= 0 and c in allowed and self._is_behind(c, primary):
                one.c_primary[c] = UNTOLD

    def tell_again(self, rows: NDArray[np.int32]) -> None:
        """Their configuration changed: whoever holds or clones them is told anew, with the role."""
        for row in rows.tolist():
            for c in self._table.copies_of(row):
                self._one.c_primary[c] = UNTOLD

    def ask(self, c: int, draft: Draft, since_s: float) -> None:
        """A planned copy's turn has come."""
        one = self._one
        row = one.c_row[c]
        one.c_state[c] = ASKED
        one.c_since[c] = self._asked_at.pop(c, int(since_s))
        copies = self._table.copies_of(row)
        primary = c == self.primary_of(self.allowed(row, copies))
        one.c_primary[c] = PRIMARY if primary else FOLLOWER
        draft.copy_changed(row, one.c_worker[c])
        draft.assign(self._member(c).id, self._assignment(row, c, copies, primary))
        if primary and len(copies) > 1:
            self._tell_roles(row, copies, draft)  # one asked before it was the primary until now

    def _assignment(self, row: int, c: int, copies: list[int], primary: bool) -> Assignment:
        source = None if self._one.c_state[c] == HELD else self._source(c, self.allowed(row, copies))
        orphan = self._one.c_state[c] != HELD and source is None
        return Assignment(self._table.key_of(row), primary, source, orphan)

    def _source(self, c: int, copies: list[int]) -> WorkerId | None:
        """A live holder to clone from; a wanted one before one that is leaving."""
        one = self._one
        held = [o for o in copies if o != c and one.c_state[o] == HELD and self._member(o).readable]
        if not held:
            return None
        return self._member(min(held, key=lambda o: one.c_rank[o])).id

    # Facts that a worker tells

    def told_complete(self, row: int, c: int, digest: int, verified_s: float, draft: Draft) -> None:
        """LEAVING stays: the worker told this before it read that it is to be deleted."""
        one = self._one
        one.c_digest[c] = digest
        one.c_verified[c] = int(verified_s)
        state = one.c_state[c]
        if state in (PLANNED, ASKED, DEFERRED, STOPPING):
            if state == ASKED:
                self._pace.done(self._member(c).id)
            elif state != DEFERRED:
                one.c_primary[c] = UNTOLD
            self.check_anew(row, self._member(c))
            self._set_state(row, c, HELD, draft)

    def check_anew(self, row: int, holder: Member) -> None:
        """A worker begins to hold the repo: an untrusted one was not fetched from (proofs.py)."""
        if not holder.record.facts.trusted:
            self._one.flags[row] &= 0xFF ^ CHECKED

    def _lost(self, row: int, c: int) -> None:
        """The copy is there no more: it may be the one that was fetched from (proofs.py)."""
        if self._one.c_state[c] in (HELD, LEAVING):
            self._one.flags[row] &= 0xFF ^ CHECKED

    def told_deferred(self, row: int, c: int, draft: Draft) -> None:
        """Its first clone failed, or cannot begin now: it leaves the window, and its worker tries again."""
        if self._one.c_state[c] == ASKED:
            self._pace.done(self._member(c).id)
            self._set_state(row, c, DEFERRED, draft)
            if len(self._table.copies_of(row)) > 1:
                draft.touched[row] = None  # another copy may poll

    def told_declined(self, row: int, c: int, digest: int, verified_s: float, draft: Draft) -> None:
        """It was to be deleted, but has other refs than those that are covered: it stays, and is looked at
        anew."""
        if self._one.c_state[c] == LEAVING:
            self._one.c_digest[c] = digest
            self._one.c_verified[c] = int(verified_s)
            self._set_state(row, c, HELD, draft)

    def told_dropped(self, row: int, c: int, draft: Draft) -> None:
        """Nothing of it is there: wanted, it is asked for anew; otherwise it is over."""
        if self._one.c_rank[c] == UNWANTED:
            self.drop(row, c, draft)
        elif self._one.c_state[c] != PLANNED:
            self.plan_again(row, c, draft)

    def plan_again(self, row: int, c: int, draft: Draft) -> None:
        """A wanted copy goes back to the start. An untrusted worker wins no time by that (slow.py)."""
        one = self._one
        if one.c_state[c] in (ASKED, DEFERRED) and not self._member(c).record.facts.trusted:
            self._asked_at[c] = one.c_since[c]
        else:
            self._asked_at.pop(c, None)
        self._lost(row, c)
        self._set_state(row, c, PLANNED, draft)
        one.c_digest[c] = 0
        one.c_primary[c] = UNTOLD
        urgent = bool(one.flags[row] & URGENT)
        self._pace.plan(self._member(c).id, (c,), orphan=not self.held_alive(row), urgent=urgent)

    def held_alive(self, row: int) -> bool:
        """A complete copy is on a worker that is alive."""
        one = self._one
        return any(one.c_state[o] == HELD and self._member(o).alive for o in self._table.copies_of(row))

    def drop(self, row: int, c: int, draft: Draft, *, handed_back: bool = False) -> None:
        """Forget the copy: nothing of it is there."""
        worker = self._one.c_worker[c]
        self._lost(row, c)
        if self._one.c_state[c] == ASKED:
            ended = self._pace.failed if handed_back else self._pace.stopped
            ended(WorkerId(worker))
        self._asked_at.pop(c, None)
        self._table.drop_copy(c)
        draft.copy_changed(row, worker)

    # Small things

    def _set_state(self, row: int, c: int, state: CopyState, draft: Draft) -> None:
        if self._one.c_state[c] == ASKED and state not in (HELD, DEFERRED):
            self._pace.stopped(self._member(c).id)
        self._one.c_state[c] = state
        if state in (STOPPING, LEAVING):
            self._one.c_primary[c] = UNTOLD
        draft.copy_changed(row, self._one.c_worker[c])

    def _reachable(self, row: int, c: int, draft: Draft) -> Member | None:
        """Its worker, if a command can go out now; a full outbox is waited for."""
        member = self._member(c)
        if member.record.duty is Duty.QUARANTINED or not member.ready:
            return None  # looked at again when it is back
        if not draft.takes_for(member):
            member.deferred.add(row)
            return None
        return member

    def _member(self, c: int) -> Member:
        return self._crew[WorkerId(self._one.c_worker[c])]
