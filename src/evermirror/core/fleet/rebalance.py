"""From the tables to the placement's columns and back: who should hold what is decided, and becomes copies.

``placement.place`` decides over plain columns. Here those columns are made, for all repos (a worker joined)
or for a few (a worker was lost, a repo is new), and what differs is written into the copies: a newly wanted
one is PLANNED, one no longer wanted loses its rank; the rest stays as it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import NOBODY, PROOF, UNWANTED, Reason
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.draft import Draft, PlannedRows
from evermirror.core.fleet.handover import HELD, PLANNED, UNTOLD, Handover
from evermirror.core.fleet.hashing import positions
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.placement import UNCHANGED, Placement, Sites, Wishes, place
from evermirror.core.fleet.proofs import place_proofs, proofs_of
from evermirror.core.fleet.ring import Ring
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.table import NO_ROOM, TRUSTED_ONLY, URGENT, FleetTable
from evermirror.model.worker import WorkerId

CAPACITY_NONE = 1 << 40  # copies; more than any fleet has


class Rebalancer:
    """Places rows and turns the result into copies."""

    def __init__(
        self, settings: FleetSettings, table: FleetTable, crew: Crew, pace: Pace, handover: Handover
    ) -> None:
        self._settings = settings
        self._table = table
        self._crew = crew
        self._pace = pace
        self._handover = handover
        self.ring = Ring.build((), (), settings.points)
        self._weights: dict[WorkerId, float] = {}  # of the ring
        self.no_room = 0  # repos that have fewer copies than they should: nobody can take them
        self.pins: dict[int, tuple[str, ...]] = {}  # row → names of workers
        # Repos that only untrusted workers are to hold get a proof (proofs.py); None: those there are stay.
        self.proving: bool | None = None

    def place(
        self,
        rows: NDArray[np.int32],
        now_s: float,
        draft: Draft,
        *,
        joined: tuple[int, ...] = (),
        barred: dict[int, tuple[int, ...]] | None = None,
        why: Reason | None = None,
    ) -> None:
        """Place these rows; all of them, where workers joined. ``why`` is the reason of what had to move.

        ``barred``: row → workers that must not get it now."""
        self._build_ring(now_s)  # also where nothing is to be placed: it is shown to people
        if len(rows) == 0:
            return
        sites = self._sites(rows)
        wishes = self._wishes(rows, joined, barred or {})
        result = place(wishes, self.ring, sites, self._settings.load_bound)
        self._note_room(rows, result)
        before = proofs_of(self._table, rows)
        after = self._proofs(wishes, result.should, sites, before)
        self._apply(
            rows, _with(wishes.should, before), _with_proofs(result, before, after), now_s, draft, why
        )
        self._shed_proofs(sites.capacity, draft)

    def _proofs(
        self, wishes: Wishes, should: NDArray[np.uint16], sites: Sites, before: NDArray[np.uint16]
    ) -> NDArray[np.uint16]:
        """Who is to prove each of these repos."""
        if self.proving is None:
            return before
        if not self.proving:
            return np.full_like(before, NOBODY)
        load = np.bincount(should[should != NOBODY], minlength=len(sites.member))
        if sites.elsewhere is not None:
            load = load + sites.elsewhere
        room = sites.capacity - load[: len(sites.capacity)] - self._proofs_on(len(sites.capacity))
        return place_proofs(should, before, wishes.positions, self.ring, sites, room, wishes.barred)

    def _proofs_on(self, width: int) -> NDArray[np.intp]:
        """How many proofs each worker has."""
        n = self._table.copies
        on = self._table.c_worker[:n][self._table.c_rank[:n] == PROOF]
        return np.bincount(on[on != NOBODY], minlength=width)

    def _shed_proofs(self, capacity: NDArray[np.int64], draft: Draft) -> None:
        """Replicas come first: proofs beyond a worker's capacity are wanted there no more."""
        table, n = self._table, self._table.copies
        if not self._proofs_on(len(capacity)).any():
            return
        wanted = (table.c_rank[:n] != UNWANTED) & (table.c_worker[:n] != NOBODY)
        beyond = np.bincount(table.c_worker[:n][wanted], minlength=len(capacity)) - capacity
        for worker in np.flatnonzero(beyond > 0).tolist():
            proofs = np.flatnonzero((table.c_rank[:n] == PROOF) & (table.c_worker[:n] == worker))
            held_last = np.argsort(table.c_state[proofs] == HELD, kind="stable")
            for c in proofs[held_last][: beyond[worker]].tolist():
                table.one.c_rank[c] = UNWANTED
                draft.copy_changed(table.one.c_row[c], worker)
                draft.touched[table.one.c_row[c]] = None

    def unproven(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of these are to be held by untrusted workers alone, though they could have a proof; or have
        one that is of no use any more."""
        table, n = self._table, self._table.copies
        trusted = np.zeros(NOBODY + 1, bool)
        trusted[[m.id for m in self._crew if m.keeps and m.record.facts.trusted]] = True
        wanted = (table.c_rank[:n] != UNWANTED) & (table.c_worker[:n] != NOBODY)
        proven, any_wanted = np.zeros(table.rows, bool), np.zeros(table.rows, bool)
        proven[table.c_row[:n][wanted & trusted[table.c_worker[:n]]]] = True
        any_wanted[table.c_row[:n][wanted]] = True
        lacking = any_wanted & ~proven & bool(self.proving and self._room_for_proofs(wanted))
        has_proof = np.zeros(table.rows, bool)
        has_proof[table.c_row[:n][wanted & (table.c_rank[:n] == PROOF)]] = True
        found: NDArray[np.bool_] = (lacking | (has_proof & (self.proving is False)))[rows]
        return found

    def _room_for_proofs(self, wanted: NDArray[np.bool_]) -> bool:
        """Some trusted worker can take one; ``wanted``: by copy, it counts."""
        load = np.bincount(self._table.c_worker[: len(wanted)][wanted], minlength=self._crew.width)
        trusted = (m for m in self._crew if m.takes and m.record.facts.trusted)
        capacities = ((m.id, m.record.facts.capacity) for m in trusted)
        return any(capacity is None or load[worker] < capacity for worker, capacity in capacities)

    # Columns for the placement

    def _build_ring(self, now_s: float) -> None:
        weights = {m.id: m.weight_for_new(now_s) for m in self._crew if m.keeps}
        if weights != self._weights:
            self.ring = Ring.build(list(weights), list(weights.values()), self._settings.points)
            self._weights = weights

    def _sites(self, rows: NDArray[np.int32]) -> Sites:
        width = self._crew.width
        member, takes, trusted = (np.zeros(width, bool) for _ in range(3))
        weight = np.zeros(width)
        capacity = np.zeros(width, np.int64)
        for m in self._crew:
            facts = m.record.facts
            member[m.id], takes[m.id], trusted[m.id] = m.keeps, m.takes, facts.trusted
            weight[m.id] = facts.weight
            capacity[m.id] = CAPACITY_NONE if facts.capacity is None else facts.capacity
        others = len(self._table) - len(rows)
        return Sites(member, takes, trusted, weight, capacity, self._load_elsewhere(rows, width), others)

    def _load_elsewhere(self, rows: NDArray[np.int32], width: int) -> NDArray[np.int64]:
        """Wanted copies of the repos that are not placed now, without proofs."""
        table = self._table
        n = table.copies
        counted = (table.c_rank[:n] < PROOF) & (table.c_worker[:n] != NOBODY)
        placed_now = np.zeros(table.rows, bool)
        placed_now[rows] = True
        counted &= ~placed_now[table.c_row[:n]]
        return np.bincount(table.c_worker[:n][counted], minlength=width).astype(np.int64)

    def _wishes(
        self, rows: NDArray[np.int32], joined: tuple[int, ...], barred: dict[int, tuple[int, ...]]
    ) -> Wishes:
        table = self._table
        replicas = table.replicas[rows]
        should = table.should(rows, max(int(replicas.max()), self._widest()))
        index = np.full(table.rows, -1, np.int32)
        index[rows] = np.arange(len(rows), dtype=np.int32)
        n = table.copies
        held = np.flatnonzero((table.c_state[:n] == HELD) & (table.c_worker[:n] != NOBODY))
        held = held[index[table.c_row[held]] >= 0]
        return Wishes(
            positions=positions(table.hash[rows], table.salt[rows]),
            trusted_only=(table.flags[rows] & TRUSTED_ONLY) != 0,
            replicas=replicas,
            should=should,
            held_row=index[table.c_row[held]],
            held_worker=table.c_worker[held],
            pins=self._pinned(index),
            joined=joined,
            barred={int(index[row]): workers for row, workers in barred.items() if index[row] >= 0},
        )

    def _widest(self) -> int:
        """The largest number of copies wanted of a repo now: it may be about to shrink."""
        table = self._table
        n = table.copies
        ranks = table.c_rank[:n][(table.c_rank[:n] < PROOF) & (table.c_worker[:n] != NOBODY)]
        return int(ranks.max()) + 1 if len(ranks) else 1

    def _pinned(self, index: NDArray[np.int32]) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for row, names in self.pins.items():
            if index[row] >= 0:
                members = [m for name in names if (m := self._crew.named(name)) is not None]
                found[int(index[row])] = tuple(m.id for m in members)
        return found

    # Back into the tables

    def _note_room(self, rows: NDArray[np.int32], result: Placement) -> None:
        flags = self._table.flags
        before = int(np.count_nonzero(flags[rows] & NO_ROOM))
        flags[rows] &= np.uint8(0xFF ^ NO_ROOM)
        flags[rows[result.no_room]] |= np.uint8(NO_ROOM)
        self.no_room += len(result.no_room) - before

    def _apply(
        self,
        rows: NDArray[np.int32],
        before: NDArray[np.uint16],
        result: Placement,
        now_s: float,
        draft: Draft,
        why: Reason | None,
    ) -> None:
        changed = np.flatnonzero((before != result.should).any(axis=1))
        fresh = self._table.first[rows[changed]] < 0
        self._add_many(rows, changed[fresh], result, now_s, draft, why)
        for i in changed[~fresh].tolist():
            self._change_one(int(rows[i]), result.should[i], result.reason[i], now_s, draft, why)

    def _add_many(
        self,
        rows: NDArray[np.int32],
        which: NDArray[np.intp],
        result: Placement,
        now_s: float,
        draft: Draft,
        why: Reason | None,
    ) -> None:
        """Repos without any copy, in bulk."""
        if len(which) == 0:
            return
        among, at = np.nonzero(result.should[which] != NOBODY)
        i, ranks = which[among], _ranks(result.should.shape[1])[at]
        workers, reasons = result.should[i, at], result.reason[i, at].copy()
        if why is not None:
            reasons[~np.isin(reasons, _telling_more(why))] = why
        copies = self._table.add_copies(rows[i], workers, ranks, reasons, PLANNED, now_s)
        self._table.c_primary[copies] = UNTOLD
        self._plan(copies, workers, orphan=True)
        draft.planned(PlannedRows(self._table, rows[i], workers, ranks, reasons, now_s))

    def _plan(self, copies: NDArray[np.int32], workers: NDArray[np.uint16], *, orphan: bool) -> None:
        urgent = (self._table.flags[self._table.c_row[copies]] & URGENT) != 0
        for first in (True, False):
            which = np.flatnonzero(urgent == first)
            order = which[np.argsort(workers[which], kind="stable")]
            cuts = np.flatnonzero(np.diff(workers[order])) + 1
            for part in np.split(order, cuts) if len(order) else ():
                worker = WorkerId(int(workers[part[0]]))
                self._pace.plan(worker, copies[part], orphan=orphan, urgent=first)

    def _change_one(
        self,
        row: int,
        should: NDArray[np.uint16],
        reasons: NDArray[np.uint8],
        now_s: float,
        draft: Draft,
        why: Reason | None,
    ) -> None:
        table = self._table
        ranks = _ranks(len(should)).tolist()
        because = dict(zip(ranks, reasons.tolist(), strict=True))
        wanted = {w: rank for rank, w in zip(ranks, should.tolist(), strict=True) if w != NOBODY}
        for c in table.copies_of(row):
            worker = int(table.c_worker[c])
            rank = wanted.pop(worker, UNWANTED)
            if table.c_rank[c] != rank:
                if table.c_rank[c] == UNWANTED:
                    table.c_reason[c] = Reason.KEPT
                table.c_rank[c] = rank
                draft.copy_changed(row, worker)
        orphan = not self._handover.held_alive(row)
        for worker, rank in wanted.items():
            reason = Reason(because[rank])
            if why is not None and reason not in _telling_more(why):
                reason = why
            c = table.add_copy(row, worker, rank, PLANNED, reason, now_s)
            table.c_primary[c] = UNTOLD
            urgent = bool(table.flags[row] & URGENT)
            self._pace.plan(WorkerId(worker), (c,), orphan=orphan, urgent=urgent)
            draft.copy_changed(row, worker)
        draft.touched[row] = None

    def replan(self) -> None:
        """Queue every planned copy again (after a restart)."""
        table = self._table
        n = table.copies
        planned = np.flatnonzero((table.c_state[:n] == PLANNED) & (table.c_worker[:n] != NOBODY))
        if len(planned):
            alone = table.c_next[table.first[table.c_row[planned]]] < 0
            for orphan in (True, False):
                part = planned[alone == orphan].astype(np.int32)
                if len(part):
                    self._plan(part, table.c_worker[part], orphan=orphan)


def _with(column: NDArray[np.uint16], proofs: NDArray[np.uint16]) -> NDArray[np.uint16]:
    return np.column_stack((column, proofs))


def _with_proofs(result: Placement, before: NDArray[np.uint16], after: NDArray[np.uint16]) -> Placement:
    """With the proofs in one more column, the last."""
    new = np.where((after != before) & (after != NOBODY), np.uint8(Reason.PROOF), np.uint8(UNCHANGED))
    return Placement(_with(result.should, after), np.column_stack((result.reason, new)), result.no_room)


def _ranks(columns: int) -> NDArray[np.uint8]:
    """What each column stands for."""
    return np.append(np.arange(columns - 1), PROOF).astype(np.uint8)


def _telling_more(why: Reason) -> tuple[Reason, ...]:
    """Reasons that say more than why a copy had to move. That it was handed back says most, but for a pin."""
    most = (Reason.PINNED, Reason.PROOF)
    return most if why is Reason.REHASHED else (*most, Reason.OVERFULL)
