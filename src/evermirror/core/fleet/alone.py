"""Very many rows to settle at once, as when a worker told all it holds: nearly all are as they should be.

A repo with one copy, which is wanted and held on a worker that is there, has that worker as its primary; all
that may be left to do is to tell it so. Those are found over the columns; the others take the long way, one
by one (handover.py), and what follows is the same.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import UNWANTED
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Assignment
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.handover import HELD, PRIMARY
from evermirror.core.fleet.table import NONE, REMOVED, TRUSTED_ONLY, FleetTable
from evermirror.model.worker import WorkerId

MANY = 50  # rows; fewer are sooner looked at one by one


def settle_alone(table: FleetTable, crew: Crew, rows: Collection[int], draft: Draft) -> Collection[int]:
    """Tells primaries that they are; the rows that are left to settle."""
    if len(rows) < MANY:
        return rows
    row = np.fromiter(rows, np.int32, len(rows))
    c = table.first[row]
    alone = (c != NONE) & (table.c_next[c] == NONE) & ((table.flags[row] & (REMOVED | TRUSTED_ONLY)) == 0)
    alone &= (table.c_state[c] == HELD) & (table.c_rank[c] != UNWANTED)
    on = table.c_worker[c]
    for worker in np.unique(on[alone]).tolist():
        member = crew[WorkerId(worker)]
        its = alone & (on == worker)
        if member.ready and not member.alive:
            alone &= ~its
        elif member.ready:  # else nothing can be told, and all is looked at again when it is
            _tell(table, member, row[its], c[its], draft)
    left: list[int] = row[~alone].tolist()
    return left


def _tell(
    table: FleetTable, member: Member, rows: NDArray[np.int32], copies: NDArray[np.int32], draft: Draft
) -> None:
    """What its outbox has no room for is looked at again when it has."""
    untold = table.c_primary[copies] != PRIMARY
    told = table.one.c_primary
    for row, c in zip(rows[untold].tolist(), copies[untold].tolist(), strict=True):
        if draft.takes_for(member):
            told[c] = PRIMARY
            draft.assign(member.id, Assignment(table.key_of(row), primary=True))
        else:
            member.deferred.add(row)
