"""Which repos are on the move: copies that come, copies that go; found over all copies at once.

Those being cloned come first, then those that wait for their turn, then those of which only an old copy goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import NOBODY, UNWANTED, CopyState, Reason
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.table import LIVE, REMOVED, TRUSTED_ONLY, FleetTable
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId


@dataclass(frozen=True, slots=True)
class Move:
    """A repo of the catalog with a copy that comes or goes. ``state`` is that of the copy which comes, else
    of the one which goes; ``reason`` says why a copy comes, None where only one goes."""

    key: RepoKey
    going: tuple[WorkerId, ...]
    coming: tuple[WorkerId, ...]
    state: CopyState
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Moves:
    """The first of them, and how many there are."""

    items: tuple[Move, ...]
    total: int


def moves(table: FleetTable, crew: Crew, limit: int, *, public: bool) -> Moves:
    """``public``: without repos that only trusted workers may hold."""
    n = table.copies
    states, ranks = table.c_state[:n], table.c_rank[:n]
    used, wanted, held = table.c_worker[:n] != NOBODY, ranks != UNWANTED, states == CopyState.HELD
    coming = used & wanted & ~held & (states != CopyState.DEFERRED)
    asked = states == CopyState.ASKED
    hidden = REMOVED | (TRUSTED_ONLY if public else 0)
    left = (table.flags[: table.rows] & (LIVE | hidden)) == LIVE
    parts, total = list[NDArray[np.intp]](), 0
    going = used & ~wanted & ~(held & keeps_moved(crew)[table.c_worker[:n]])
    for which in (coming & asked, coming & ~asked, going):
        marked = np.zeros(table.rows, bool)
        marked[table.c_row[:n][which]] = True
        rows = np.flatnonzero(marked & left)
        left[rows] = False
        total += len(rows)
        parts.append(rows[:limit])
    chosen = [int(row) for row in chain.from_iterable(parts)][:limit]
    return Moves(tuple(_move(table, crew, row) for row in chosen), total)


def keeps_moved(crew: Crew) -> NDArray[np.bool_]:
    """By worker: its complete copies stay although they are no longer wanted there."""
    keeps = np.zeros(NOBODY + 1, bool)
    keeps[[m.id for m in crew if m.keeps_moved]] = True
    return keeps


def _move(table: FleetTable, crew: Crew, row: int) -> Move:
    one = table.one
    copies = table.copies_of(row)
    going = [c for c in copies if one.c_rank[c] == UNWANTED and not _stays(table, crew, c)]
    settled = (CopyState.HELD, CopyState.DEFERRED)
    coming = [c for c in copies if one.c_rank[c] != UNWANTED and one.c_state[c] not in settled]
    first = max(coming or going, key=lambda c: int(one.c_state[c]))
    return Move(
        key=table.key_of(row),
        going=tuple(WorkerId(one.c_worker[c]) for c in going),
        coming=tuple(WorkerId(one.c_worker[c]) for c in coming),
        state=CopyState(one.c_state[first]),
        reason=Reason(one.c_reason[first]) if coming else None,
    )


def _stays(table: FleetTable, crew: Crew, c: int) -> bool:
    one = table.one
    return one.c_state[c] == CopyState.HELD and crew[WorkerId(one.c_worker[c])].keeps_moved
