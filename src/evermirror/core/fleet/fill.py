"""Holes are filled: by who holds the repo already, else by the walk round the ring.

Each hole asks the next worker clockwise that is open: has room, may hold the repo, has no other copy of it.
Where more ask a worker than it has room for, it takes the nearest, and the others go on. All holes of one
rank walk together, round by round; in each round either everybody finds a place or a worker becomes full. So
who is taken does not depend on the order of the repos.

Repos with less to choose from go first, at all their ranks, or others would have filled the few workers that
are left for them: those for trusted workers before the rest, and of each kind those that want the most copies
(every copy needs another worker, and the heavy ones soon have one).

    1 within the placing bound, also for this rank   so that primaries are spread as evenly as copies
    2 within the placing bound
    3 (one that had to leave an overloaded worker stays there after all: nobody else has room)
    4 within the load bound
    5 within the hard capacity                       OVERFULL
    6 (one that had to leave a worker over its capacity stays there if it is really there)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.bounds import Bounds
from evermirror.core.fleet.copies import NOBODY, Reason
from evermirror.core.fleet.ring import IDS
from evermirror.core.fleet.seating import BY_WALK, UNCHANGED, Index, Seating, Workers, admit, among, pairs

_NO_LIMIT = 1 << 62  # copies


@dataclass(frozen=True, slots=True)
class Leavers:
    """Copies that had to leave a worker over its bound: repo, rank, worker."""

    index: Index
    rank: Index
    worker: Workers

    def of(self, index: Index) -> tuple[Index, Workers]:
        """Those of these repos."""
        which = among(self.index.astype(np.int64), np.sort(index).astype(np.int64))
        return self.index[which], self.worker[which]

    def held(self, seating: Seating) -> Leavers:
        """Those that are really there."""
        held = np.sort(pairs(seating.wishes.held_row, seating.wishes.held_worker))
        which = among(pairs(self.index, self.worker), held)
        return Leavers(self.index[which], self.rank[which], self.worker[which])


def fill_trusted_only(seating: Seating, bounds: Bounds) -> None:
    """Fill what needs trusted workers, within the placing bound, before newcomers claim their share: one of
    them may be the only one who can take it, and would have no room left."""
    if not (seating.any_trusted_only and seating.wishes.joined):
        return
    _keep(seating, bounds, seating.wishes.trusted_only)
    for walk in _walks(seating, (True,)):
        index = walk.holes()
        if not len(index):
            continue
        for limit in _rank_limits(seating, bounds, walk.rank):
            index = _walk(walk, index, limit, None)


def fill(seating: Seating, bounds: Bounds, leavers: Leavers) -> None:
    """Fill every hole for which there is somebody."""
    _keep(seating, bounds, np.ones(seating.n, bool))
    capacity = np.zeros(IDS, np.int64)
    capacity[: len(seating.sites.capacity)] = seating.sites.capacity
    for walk in _walks(seating, (True, False) if seating.any_trusted_only else (False,)):
        rank, index = walk.rank, walk.holes()
        if not len(index):
            continue
        for limit in _rank_limits(seating, bounds, rank):
            index = _walk(walk, index, limit, None)
        index = _stay(seating, index, rank, leavers, capacity)
        index = _walk(walk, index, bounds.most - seating.load, None)
        index = _walk(walk, index, capacity - seating.load, Reason.OVERFULL)
        if len(index):
            _stay(seating, index, rank, leavers.held(seating), np.full(IDS, _NO_LIMIT))


@dataclass(frozen=True, slots=True)
class _Walk:
    """Holes of one rank that walk together: of repos that want equally many copies, of equal trust."""

    seating: Seating
    alike: NDArray[np.bool_]
    rank: int
    trusted_only: bool

    def holes(self) -> Index:
        index = self.seating.holes(self.rank)
        found: Index = index[self.alike[index]]
        return found


def _walks(seating: Seating, trust: tuple[bool, ...]) -> Iterator[_Walk]:
    """Those with less to choose from first."""
    wishes = seating.wishes
    for trusted_only in trust:
        for copies in range(seating.width, 0, -1):
            alike = (wishes.replicas == copies) & (wishes.trusted_only == trusted_only)
            if alike.any():
                yield from (_Walk(seating, alike, rank, trusted_only) for rank in range(copies))


def _rank_limits(seating: Seating, bounds: Bounds, rank: int) -> Iterator[NDArray[np.int64]]:
    """Room within the placing bound: first for copies of no higher rank than this, then for all."""
    replicas = seating.wishes.replicas
    if rank < seating.width - 1 and not seating.sites.in_part:
        share = np.minimum(replicas, rank + 1).sum(dtype=np.int64) / replicas.sum(dtype=np.int64)
        so_far = np.bincount(seating.should[:, : rank + 1].ravel(), minlength=IDS)
        yield np.minimum(bounds.placing_part(share) - so_far, bounds.placing - seating.load)
    yield bounds.placing - seating.load


def _keep(seating: Seating, bounds: Bounds, which_repos: NDArray[np.bool_]) -> None:
    """Workers that hold such a repo already are given it, within the bound; nearest first."""
    wishes = seating.wishes
    short = seating.incomplete() & which_repos
    which = np.flatnonzero(short[wishes.held_row] & seating.takes[wishes.held_worker])
    index, workers = wishes.held_row[which], wishes.held_worker[which]
    far = seating.far(index, workers)
    while len(index):
        fit = (
            seating.incomplete()[index]
            & seating.may_hold(index, workers)
            & ~seating.barred_from(index, workers)
        )
        nearest_first = np.lexsort((far[fit], index[fit]))
        index, workers, far = index[fit][nearest_first], workers[fit][nearest_first], far[fit][nearest_first]
        first = np.concatenate(([True], index[1:] != index[:-1])) if len(index) else np.zeros(0, bool)
        asking = np.flatnonzero(first)
        taken = asking[admit(workers[asking], far[asking], bounds.most - seating.load)]
        hole = (seating.should[index[taken]] == NOBODY).argmax(axis=1).astype(np.int32)
        seating.seat(index[taken], hole, workers[taken], Reason.KEPT)
        index, workers, far = index[~first], workers[~first], far[~first]


def _walk(walk: _Walk, index: Index, room: NDArray[np.int64], reason: Reason | None) -> Index:
    """Seat these repos with the next open workers; returns those for which there is none."""
    seating = walk.seating
    if not len(index) or not len(seating.ring):
        return index
    ring, positions = seating.ring, seating.wishes.positions
    could_take = seating.takes & seating.allowed(walk.trusted_only)
    start = ring.after(positions[index])
    at = start.copy()  # goes on beyond len(ring) in the second turn; a whole turn in vain is the end
    left_over = [index[:0]]
    while len(index):
        is_open = could_take & (room > 0)
        if not is_open.any():
            left_over.append(index)
            break
        _go_on(seating, index, start, at, ring.next_of(is_open))
        in_vain = at >= start + len(ring)
        if in_vain.any():
            left_over.append(index[in_vain])
            index, start, at = index[~in_vain], start[~in_vain], at[~in_vain]
        point = _once_round(at, len(ring))
        workers = ring.owner[point]
        admitted = admit(workers, ring.at[point] - positions[index], room)
        _take(seating, index[admitted], walk.rank, workers[admitted], reason)
        room -= np.bincount(workers[admitted], minlength=IDS)
        index, start, at = index[~admitted], start[~admitted], at[~admitted]
    return np.concatenate(left_over)


def _once_round(at: NDArray[np.int32], n: int) -> NDArray[np.int32]:
    return np.where(at >= n, at % n, at)


def _go_on(
    seating: Seating, index: Index, start: Index, at: NDArray[np.int32], follow: NDArray[np.int32]
) -> None:
    """Move each to the next open point at or after ``at``; further, if that worker may not take this repo."""
    n = len(seating.ring)

    def opened(at: NDArray[np.int32]) -> NDArray[np.int32]:
        point = _once_round(at, n)
        return follow[point] + (at - point)

    at[:] = opened(at)
    if seating.width == 1 and not len(seating.barred):
        return
    owner, other = seating.ring.owner, seating.ring.other
    again = np.arange(len(at), dtype=np.int32)
    while len(again):
        again = again[at[again] < start[again] + n]
        point = _once_round(at[again], n)
        barred = seating.barred_from(index[again], owner[point])
        again, point = again[barred], point[barred]
        at[again] = opened(other[point] + (at[again] - point))


def _take(seating: Seating, index: Index, rank: int, workers: Workers, reason: Reason | None) -> None:
    if reason is not None:
        seating.seat(index, rank, workers, reason)
        return
    cause = seating.reason[index, rank]
    seating.seat(index, rank, workers, np.where(cause == UNCHANGED, np.uint8(BY_WALK), cause))


def _stay(seating: Seating, index: Index, rank: int, leavers: Leavers, room: NDArray[np.int64]) -> Index:
    """Who left a repo for which there is nobody else comes back, the nearest first; returns the others."""
    back, workers = leavers.of(index)
    far = seating.far(back, workers)
    order = np.lexsort((far, back))
    back, workers, far = back[order], workers[order], far[order]
    while len(back):
        first = np.concatenate(([True], back[1:] != back[:-1]))
        asking = np.flatnonzero(first & ~seating.sits(back, workers))
        stays = asking[admit(workers[asking], far[asking], room - seating.load)]
        seating.seat(back[stays], rank, workers[stays], np.full(len(stays), UNCHANGED, np.uint8))
        more = ~first & (seating.should[back, rank] == NOBODY)
        back, workers, far = back[more], workers[more], far[more]
    still: NDArray[np.bool_] = seating.should[index, rank] == NOBODY
    return index[still]
