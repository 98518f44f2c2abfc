"""What a worker that joined takes over from others.

Rules
- It claims what it owns now: repos for which it is among the first ``replicas`` workers clockwise. One that
  is back claims what it really holds before anything else: that costs no clone.
- At most up to its fair share, which is smaller while it flaps.
- It takes from the busiest first, and of a repo's copies the one that is last on the walk; pinned ones stay.
- Its rank is its turn on the walk: so newcomers become primary of as many as the others are, and of no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.bounds import Bounds
from evermirror.core.fleet.copies import NOBODY, Reason
from evermirror.core.fleet.ring import IDS, Ring
from evermirror.core.fleet.seating import Index, Seating, Workers, among, any_rank, first_of, pairs

_CELLS_BITS = 20  # the ring in a million cells: a quick first look at which repos may be concerned


@dataclass(frozen=True, slots=True)
class _Claims:
    """Who claims which repo; ``order`` 0: holds and owns it, 1: holds it, 2: owns it."""

    index: Index
    worker: Workers
    order: NDArray[np.int8]
    far: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.index)

    def only(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> _Claims:
        return _Claims(self.index[which], self.worker[which], self.order[which], self.far[which])


def claim(seating: Seating, bounds: Bounds) -> None:
    """Give the workers that joined their share."""
    joiner = np.zeros(IDS, bool)
    joiner[list(seating.wishes.joined)] = True
    joiner &= seating.takes
    fair = np.minimum(np.floor(bounds.level), bounds.placing).astype(np.int64)
    quota = np.where(joiner, fair - seating.load, 0)
    joiner &= quota > 0
    if not joiner.any():
        return
    claims = _claims(seating, joiner)
    claims = claims.only(np.argsort(_key(claims.index, 32, claims), kind="stable"))
    while len(claims):
        # One claim a repo at a time, its best; each that succeeds changes what the others find.
        best = np.concatenate(([True], claims.index[1:] != claims.index[:-1]))
        _settle(seating, claims.only(best), joiner, quota, bounds)
        claims = claims.only(~best)


def _key(group: NDArray[np.integer], bits: int, claims: _Claims) -> NDArray[np.uint64]:
    """Sorts by group, then order, then the nearest first: one number, sorted much faster than three."""
    rest = np.uint64(64 - bits)
    far = claims.far >> np.uint64(48 - (62 - bits))
    order = claims.order.astype(np.uint64) << (rest - np.uint64(2))
    key: NDArray[np.uint64] = group.astype(np.uint64) << rest | order | far
    return key


def _claims(seating: Seating, joiner: NDArray[np.bool_]) -> _Claims:
    owned = _owned(seating, joiner)
    wishes = seating.wishes
    holds = joiner[wishes.held_worker]
    held = np.sort(pairs(wishes.held_row[holds], wishes.held_worker[holds]))
    both = np.sort(np.concatenate((owned, held[~among(held, owned)])))
    order = np.where(among(both, held), np.where(among(both, owned), 0, 1), 2).astype(np.int8)
    index, worker = (both >> 16).astype(np.int32), (both & 0xFFFF).astype(np.uint16)
    # A repo with a hole needs nobody to step back: the walk will come to the newcomer by itself.
    may = seating.may_hold(index, worker) & ~seating.barred_from(index, worker) & ~seating.incomplete()[index]
    index, worker = index[may], worker[may]
    return _Claims(index, worker, order[may], seating.far(index, worker))


def _owned(seating: Seating, joiner: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Pairs of repo and newcomer where it is among the first workers on the walk; sorted."""
    ring, wishes = seating.ring, seating.wishes
    found = []
    for trusted_only in (False, True) if seating.any_trusted_only else (False,):
        everywhere = np.arange(len(ring), dtype=np.int32)
        homes = ring.homes(everywhere, seating.width, seating.allowed(trusted_only))
        concerned = any_rank(joiner[homes])
        index = _lying_in(ring, wishes.positions, concerned)
        if seating.any_trusted_only:
            index = index[wishes.trusted_only[index] == trusted_only]
        at_home = homes[ring.after(wishes.positions[index])]
        ranks = np.arange(seating.width)
        i, rank = np.nonzero(joiner[at_home] & (ranks < wishes.replicas[index][:, None]))
        found.append(pairs(index[i], at_home[i, rank]))
    return np.sort(np.concatenate(found))


