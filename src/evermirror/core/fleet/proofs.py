"""Which repos are verified, and who proves what only untrusted workers say they hold.

The word of an untrusted worker that it holds a repo proves nothing. A repo is *verified* while

    a trusted worker holds it that is not down, or
    an aggregator holds it, or
    an aggregator held it, so its objects were really fetched, and all who held it then are still there.

An aggregator does not say whom it fetched from. So what it verified is void once one of the holders loses the
repo, or another untrusted worker begins to hold it; and does not count while a holder is away.

Aggregators fetch what changes, so a fleet that has one waits for it. A fleet without one gives each repo that
only untrusted workers are to hold one more copy, its *proof*, on a trusted worker that has room. A proof is
not counted among the replicas, and not balanced: it is where the walk round the ring first meets a trusted
worker, and stays there. Replicas come first: proofs have what these leave of a worker's capacity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.bounds import Sites
from evermirror.core.fleet.copies import NOBODY, PROOF
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.ring import IDS, Ring
from evermirror.core.fleet.seating import Workers, admit, among, any_rank, pairs, pairs_of
from evermirror.core.fleet.table import CHECKED, CopyState, FleetTable
from evermirror.model.worker import WorkerId

CHECK_S = 86_400.0  # people are told of what nobody has verified for so long

Rows = NDArray[np.int32]


def proofs_of(table: FleetTable, rows: Rows) -> Workers:
    """The worker that each row's proof is on; NOBODY where it has none."""
    n = table.copies
    found = np.full(table.rows, NOBODY, np.uint16)
    copies = np.flatnonzero((table.c_rank[:n] == PROOF) & (table.c_worker[:n] != NOBODY))
    found[table.c_row[copies]] = table.c_worker[copies]
    return found[rows]


def place_proofs(
    should: NDArray[np.uint16],
    before: Workers,
    positions: NDArray[np.uint64],
    ring: Ring,
    sites: Sites,
    room: NDArray[np.int64],
    barred: Mapping[int, tuple[int, ...]],
) -> Workers:
    """The worker for each repo's proof; NOBODY where it needs none, or nobody can take it.

    ``should``: who is to hold each repo otherwise. ``room``: by worker id, for proofs beyond ``before``."""
    trusted = np.zeros(IDS, bool)
    trusted[: len(sites.member)] = sites.member & sites.trusted
    proofs = np.full(len(should), NOBODY, np.uint16)
    needs = any_rank(should != NOBODY) & ~any_rank(trusted[should])
    stays = needs & trusted[before]
    proofs[stays] = before[stays]
    takes = trusted.copy()
    takes[: len(sites.takes)] &= sites.takes
    free = np.zeros(IDS, np.int64)
    free[: len(room)] = room
    unwelcome = pairs_of(barred)
    index = np.flatnonzero(needs & ~stays).astype(np.int32)
    while len(index) and len(ring) and (takes & (free > 0)).any():
        takes &= free > 0
        workers = ring.homes(ring.after(positions[index]), 1, takes)[:, 0]
        taken = admit(workers, ring.distance(positions[index], workers), free)
        refused = among(pairs(index, workers), unwelcome)
        seated = taken & ~refused
        proofs[index[seated]] = workers[seated]
        free -= np.bincount(workers[seated], minlength=IDS)
        if not taken.any():
            break
        index = index[~taken]
    return proofs


def verified(table: FleetTable, crew: Crew) -> NDArray[np.bool_]:
    """By row: see the module."""
    n = table.copies
    held, workers, rows = table.c_state[:n] == CopyState.HELD, table.c_worker[:n], table.c_row[:n]
    proves, away = np.zeros(NOBODY + 1, bool), np.zeros(NOBODY + 1, bool)
    proves[[m.id for m in crew if m.proves]] = True
    away[[m.id for m in crew if m.away]] = True
    proven: NDArray[np.bool_] = (table.flags[: table.rows] & CHECKED) != 0
    proven[rows[held & away[workers]]] = False
    proven |= table.witness[: table.rows] != 0
    proven[rows[held & proves[workers]]] = True
    return proven


def is_verified(table: FleetTable, crew: Crew, row: int) -> bool:
    """The same for one."""
    one = table.one
    if one.witness[row]:
        return True
    held = (c for c in table.copies_of(row) if one.c_state[c] == CopyState.HELD)
    holders = [m for c in held if (m := crew.get(WorkerId(one.c_worker[c]))) is not None]
    checked = bool(one.flags[row] & CHECKED) and not any(m.away for m in holders)
    return checked or any(m.proves for m in holders)
