"""Comparing two large sets of copies by a few numbers: one digest for each range of keys (anti-entropy).

Rules
- A set is pairs (hash of the key, refs digest). The top bits of the hash say which of RANGES ranges it is in.
- A range's digest is the wrapping sum of its pairs, each well mixed, plus their mixed number. A sum does not
  depend on order, and the same pair twice adds twice; the number tells a pair that mixes to 0 from none.
- Equal sets have equal digests. Different ones are taken for equal with a chance of about 2^-64 a range. This
  is against accidents, not against a worker that lies: that one could answer that nothing differs anyway.
- An empty range is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.hashing import mix

RANGES = 256  # 2 KiB a comparison; with 1,000 copies on a worker, one that differs costs 4 copies told
_SHIFT = 56  # bits of a 64-bit hash below the 8 that name the range
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class RangeDigests:
    """One unsigned 64-bit number for each range."""

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.values) != RANGES:
            raise ValueError(f"{len(self.values)} digests of ranges, expected {RANGES}")
        if not all(0 <= value < _WORD for value in self.values):
            raise ValueError("a digest of a range is an unsigned 64-bit number")


def digests_of(hashes: NDArray[np.uint64], digests: NDArray[np.uint64]) -> RangeDigests:
    """The digests of a set: ``hashes`` of the keys, and the refs digest of each."""
    if hashes.shape != digests.shape:
        raise ValueError(f"{hashes.shape} hashes, but {digests.shape} digests")
    ranges = ranges_of(hashes)
    sums = np.zeros(RANGES, dtype=np.uint64)
    np.add.at(sums, ranges, mix(hashes ^ mix(digests)))
    sums += mix(np.bincount(ranges, minlength=RANGES).astype(np.uint64))
    return RangeDigests(tuple(sums.tolist()))


def differing(ours: RangeDigests, theirs: RangeDigests) -> tuple[int, ...]:
    """The ranges in which the two sets differ, ascending."""
    pairs = zip(ours.values, theirs.values, strict=True)
    return tuple(number for number, (a, b) in enumerate(pairs) if a != b)


def range_of(hash_: int) -> int:
    """The range of a key with this hash."""
    return hash_ >> _SHIFT


def ranges_of(hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The same for many."""
    return (hashes >> np.uint64(_SHIFT)).astype(np.intp)
