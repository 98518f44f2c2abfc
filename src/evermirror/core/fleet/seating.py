"""The placement while it is worked on: who sits where, who has how many, and who may not sit here.

A repo is an index into the wishes, a *seat* is (index, rank); ``seat`` and ``unseat`` keep the loads right.
Arrays by worker id are padded so that NOBODY is a plain index: nobody is no member and takes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.bounds import Bounds, Demand, Sites, bounds_of
from evermirror.core.fleet.copies import NOBODY, Reason
from evermirror.core.fleet.ring import IDS, Ring, points_of

UNCHANGED = 255  # in place of a reason
BY_WALK = 254  # while it is worked on: HOME or NEXT, told apart at the end

Index = NDArray[np.int32]
Workers = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Wishes:
    """Repos to place, in columns."""

    positions: NDArray[np.uint64]  # on the ring
    trusted_only: NDArray[np.bool_]
    replicas: NDArray[np.uint8]
    should: NDArray[np.uint16]  # [n, R]: worker by rank as it is now, NOBODY where none; R ≥ replicas
    held_row: NDArray[np.int32]  # copies really held, also where not wanted: index …
    held_worker: NDArray[np.uint16]  # … and worker
    pins: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # index → workers named by people
    joined: tuple[int, ...] = ()  # workers that are new, or back
    barred: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # index → workers that must not get it now


def pairs(index: NDArray[np.integer], workers: NDArray[np.integer]) -> NDArray[np.int64]:
    """Repo and worker as one number."""
    return index.astype(np.int64) << 16 | workers.astype(np.int64)


def pairs_of(named: Mapping[int, tuple[int, ...]]) -> NDArray[np.int64]:
    made = [i << 16 | worker for i, workers in named.items() for worker in workers]
    return np.sort(np.array(made, np.int64))


def among(wanted: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these are in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(wanted), bool)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    there: NDArray[np.bool_] = known[found] == wanted
    return there


def any_rank(seats: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``seats.any(axis=1)``, several times as fast for few columns."""
    found = seats[:, 0].copy()
    for rank in range(1, seats.shape[1]):
        found |= seats[:, rank]
    return found


def first_of(workers: Workers, order: NDArray[np.intp], room: NDArray[np.int64]) -> NDArray[np.intp]:
    """Going through ``order``, as many of each worker as it has room for."""
    order = order[np.argsort(workers[order], kind="stable")]
    sorted_workers = workers[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_workers[1:] != sorted_workers[:-1])))
    lengths = np.diff(np.append(starts, len(order)))
    turn = np.arange(len(order)) - np.repeat(starts, lengths)
    return order[turn < room[sorted_workers]]


