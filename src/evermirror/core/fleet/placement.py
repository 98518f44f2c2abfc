"""Who should hold each repo: sticky consistent hashing with bounded load and replicas.

What is lost, over its bound or newly owned moves; nothing else does. In this order:

1 Copies on workers that are no members, or not trusted enough, leave holes; so do ranks beyond ``replicas``.
2 Workers named by people take the first ranks.
3 Workers that joined take what only they may have room for, then claim their share (fill.py, claims.py).
4 Workers over their bound (bounds.py) give up what is furthest from them.
5 Holes are filled, each at its rank (fill.py).

All of it is done over columns, a million repos at once, and gives the same result on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.bounds import Bounds, Sites
from evermirror.core.fleet.claims import claim
from evermirror.core.fleet.copies import NOBODY, Reason
from evermirror.core.fleet.fill import Leavers, fill, fill_trusted_only
from evermirror.core.fleet.ring import Ring
from evermirror.core.fleet.seating import (
    BY_WALK,
    UNCHANGED,
    Seating,
    Wishes,
    among,
    any_rank,
    first_of,
    pairs,
)

__all__ = ["UNCHANGED", "Placement", "Sites", "Wishes", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """``reason`` is UNCHANGED where a worker was wanted for this repo before, and where there is none."""

    should: NDArray[np.uint16]  # [n, R]: worker by rank, NOBODY where none
    reason: NDArray[np.uint8]  # [n, R]
    no_room: NDArray[np.int32]  # indexes of repos that have fewer copies than replicas


def place(wishes: Wishes, ring: Ring, sites: Sites, bound: float) -> Placement:
    """``ring`` has the members, with the weights that count for new placements."""
    seating = Seating(wishes, ring, sites)
    _clear(seating)
    _cut(seating)
    _pin(seating)
    bounds = seating.bounds(bound)
    fill_trusted_only(seating, bounds)
    claim(seating, bounds)
    leavers = _shed(seating, bounds)
    fill(seating, bounds, leavers)
    _tell_home_from_next(seating)
    _forget_old_reasons(seating)
    return Placement(seating.should, seating.reason, np.flatnonzero(seating.incomplete()).astype(np.int32))


def _clear(seating: Seating) -> None:
    """Copies that cannot stay leave holes."""
    lost = ~seating.member
    lost[NOBODY] = False
    index, rank = _where(lost[seating.should])
    seating.unseat(index, rank, Reason.LOST)
    if seating.any_trusted_only:
        untrusted = seating.member & ~seating.trusted
        index, rank = _where(untrusted[seating.should] & seating.wishes.trusted_only[:, None])
        seating.unseat(index, rank, UNCHANGED)


def _where(which: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    index, rank = np.nonzero(which)
    return index.astype(np.int32), rank.astype(np.int32)


def _cut(seating: Seating) -> None:
    """Of more copies than replicas the last go; one beyond them moves up if there is a hole."""
    beyond = np.arange(seating.width) >= seating.wishes.replicas[:, None]
    which = np.flatnonzero(any_rank((seating.should != NOBODY) & beyond))
    if len(which):
        filled_first = np.argsort(seating.should[which] == NOBODY, axis=1, kind="stable")
        seating.should[which] = np.take_along_axis(seating.should[which], filled_first, axis=1)
        seating.reason[which] = np.take_along_axis(seating.reason[which], filled_first, axis=1)
        i, rank = _where((seating.should[which] != NOBODY) & beyond[which])
        seating.unseat(which[i].astype(np.int32), rank, UNCHANGED)


def _pin(seating: Seating) -> None:
    """Pinned workers take the first ranks, where they may and can; repos in the order of the ring."""
    pins, wishes = seating.wishes.pins, seating.wishes
    if not pins:
        return
    rows = np.fromiter(pins, np.int32, len(pins))
    held = np.sort(pairs(wishes.held_row, wishes.held_worker))
    pinned: list[int] = []
    for i in rows[np.argsort(wishes.positions[rows], kind="stable")].tolist():
        present = [w for w in seating.should[i].tolist() if w != NOBODY]
        named = [w for w in dict.fromkeys(pins[i]) if w in present or _can_pin(seating, i, w, held)]
        named = named[: int(wishes.replicas[i])]
        pinned += [i << 16 | w for w in named]
        _seat_pinned(seating, i, named, present)
    seating.pinned = np.sort(np.array(pinned, np.int64))


def _can_pin(seating: Seating, i: int, worker: int, held: NDArray[np.int64]) -> bool:
    pair = np.array([i << 16 | worker], np.int64)
    may = seating.may_hold(np.array([i], np.int32), np.array([worker], np.uint16))[0]
    takes = seating.takes[worker] or (seating.member[worker] and among(pair, held)[0])
    if not (may and takes) or among(pair, seating.barred)[0]:
        return False
    return int(seating.load[worker]) < int(seating.sites.capacity[worker])


def _seat_pinned(seating: Seating, i: int, named: list[int], present: list[int]) -> None:
    row = seating.should[i].tolist()
    if row[: len(named)] == named:
        return
    stay = [w for w in present if w not in named][: int(seating.wishes.replicas[i]) - len(named)]
    for worker in present:
        seating.load[worker] -= 1
    lost = int(seating.wishes.replicas[i]) - len(named) - len(stay)
    cause = seating.reason[i][seating.should[i] == NOBODY][:lost]
    after = named + stay
    for worker in after:
        seating.load[worker] += 1
    seating.should[i] = NOBODY
    seating.should[i, : len(after)] = after
    seating.reason[i] = UNCHANGED
    seating.reason[i, : len(named)] = Reason.PINNED
    seating.reason[i, len(after) : len(after) + len(cause)] = cause


def _shed(seating: Seating, bounds: Bounds) -> Leavers:
    """Workers over their bound give up copies down to the placing bound: those that anybody may hold before
    those for trusted workers, the furthest first. Pinned ones stay."""
    over = seating.load > bounds.most
    if seating.sites.in_part or not over.any():
        nothing = np.empty(0, np.int32)
        return Leavers(nothing, nothing, np.empty(0, np.uint16))
    index, rank = _where(over[seating.should])
    workers = seating.should[index, rank]
    moves = ~among(pairs(index, workers), seating.pinned)
    index, rank, workers = index[moves], rank[moves], workers[moves]
    furthest = np.lexsort(
        (seating.far(index, workers).astype(np.int64) * -1, seating.wishes.trusted_only[index])
    )
    chosen = first_of(workers, furthest, seating.load - bounds.placing)
    leavers = Leavers(index[chosen], rank[chosen], workers[chosen])
    seating.unseat(leavers.index, leavers.rank, Reason.SHED)
    seating.barred = np.sort(np.concatenate((seating.barred, pairs(leavers.index, leavers.worker))))
    return leavers


def _tell_home_from_next(seating: Seating) -> None:
    """HOME: one of the first ``replicas`` workers on its walk, as consistent hashing alone would have it."""
    walked = any_rank(seating.reason == BY_WALK)
    index = np.flatnonzero(walked).astype(np.int32)
    if not len(index):
        return
    homes = seating.homes(index)
    homes[np.arange(seating.width) >= seating.wishes.replicas[index][:, None]] = NOBODY
    for rank in range(seating.width):
        told = seating.reason[index, rank] == BY_WALK
        which, workers = index[told], seating.should[index[told], rank]
        at_home = any_rank(homes[told] == workers[:, None])
        seating.reason[which, rank] = np.where(at_home, np.uint8(Reason.HOME), np.uint8(Reason.NEXT))


def _forget_old_reasons(seating: Seating) -> None:
    """Only who is new in a repo's row has a reason."""
    before = seating.wishes.should
    index = np.flatnonzero(any_rank(seating.reason != UNCHANGED))
    after, reason = seating.should[index], seating.reason[index]
    for rank in range(seating.width):
        known = any_rank(before[index] == after[:, rank, None]) | (after[:, rank] == NOBODY)
        reason[known, rank] = UNCHANGED
    seating.reason[index] = reason
