"""What a worker tells that it holds, against what is known: the worker's disk is the truth.

At the start of a fresh session everything is told, in chunks; nothing sent in earlier sessions is still to
be done. So a copy that is told is HELD, whatever it was; one that is not told is not there: wanted, it is
planned anew, or, where its clone was deferred, told to its worker again without a place in the window;
otherwise it is forgotten. A full comparison by ranges later says the same for the ranges that
differ, except that commands may be on their way: what is ASKED, STOPPING or LEAVING then waits for its own
answer.

A repo told that nobody placed there (FOUND) is kept until it is covered. One that is known to nobody is a
stray: it is counted, shown, and left alone. So is one that the worker may not know of: nothing that it is
sent differs from what follows on a name that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import UNWANTED, Reason
from evermirror.core.fleet.crew import Member
from evermirror.core.fleet.digests import RangeDigests, digests_of, range_of, ranges_of
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import HeldCopy
from evermirror.core.fleet.handover import ASKED, DEFERRED, HELD, PLANNED, STOPPING, UNTOLD, Handover
from evermirror.core.fleet.table import NONE, TRUSTED_ONLY, FleetTable
from evermirror.model.repo import RepoKey


class Reconciler:
    """Corrects the copies of one worker by what it tells."""

    def __init__(self, table: FleetTable, handover: Handover) -> None:
        self._table = table
        self._handover = handover

    # A fresh session

    def begin(self, member: Member) -> None:
        """Nothing told before counts, no role is known to be known."""
        member.told.clear()
        member.strays = 0
        on = self._table.copies_on(member.id)
        self._table.c_primary[on] = UNTOLD

    def told(self, member: Member, copies: Sequence[HeldCopy], now_s: float, draft: Draft) -> None:
        """One chunk of what is on its disk."""
        table = self._table
        rows = self._visible(member, table.rows_of([held.key for held in copies]))
        digests = np.array([held.digest for held in copies], np.uint64)
        verified_s = np.array([int(held.verified_s) for held in copies], np.uint32)
        known = rows != NONE
        member.strays += len(rows) - int(np.count_nonzero(known))
        rows, digests, verified_s = rows[known], digests[known], verified_s[known]
        member.told.update(rows.tolist())
        c = table.find_copies(rows, member.id)
        for i in np.flatnonzero((c == NONE) | (table.c_state[c] != HELD)).tolist():
            c[i] = self._is_held(int(rows[i]), member, now_s, draft)
        counts = self._counts(member, rows)
        table.c_digest[c[counts]] = digests[counts]
        table.c_verified[c[counts]] = verified_s[counts]

    def _visible(self, member: Member, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """The rows with NONE for every repo that this worker may not know of: what it claims of a private
        repo is treated as of a key that does not exist. Copies that it was given before stay visible."""
        private = np.flatnonzero((rows != NONE) & ~self._counts(member, rows))
        given = self._table.find_copies(rows[private], member.id) != NONE
        rows[private[~given]] = NONE
        return rows

    def _counts(self, member: Member, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """For each row, whether the worker may know of the repo. If not, the refs that it tells of a copy it
        was given before count for nothing: it could try which are equal to a trusted worker's."""
        if member.record.facts.trusted:
            return np.ones(len(rows), np.bool_)
        may: NDArray[np.bool_] = (self._table.flags[rows] & TRUSTED_ONLY) == 0
        return may

    def end(self, member: Member, draft: Draft) -> None:
        """All was told: what was not is not there."""
        on = self._table.copies_on(member.id)
        rows = self._table.c_row[on].tolist()
        draft.touched.update(dict.fromkeys(rows))
        for row, c in zip(rows, on.tolist(), strict=True):
            if row not in member.told:
                self._is_missing(row, c, draft)
        member.told.clear()

    def _is_held(self, row: int, member: Member, now_s: float, draft: Draft) -> int:
        """Which was not known; its copy."""
        c = self._table.find_copy(row, member.id)  # a key may be told twice: the first time made it
        if c < 0:
            return self._found(row, member, now_s, draft)
        self._handover.check_anew(row, member)
        self._table.one.c_state[c] = HELD
        draft.copy_changed(row, member.id)
        return c

    def _is_missing(self, row: int, c: int, draft: Draft) -> None:
        if self._table.c_rank[c] == UNWANTED:
            self._handover.drop(row, c, draft)
        elif self._table.c_state[c] not in (PLANNED, DEFERRED):
            self._handover.plan_again(row, c, draft)

    def _found(self, row: int, member: Member, now_s: float, draft: Draft) -> int:
        self._handover.check_anew(row, member)
        c = self._table.add_copy(row, member.id, UNWANTED, HELD, Reason.FOUND, now_s)
        self._table.c_primary[c] = UNTOLD
        draft.copy_changed(row, member.id)
        return c

    # In the middle of a session

    def verified(self, member: Member, copies: Iterable[HeldCopy], now_s: float, draft: Draft) -> list[float]:
        """Clones done, and syncs that changed refs; how long ago the first clones among them were asked
        for."""
        table = self._table
        took_s: list[float] = []
        for held in copies:
            row = table.row_of(held.key)
            if row < 0:
                continue  # forgotten meanwhile; the next full comparison shows it as a stray
            c = table.find_copy(row, member.id)
            if not self._handover.may_know(row, member):
                continue  # as for a key that does not exist
            if c < 0:
                c = self._found(row, member, now_s, draft)
            before = table.c_state[c]
            if before in (ASKED, STOPPING):
                took_s.append(now_s - float(table.c_since[c]))
            self._handover.told_complete(row, c, held.digest, held.verified_s, draft)
            alone = table.first[row] == c and table.c_next[c] < 0
            if before != HELD or not alone or table.c_rank[c] == UNWANTED:
                draft.touched[row] = None
        return took_s

    def dropped(self, member: Member, keys: Iterable[RepoKey], draft: Draft) -> None:
        for key in keys:
            row = self._table.row_of(key)
            c = self._table.find_copy(row, member.id) if row >= 0 else -1
            if c >= 0:
                self._handover.told_dropped(row, c, draft)
                draft.touched[row] = None

    def deferred(self, member: Member, keys: Iterable[RepoKey], draft: Draft) -> None:
        for key in keys:
            row = self._table.row_of(key)
            c = self._table.find_copy(row, member.id) if row >= 0 else -1
            if c >= 0:
                self._handover.told_deferred(row, c, draft)

    def declined(self, member: Member, copies: Iterable[HeldCopy], draft: Draft) -> None:
        for held in copies:
            row = self._table.row_of(held.key)
            c = self._table.find_copy(row, member.id) if row >= 0 else -1
            if c >= 0:
                self._handover.told_declined(row, c, held.digest, held.verified_s, draft)
                draft.touched[row] = None

    # The full comparison

    def digests(self, member: Member) -> RangeDigests:
        """Of all that it is believed to hold."""
        table = self._table
        on = table.copies_on(member.id)
        held = on[table.c_state[on] == HELD]
        return digests_of(table.hash[table.c_row[held]], table.c_digest[held])

    def compared(
        self, member: Member, ranges: frozenset[int], copies: Iterable[HeldCopy], now_s: float, draft: Draft
    ) -> None:
        """All that it holds in these ranges."""
        table = self._table
        told: set[int] = set()
        for held in copies:
            row = table.row_of(held.key)
            if row < 0 or range_of(int(table.hash[row])) not in ranges:
                continue
            told.add(row)
            c = table.find_copy(row, member.id)
            if c < 0 or table.c_state[c] in (PLANNED, ASKED, DEFERRED, HELD):
                self.verified(member, (held,), now_s, draft)
        on = table.copies_on(member.id)
        within = np.isin(ranges_of(table.hash[table.c_row[on]]), list(ranges))
        for c in on[within & (table.c_state[on] == HELD)].tolist():
            row = int(table.c_row[c])
            if row not in told:
                self._is_missing(row, c, draft)
                draft.touched[row] = None