def admit(workers: Workers, far: NDArray[np.uint64], room: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Who of many that ask at once is let in: each worker takes the nearest, as many as it has room for."""
    tight = np.bincount(workers, minlength=IDS) > room
    asks_tight = tight[workers]
    admitted = ~asks_tight
    contested = np.flatnonzero(asks_tight)
    if len(contested):
        nearest = np.argsort(far[contested], kind="stable")
        admitted[contested[first_of(workers[contested], nearest, room)]] = True
    return admitted


def _padded(column: NDArray[np.bool_]) -> NDArray[np.bool_]:
    wide = np.zeros(IDS, bool)
    wide[: len(column)] = column
    return wide


class Seating:
    """Begins as the wishes say it is now; ends as the placement."""

    def __init__(self, wishes: Wishes, ring: Ring, sites: Sites) -> None:
        self.wishes = wishes
        self.ring = ring
        self.sites = sites
        self.n, self.width = wishes.should.shape
        if self.n and int(wishes.replicas.max()) > self.width:
            raise ValueError(f"{wishes.replicas.max()} replicas do not fit {self.width} columns")
        self.should = wishes.should.copy()
        self.reason = np.full(self.should.shape, UNCHANGED, np.uint8)  # at a hole: of whoever will fill it
        self.member, self.takes, self.trusted = (
            _padded(column) for column in (sites.member, sites.member & sites.takes, sites.trusted)
        )
        self.any_trusted_only = bool(wishes.trusted_only.any())
        self.pinned = np.empty(0, np.int64)  # pairs that are not moved
        self.barred = pairs_of(wishes.barred)  # pairs that must not be seated
        self.load = np.zeros(IDS, np.int64)
        if sites.elsewhere is not None:
            self.load[: len(sites.elsewhere)] += sites.elsewhere
        self.load += np.bincount(self.should.ravel(), minlength=IDS)
        self.load[NOBODY] = 0

    def allowed(self, trusted_only: bool) -> NDArray[np.bool_]:
        """Workers that may hold such a repo."""
        return self.member & self.trusted if trusted_only else self.member

    def may_hold(self, index: Index, workers: Workers) -> NDArray[np.bool_]:
        may = self.member[workers]
        if self.any_trusted_only:
            may &= self.trusted[workers] | ~self.wishes.trusted_only[index]
        return may

    def sits(self, index: Index, workers: Workers) -> NDArray[np.bool_]:
        """It has a copy of that repo."""
        found: NDArray[np.bool_] = np.zeros(len(index), bool)
        for rank in range(self.width):
            found |= self.should[index, rank] == workers
        return found

    def barred_from(self, index: Index, workers: Workers) -> NDArray[np.bool_]:
        """It has a copy, or must not get one."""
        found = self.sits(index, workers)
        if len(self.barred):
            found |= among(pairs(index, workers), self.barred)
        return found

    def holes(self, rank: int) -> Index:
        """Repos that want a copy of this rank and have none."""
        empty = (self.should[:, rank] == NOBODY) & (self.wishes.replicas > rank)
        return np.flatnonzero(empty).astype(np.int32)

    def incomplete(self) -> NDArray[np.bool_]:
        """By repo: has fewer copies than it wants."""
        short = np.zeros(self.n, bool)
        for rank in range(self.width):
            short |= (self.should[:, rank] == NOBODY) & (self.wishes.replicas > rank)
        return short

    def homes(self, index: Index) -> Workers:
        """Where consistent hashing alone would put each repo: [len(index), R]."""
        starts = self.ring.after(self.wishes.positions[index])
        if not self.any_trusted_only:
            return self._homes(starts, trusted_only=False)
        special = self.wishes.trusted_only[index]
        found = np.empty((len(index), self.width), np.uint16)
        for trusted_only in (False, True):
            which = special == trusted_only
            found[which] = self._homes(starts[which], trusted_only=trusted_only)
        return found

    def _homes(self, starts: NDArray[np.int32], *, trusted_only: bool) -> Workers:
        ring, allowed = self.ring, self.allowed(trusted_only)
        if len(starts) <= len(ring):
            return ring.homes(starts, self.width, allowed)
        return ring.homes(np.arange(len(ring), dtype=np.int32), self.width, allowed)[starts]

    def far(self, index: Index, workers: Workers) -> NDArray[np.uint64]:
        return self.ring.distance(self.wishes.positions[index], workers)

    def seat(
        self, index: Index, ranks: Index | int, workers: Workers, reason: Reason | NDArray[np.uint8]
    ) -> None:
        self.should[index, ranks] = workers
        self.reason[index, ranks] = reason
        self.load += np.bincount(workers, minlength=IDS)

    def unseat(self, index: Index, ranks: Index, reason: int) -> None:
        """``reason`` is of whoever comes next; UNCHANGED: it follows from the walk."""
        self.load -= np.bincount(self.should[index, ranks], minlength=IDS)
        self.should[index, ranks] = NOBODY
        self.reason[index, ranks] = reason

    def bounds(self, bound: float) -> Bounds:
        """For the loads as they are now, by worker id, padded."""
        replicas, special = self.wishes.replicas.astype(np.int64), self.wishes.trusted_only
        copies = np.minimum(replicas, int(self.member.sum()))
        trusted_copies = np.minimum(replicas[special], int((self.member & self.trusted).sum()))
        total = int(copies[~special].sum() + trusted_copies.sum())
        demand = Demand(self.n, total, int(special.sum()), int(trusted_copies.sum()))
        load = self.load[: len(self.sites.member)]
        made = bounds_of(replace(self.sites, weight=self._weights(total)), load, demand, bound)
        more = IDS - len(made.level)
        return Bounds(
            np.pad(made.level, (0, more)), np.pad(made.placing, (0, more)), np.pad(made.most, (0, more))
        )

    def _weights(self, copies: int) -> NDArray[np.float64]:
        """Nominal; of one that flaps, whose weight on the ring is reduced: what it has, no less than that.
        So it keeps its copies, is given few new ones, and the others have the rest."""
        weight = np.where(self.sites.member, self.sites.weight, 0.0)
        load = self.load[: len(weight)]
        points = self.ring.counts[: len(weight)]
        steady = np.minimum(points / np.maximum(points_of(weight, self.ring.points), 1), 1.0)
        elsewhere = 0 if self.sites.elsewhere is None else int(self.sites.elsewhere.sum())
        per_weight = max(copies + elsewhere, 1) / max(float(weight.sum()), 1e-9)
        return np.clip(load / per_weight, weight * steady, weight)
