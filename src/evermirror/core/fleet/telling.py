"""What follows from a worker's word about its disk: all was told, something is missing, there is no room.

reconcile.py corrects the tables; here is what the rest of the fleet makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from evermirror.core.fleet.copies import UNWANTED, Reason
from evermirror.core.fleet.crew import Member
from evermirror.core.fleet.decisions import PutSalt
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.handover import Handover
from evermirror.core.fleet.membership import Membership, tell_strays
from evermirror.core.fleet.placing import Placing
from evermirror.core.fleet.reconcile import Reconciler
from evermirror.core.fleet.slow import SlowClones
from evermirror.core.fleet.table import SALTS, FleetTable
from evermirror.model.repo import RepoKey


class Telling:
    """Of one worker at a time."""

    def __init__(
        self,
        table: FleetTable,
        reconciler: Reconciler,
        membership: Membership,
        placing: Placing,
        handover: Handover,
        slow: SlowClones,
    ) -> None:
        self._table = table
        self._reconciler = reconciler
        self._membership = membership
        self._placing = placing
        self._handover = handover
        self._slow = slow

    def told_all(self, member: Member, now_s: float, draft: Draft) -> None:
        """A fresh session: it is known what it holds, and commands may be sent."""
        member.reconciled = True
        self._reconciler.end(member, draft)
        self.lost_some(member, now_s, draft)
        self._membership.gate(member)
        tell_strays(member, draft)
        on = self._table.copies_on(member.id)
        if not np.any(self._table.c_rank[on] != UNWANTED):
            self._placing.joins(member)

    def lost_some(self, member: Member, now_s: float, draft: Draft) -> None:
        """What is wanted on it and is not there is planned anew: elsewhere, where its disk is full."""
        if not member.accepting:
            self._membership.move_waiting(member, now_s, draft)

    def cloned(self, member: Member, took_s: Iterable[float], draft: Draft) -> None:
        """First clones are complete, so long after they were asked for."""
        for each_s in took_s:
            self._slow.done(member, each_s, draft)

    def handed_back(self, member: Member, keys: Iterable[RepoKey], now_s: float, draft: Draft) -> None:
        """No room there: another place on the ring for each, and not this worker for a while."""
        table, rows = self._table, []
        for key in keys:
            row = table.row_of(key)
            c = table.find_copy(row, member.id) if row >= 0 else -1
            if c < 0:
                continue
            self._handover.drop(row, c, draft, handed_back=True)
            table.one.salt[row] = (table.one.salt[row] + 1) % SALTS
            draft.write(PutSalt(key, table.one.salt[row]))
            self._placing.bar(row, member.id)
            draft.touched[row] = None
            rows.append(row)
        self._placing.place(np.array(rows, np.int32), now_s, draft, why=Reason.REHASHED)
