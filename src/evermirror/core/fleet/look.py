"""Looking at the tables: a repo, the workers, the whole, as frozen values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import NOBODY, UNWANTED, CopyState, Reason
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.handover import ASKED, DEFERRED, HELD, PLANNED, PRIMARY, Handover
from evermirror.core.fleet.moves import keeps_moved
from evermirror.core.fleet.proofs import CHECK_S, is_verified, verified
from evermirror.core.fleet.rebalance import Rebalancer
from evermirror.core.fleet.table import NO_ROOM, REMOVED, FleetTable
from evermirror.core.fleet.views import CopyView, Losing, RepoView, Totals, WorkerView
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerId


def repo_view(table: FleetTable, crew: Crew, handover: Handover, key: RepoKey) -> RepoView | None:
    """None for a key that nobody knows."""
    row = table.row_of(key)
    if row < 0:
        return None
    one = table.one
    copies = table.copies_of(row)
    primary = handover.primary_of(handover.allowed(row, copies))
    return RepoView(
        key=key,
        removed=bool(one.flags[row] & REMOVED),
        no_room=bool(one.flags[row] & NO_ROOM),
        replicas=one.replicas[row],
        salt=one.salt[row],
        copies=tuple(_copy_view(table, c) for c in copies),
        primary=None if primary < 0 else WorkerId(one.c_worker[primary]),
        verified=is_verified(table, crew, row),
    )


def primary_of(table: FleetTable, handover: Handover, key: RepoKey) -> WorkerId | None:
    """Who looks at it for all, without the rest of ``repo_view``; None where nobody does or knows it."""
    row = table.row_of(key)
    primary = handover.primary_of(handover.allowed(row, table.copies_of(row))) if row >= 0 else -1
    return None if primary < 0 else WorkerId(table.one.c_worker[primary])


def may_read(table: FleetTable, crew: Crew, handover: Handover, key: RepoKey, worker: WorkerId) -> bool:
    """Whether the worker may be told of this repo, read it from others and be read: the repo is in the
    catalog, the worker is not in quarantine, and trusted where the repo is for trusted workers only."""
    member, row = crew.get(worker), table.row_of(key)
    if member is None or row < 0 or table.one.flags[row] & REMOVED:
        return False
    return member.record.duty is not Duty.QUARANTINED and handover.may_know(row, member)


def speaks_for(table: FleetTable, crew: Crew, handover: Handover, key: RepoKey, worker: WorkerId) -> bool:
    """Whether what the worker reports of the repo counts: it was given it, and may know of it. That it
    claims to hold what nobody placed there is no reason to believe it."""
    member, row = crew.get(worker), table.row_of(key)
    c = table.find_copy(row, worker) if row >= 0 else -1
    if c < 0 or member is None or member.record.duty is Duty.QUARANTINED:
        return False
    placed = table.one.c_rank[c] != UNWANTED or table.one.c_reason[c] != Reason.FOUND
    return placed and bool(handover.allowed(row, [c]))


def _copy_view(table: FleetTable, c: int) -> CopyView:
    one = table.one
    return CopyView(
        worker=WorkerId(one.c_worker[c]),
        rank=None if one.c_rank[c] == UNWANTED else one.c_rank[c],
        state=CopyState(one.c_state[c]),
        reason=Reason(one.c_reason[c]),
        digest=one.c_digest[c],
        verified_s=float(one.c_verified[c]),
        since_s=float(one.c_since[c]),
        primary=one.c_primary[c] == PRIMARY,
    )


def worker_views(
    table: FleetTable, crew: Crew, limits_of: Callable[[WorkerId], ApplySettings | None]
) -> tuple[WorkerView, ...]:
    """All that may come back, by id."""
    n, width = table.copies, crew.width
    used = table.c_worker[:n] != NOBODY
    wanted, held, asked = (
        np.bincount(table.c_worker[:n][used & which], minlength=width)
        for which in (
            table.c_rank[:n] != UNWANTED,
            table.c_state[:n] == HELD,
            table.c_state[:n] == ASKED,
        )
    )
    return tuple(
        WorkerView(
            record=m.record,
            connected=m.connected,
            reconciled=m.reconciled,
            accepting=m.accepting,
            wanted=int(wanted[m.id]),
            held=int(held[m.id]),
            asked=int(asked[m.id]),
            strays=m.strays,
            unacked=len(m.outbox),
            heard_at=m.heard_at,
            stalled=m.stalled,
            unreachable=m.unreachable,
            limits=limits_of(m.id),
        )
        for m in sorted(crew, key=lambda m: m.id)
    )


def totals(
    table: FleetTable, crew: Crew, rebalancer: Rebalancer, now_s: float, *, braked: bool, warming: bool
) -> Totals:
    """Counted over all copies, at once: milliseconds for a million."""
    n = table.copies
    rows, workers, states = table.c_row[:n], table.c_worker[:n], table.c_state[:n]
    used = workers != NOBODY
    alive = np.zeros(NOBODY + 1, bool)
    alive[[m.id for m in crew if m.alive]] = True
    readable = np.zeros(NOBODY + 1, bool)
    readable[[m.id for m in crew if m.readable]] = True
    there = used & alive[workers]
    wanted = table.c_rank[:n] != UNWANTED
    stays = wanted | keeps_moved(crew)[workers]
    proven = verified(table, crew)
    holds = used & readable[workers] & (states == HELD)
    held, old = rows[holds], rows[holds & (table.c_since[:n] < max(now_s - CHECK_S, 0.0))]
    return Totals(
        repos=len(table),
        owned=_listed(table, rows[there & wanted]),
        held=_listed(table, held[proven[held]]),
        unverified=_listed(table, held[~proven[held]]),
        unchecked=_listed(table, old[~proven[old]]),
        checkable=not rebalancer.proving or _can_prove(crew, workers[used & wanted]),
        no_room=rebalancer.no_room,
        moving=_listed(table, rows[used & (((states != HELD) & (states != DEFERRED)) | ~stays)]),
        planned=int(np.count_nonzero(used & (states == PLANNED))),
        asked=int(np.count_nonzero(there & (states == ASKED))),
        deferred=int(np.count_nonzero(used & (states == DEFERRED))),
        stopping=int(np.count_nonzero(used & (states == CopyState.STOPPING))),
        leaving=int(np.count_nonzero(used & (states == CopyState.LEAVING))),
        workers=sum(m.record.duty is not Duty.RETIRED for m in crew),
        alive=sum(m.record.liveness is Liveness.ALIVE for m in crew),
        suspect=sum(m.record.liveness is Liveness.SUSPECT for m in crew),
        braked=braked,
        warming=warming,
    )


def _can_prove(crew: Crew, load: NDArray[np.uint16]) -> bool:
    """A trusted worker has room; ``load`` is the worker of each copy that is wanted."""
    has = np.bincount(load, minlength=crew.width)
    trusted = [m for m in crew if m.takes and m.record.facts.trusted]
    return any(m.record.facts.capacity is None or has[m.id] < m.record.facts.capacity for m in trusted)


def losing(table: FleetTable, crew: Crew, worker: WorkerId) -> Losing:
    """Counted over all copies, as they stand."""
    n = table.copies
    rows, workers, held = table.c_row[:n], table.c_worker[:n], table.c_state[:n] == HELD
    alive = np.zeros(NOBODY + 1, bool)
    alive[[m.id for m in crew if m.alive and m.id != worker]] = True
    alone = np.zeros(table.rows, bool)
    alone[rows[held & (workers == worker)]] = True
    alone[rows[held & alive[workers]]] = False
    wanted = (workers == worker) & (table.c_rank[:n] != UNWANTED)
    return Losing(int(np.count_nonzero(wanted)), _listed(table, np.flatnonzero(alone).astype(np.int32)))


def _listed(table: FleetTable, rows: np.ndarray[tuple[int], np.dtype[np.int32]]) -> int:
    """How many repos of the catalog are among these."""
    marked = np.zeros(table.rows, bool)
    marked[rows] = True
    return int(np.count_nonzero(marked & ((table.flags[: table.rows] & REMOVED) == 0)))
