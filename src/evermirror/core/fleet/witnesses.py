"""What each aggregator holds, compactly; so that a repo is witnessed for as long as any of them has it.

The fleet's tables have one witness for each repo (listing.py): what was told last counts there. When one
aggregator no longer has a repo, or is gone, what another one holds takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from evermirror.core.fleet.columns import CAPACITY_MIN, wider
from evermirror.core.fleet.events import HeldCopy, WitnessHeld, WitnessLost
from evermirror.core.fleet.keyindex import KeyIndex
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

KEYS_MAX = 4_000_000  # of one aggregator; what it tells beyond is not taken in
PART = 5000  # repos in one event: others must have their turn in between

Told = WitnessHeld | WitnessLost


class Witnesses:
    """Each method gives the events that follow, for the fleet's machine."""

    def __init__(self) -> None:
        self._of: dict[NodeId, _Holdings] = {}

    def count(self, node: NodeId) -> int:
        """How many repos it holds, as far as it told."""
        return len(self._of[node]) if node in self._of else 0

    def digest(self, node: NodeId, key: RepoKey) -> int:
        """The beginning of the digest of what it holds of a repo, as it told last; 0: nothing."""
        return self._of[node].digest_of(key) if node in self._of else 0

    def has(self, node: NodeId, copies: Sequence[HeldCopy]) -> Iterator[Told]:
        """Copies of an unknown digest witness nothing."""
        holdings = self._of.setdefault(node, _Holdings())
        for part in _parts(copies):
            known = holdings.put([copy for copy in part if copy.digest])
            if known:
                yield WitnessHeld(tuple(known))

    def lacks(self, node: NodeId, keys: Sequence[RepoKey]) -> Iterator[Told]:
        holdings = self._of.get(node)
        if holdings is not None:
            for part in _parts(keys):
                holdings.drop(part)
                yield from self._left_by(part)

    def forget(self, node: NodeId) -> Iterator[Told]:
        """It is gone, or begins anew."""
        holdings = self._of.pop(node, None)
        if holdings is None:
            return
        if not any(self._of.values()):
            yield WitnessLost()
            return
        for part in holdings.parts():
            yield from self._left_by(part)

    def _left_by(self, keys: Sequence[RepoKey]) -> Iterator[Told]:
        """Others' copies take the place of those that are no longer there."""
        held = {key: digest for key in keys if (digest := self._digest_of(key))}
        lost = tuple(key for key in keys if key not in held)
        if lost:
            yield WitnessLost(lost)
        if held:
            yield WitnessHeld(tuple(HeldCopy(key, digest, 0.0) for key, digest in held.items()))

    def _digest_of(self, key: RepoKey) -> int:
        return next((digest for of in self._of.values() if (digest := of.digest_of(key))), 0)


class _Holdings:
    """One aggregator's: about 30 bytes for each repo, besides its key. A digest of 0 is a free row."""

    def __init__(self) -> None:
        self._index = KeyIndex()
        self._digests = np.zeros(CAPACITY_MIN, np.uint64)
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def put(self, copies: Sequence[HeldCopy]) -> Sequence[HeldCopy]:
        """Those that were taken in."""
        copies = copies[: KEYS_MAX - self._held]
        rows, fresh = self._index.put([copy.key for copy in copies])
        if self._index.rows > len(self._digests):
            self._digests = wider(self._digests, self._index.rows)
        self._held += len(fresh)
        self._digests[rows] = np.array([copy.digest for copy in copies], np.uint64)
        return copies

    def drop(self, keys: Iterable[RepoKey]) -> None:
        for key in keys:
            row = self._index.row_of(key)
            if row >= 0:
                self._index.forget(row)
                self._digests[row] = 0
                self._held -= 1

    def digest_of(self, key: RepoKey) -> int:
        row = self._index.row_of(key)
        return int(self._digests[row]) if row >= 0 else 0

    def parts(self) -> Iterator[list[RepoKey]]:
        rows = np.flatnonzero(self._digests[: self._index.rows]).astype(np.int32)
        for begin in range(0, len(rows), PART):
            yield self._index.keys_of(rows[begin : begin + PART])


T = TypeVar("T")


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), PART):
        yield items[begin : begin + PART]