def _lying_in(ring: Ring, positions: NDArray[np.uint64], concerned: NDArray[np.bool_]) -> Index:
    """Repos whose next point is one of these, and a few more that lie near."""
    shift = np.uint64(64 - _CELLS_BITS)
    ends = ring.at[concerned]
    starts = np.roll(ring.at, 1)[concerned]
    first, last = (starts >> shift).astype(np.int64), (ends >> shift).astype(np.int64)
    cells = np.zeros((1 << _CELLS_BITS) + 1, np.int32)
    np.add.at(cells, first, 1)
    np.add.at(cells, last + 1, -1)
    covered = np.cumsum(cells[:-1]) + int(np.count_nonzero(first > last)) > 0  # one arc goes over the end
    return np.flatnonzero(covered[positions >> shift]).astype(np.int32)


def _settle(
    seating: Seating,
    claims: _Claims,
    joiner: NDArray[np.bool_],
    quota: NDArray[np.int64],
    bounds: Bounds,
) -> None:
    """Grant what the quotas allow, at most one claim for each repo."""
    far = _distances(seating, claims.index, joiner)
    rank = np.argmax(far, axis=1).astype(np.int32)
    farthest = far[np.arange(len(claims)), rank]
    useful = (farthest > claims.far.astype(np.int64)) | ((claims.order < 2) & (farthest >= 0))
    claims, far, rank = claims.only(useful), far[useful], rank[useful]
    victim = seating.should[claims.index, rank]
    granted = _choose(claims, victim, quota, seating.load / np.maximum(bounds.level, 1e-9), bounds)
    claims, far, rank = claims.only(granted), far[granted], rank[granted]
    seating.unseat(claims.index, rank, Reason.JOINED)
    turn = _turns(seating, claims, far, rank, bounds)
    for column in (seating.should, seating.reason):
        column[claims.index, rank] = column[claims.index, turn]
    reasons = np.where(claims.order < 2, Reason.KEPT, Reason.JOINED).astype(np.uint8)
    seating.seat(claims.index, turn, claims.worker, reasons)
    quota -= np.bincount(claims.worker, minlength=IDS)


def _turns(
    seating: Seating, claims: _Claims, far: NDArray[np.int64], rank: NDArray[np.int32], bounds: Bounds
) -> NDArray[np.int32]:
    """The rank for each newcomer; who had it gets the rank that became free."""
    if seating.width == 1:
        return rank
    nearer = (far >= 0) & (far < claims.far.astype(np.int64)[:, None])
    before = np.count_nonzero(nearer | (far == _STAYS), axis=1)  # those that stay have the first ranks
    turn: NDArray[np.int32] = np.minimum(before, rank).astype(np.int32)
    share = seating.n / max(int(seating.wishes.replicas.sum(dtype=np.int64)), 1)
    primaries = np.bincount(seating.should[:, 0], minlength=IDS)
    first = np.flatnonzero(turn == 0)
    nearest = np.argsort(claims.far[first], kind="stable")
    room = np.ceil(bounds.level * share).astype(np.int64) - primaries
    may = first_of(claims.worker[first], nearest, room)
    too_many = np.setdiff1d(first, first[may], assume_unique=True)
    turn[too_many] = rank[too_many]
    return turn


_STAYS = -1
_EMPTY = -2


def _distances(seating: Seating, index: Index, joiner: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How far each copy is from its repo; _STAYS: it may not be taken away; _EMPTY: there is none."""
    far = np.full((len(index), seating.width), _EMPTY, np.int64)
    for rank in range(seating.width):
        workers = seating.should[index, rank]
        far[:, rank] = seating.far(index, workers)
        stays = joiner[workers] | among(pairs(index, workers), seating.pinned)
        far[stays, rank] = _STAYS
        far[workers == NOBODY, rank] = _EMPTY
    return far


def _choose(
    claims: _Claims,
    victim: Workers,
    quota: NDArray[np.int64],
    pressure: NDArray[np.float64],
    bounds: Bounds,
) -> NDArray[np.intp]:
    """Held ones first, then from the busiest: each copy taken from a worker makes it less busy."""
    by_victim = np.argsort(_key(victim, 16, claims), kind="stable")
    sorted_victims = victim[by_victim]
    taken_before = np.arange(len(claims)) - np.searchsorted(sorted_victims, sorted_victims)
    left = np.empty(len(claims))
    left[by_victim] = pressure[sorted_victims] - taken_before / np.maximum(bounds.level[sorted_victims], 1e-9)
    return first_of(claims.worker, np.lexsort((claims.far, -left, claims.order)), quota)
