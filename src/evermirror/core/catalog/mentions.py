"""Which files mention a repo: a 64-bit hash of its key and the file's number, in sorted arrays.

12 bytes a mention: a million are 12 MB. New mentions make a small array of their own; arrays of like size are
merged, so that adding costs little and a search looks into few. What is found is a hint: whoever needs to be
exact reads the files that are named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Owners = NDArray[np.uint32]

_NONE: Hashes = np.empty(0, dtype=np.uint64)
_NOBODY: Owners = np.empty(0, dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Mention:
    """``index`` is the place of what was asked for; ``unsure``: its line was not understood."""

    index: int
    file: int
    unsure: bool


def hashes_of(keys: Iterable[str]) -> Hashes:
    """One hash a key, in order; the same in every process."""
    digest = hashlib.blake2b
    joined = b"".join(digest(k.encode("utf-8", "surrogatepass"), digest_size=8).digest() for k in keys)
    return np.frombuffer(joined, dtype=np.uint64)


class Mentions:
    """Files are numbers below 2³¹; one owner is a file's number twice, plus 1 where the mention is unsure."""

    def __init__(self) -> None:
        self._levels: list[tuple[Hashes, Owners]] = []  # each sorted by hash; larger ones first

    @classmethod
    def of(cls, hashes: Hashes, owners: Owners) -> Mentions:
        """Again what ``columns`` gave."""
        made = cls()
        if len(hashes):
            made._levels = [(hashes, owners)]
        return made

    def columns(self) -> tuple[Hashes, Owners]:
        """All mentions by their hashes, ascending, and the owner of each."""
        self._merge_last(len(self._levels))
        return self._levels[0] if self._levels else (_NONE, _NOBODY)

    def __len__(self) -> int:
        return sum(len(hashes) for hashes, _ in self._levels)

    def add(self, file: int, sure: Hashes, unsure: Hashes = _NONE) -> None:
        """This file mentions these keys."""
        hashes = np.concatenate([sure, unsure])
        if not len(hashes):
            return
        owners = np.full(len(hashes), 2 * file, dtype=np.uint32)
        owners[len(sure) :] += 1
        self._levels.append(_sorted(hashes, owners))
        while len(self._levels) > 1 and len(self._levels[-2][0]) < 2 * len(self._levels[-1][0]):
            self._merge_last(2)

    def remove(self, files: Sequence[int]) -> None:
        """These files mention nothing any more."""
        if not files:
            return
        gone = np.array(files, dtype=np.uint32)
        kept = []
        for hashes, owners in self._levels:
            stays = ~np.isin(owners >> 1, gone)
            if stays.any():
                kept.append((hashes, owners) if stays.all() else (hashes[stays], owners[stays]))
        self._levels = kept

    def find(self, asked: Hashes) -> list[Mention]:
        """All mentions of these keys."""
        found: list[Mention] = []
        for hashes, owners in self._levels:
            first = np.searchsorted(hashes, asked, "left")
            last = np.searchsorted(hashes, asked, "right")
            for index in np.flatnonzero(last > first).tolist():
                here = owners[first[index] : last[index]].tolist()
                found += [Mention(index, owner >> 1, bool(owner & 1)) for owner in here]
        return found

    def mentioned(self, asked: Hashes) -> NDArray[np.bool_]:
        """For each key whether any file mentions it."""
        found = np.zeros(len(asked), dtype=np.bool_)
        for hashes, _ in self._levels:
            at = np.minimum(np.searchsorted(hashes, asked), len(hashes) - 1)
            found |= hashes[at] == asked
        return found

    def distinct(self) -> int:
        """How many repos are mentioned."""
        hashes, _ = self.columns()
        if not len(hashes):
            return 0
        return 1 + int(np.count_nonzero(hashes[1:] != hashes[:-1]))

    def _merge_last(self, count: int) -> None:
        if count > 1:
            parts = self._levels[-count:]
            merged = _sorted(np.concatenate([h for h, _ in parts]), np.concatenate([o for _, o in parts]))
            self._levels[-count:] = [merged]


def _sorted(hashes: Hashes, owners: Owners) -> tuple[Hashes, Owners]:
    order = np.argsort(hashes, kind="stable")  # runs that are sorted already are merged
    return hashes[order], owners[order]
