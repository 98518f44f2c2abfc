"""The ring of consistent hashing: every worker has points on it, a repo belongs to the next one clockwise.

A worker's points depend on its id and their number alone, and its weight decides how many of them there are:
so they are the same for ever, and a change of one worker touches no other's. Nothing here may change once
repos were placed by it.

      at      0 ────●────────●──────●───────────●────▶ 2**64, and round again
      owner         3        7      3           5
      index         0        1      2           3       beyond the last point it goes on with index 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import NOBODY
from evermirror.core.fleet.hashing import mix

IDS = 1 << 16  # arrays by worker id have this length where NOBODY is an index too

_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)  # odd, so that numbers of points stay distinct: splitmix64's own
_COARSE = np.uint64(16)  # low bits that distances leave out, so that worker and place fit one number
_PLACE = np.uint64((1 << 48) - 1)

FARTHEST = 1 << 48  # a distance beyond all others: not on the ring at all


def points_of(weights: NDArray[np.float64], points: int) -> NDArray[np.int64]:
    """How many points each weight gets: at least one for any weight at all."""
    counts = np.maximum(np.rint(weights * points), 1.0).astype(np.int64)
    counts[weights <= 0] = 0
    return counts


class Ring:
    """``at`` is sorted; ``owner[i]`` is whose point ``at[i]`` is; ``counts`` is points by worker id."""

    def __init__(self, at: NDArray[np.uint64], owner: NDArray[np.uint16], points: int) -> None:
        self.at = at
        self.owner = owner
        self.points = points  # for weight 1
        self.counts: NDArray[np.int64] = np.bincount(owner, minlength=IDS)

    @classmethod
    def build(cls, ids: Sequence[int], weights: Sequence[float], points: int) -> Ring:
        counts = points_of(np.asarray(weights, np.float64), points)
        owner = np.repeat(np.asarray(ids, np.uint64), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        number = np.arange(len(owner), dtype=np.int64) - first
        at = mix(((owner << np.uint64(32)) + number.astype(np.uint64) + np.uint64(1)) * _STEP)
        order = np.argsort(at)  # points are distinct: both steps above are bijections
        return cls(at[order], owner[order].astype(np.uint16), points)

    def __len__(self) -> int:
        return len(self.at)

    def after(self, positions: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The index of the first point at or after each position."""
        if len(positions) < len(self.at):
            index = np.searchsorted(self.at, positions).astype(np.int32)
        else:
            index = self._looked_up(positions)
        index[index == len(self.at)] = 0
        return index

    def _looked_up(self, positions: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The same as a search, ten times as fast for a million: the ring in about as many cells as it has
        points, and from a cell's first point a few steps on."""
        bits = max(len(self.at).bit_length(), 1)
        shift = np.uint64(64 - bits)
        starts = np.arange(1 << bits, dtype=np.uint64) << shift
        index: NDArray[np.int32] = np.searchsorted(self.at, starts).astype(np.int32)[positions >> shift]
        ended = np.append(self.at, np.uint64(2**64 - 1))  # no position is beyond this
        behind = np.flatnonzero(ended[index] < positions)
        while len(behind):
            index[behind] += 1
            behind = behind[ended[index[behind]] < positions[behind]]
        return index

    def walk(self, position: int) -> Iterator[int]:
        """Distinct owners, clockwise."""
        if not len(self):
            return
        start = int(self.after(np.array([position], np.uint64))[0])
        seen: set[int] = set()
        for owner in np.concatenate((self.owner[start:], self.owner[:start])).tolist():
            if owner not in seen:
                seen.add(owner)
                yield owner

    def next_of(self, allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
        """For each index the first at or after it whose owner is allowed; beyond the end it goes on with
        ``len(ring)`` + index. Somebody must be allowed."""
        here = np.arange(len(self.at), dtype=np.int32)
        return self._following(here, allowed[self.owner])

    @cached_property
    def other(self) -> NDArray[np.int32]:
        """For each index the first after it that has another owner; goes on beyond the end as ``next_of``."""
        behind = np.arange(1, len(self.at) + 1, dtype=np.int32)
        return self._following(behind, self.owner != np.roll(self.owner, -1))  # the last of a run

    def _following(self, target: NDArray[np.int32], which: NDArray[np.bool_]) -> NDArray[np.int32]:
        """For each index the target of the first at or after it that is one of these."""
        n = np.int32(len(self.at))
        targets = np.where(which, target, 2 * n)
        found: NDArray[np.int32] = np.minimum(np.minimum.accumulate(targets[::-1])[::-1], n + targets.min())
        return found

    def homes(self, index: NDArray[np.int32], width: int, allowed: NDArray[np.bool_]) -> NDArray[np.uint16]:
        """The first ``width`` distinct allowed owners from each index on; NOBODY where there are no more."""
        n = len(self.at)
        found = np.full((len(index), width), NOBODY, np.uint16)
        distinct = int(np.count_nonzero(allowed[: len(self.counts)] & (self.counts > 0)))
        if not distinct:
            return found
        follow = self.next_of(allowed)
        at = index
        for k in range(min(width, distinct)):
            at = follow[at] % n  # of the last found at first: its owner is seen again, and passed over
            again = np.arange(len(at), dtype=np.int32)
            while k:
                again = again[(found[again, :k] == self.owner[at[again], None]).any(axis=1)]
                if not len(again):
                    break
                at[again] = follow[self.other[at[again]] % n] % n
            found[:, k] = self.owner[at]
        return found

    @cached_property
    def _by_owner(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Points as owner and place in one number, sorted; and where each owner's begin."""
        keys = np.sort((self.owner.astype(np.uint64) << np.uint64(48)) | (self.at >> _COARSE))
        return keys, np.cumsum(self.counts) - self.counts

    def distance(self, positions: NDArray[np.uint64], owners: NDArray[np.uint16]) -> NDArray[np.uint64]:
        """Clockwise from each position to the next point of that owner, in steps of 2**16."""
        keys, begin = self._by_owner
        if not len(keys):
            return np.full(len(owners), FARTHEST, np.uint64)
        place = positions >> _COARSE
        found = np.searchsorted(keys, (owners.astype(np.uint64) << np.uint64(48)) | place)
        beyond = found >= begin[owners] + self.counts[owners]
        found[beyond] = begin[owners[beyond]]
        far = ((keys[np.minimum(found, len(keys) - 1)] & _PLACE) - place) & _PLACE
        far[self.counts[owners] == 0] = FARTHEST
        return far
