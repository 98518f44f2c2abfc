"""What the store remembers of repos and copies, put into the tables before there is a machine to own them.

It comes in columns, some thousands at a time: a million repos are there within seconds, none of them was ever
an object, and nobody held two of the tables' sizes in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.columns import put_few
from evermirror.core.fleet.copies import NOBODY, UNWANTED, CopyState
from evermirror.core.fleet.decisions import CopyRow
from evermirror.core.fleet.letters import Letters
from evermirror.core.fleet.table import PINNED, FleetTable
from evermirror.model.worker import WorkerId

CHUNK = 10_000  # rows put into the tables at once


class Tables:
    """Filled here, then given to a machine, whose own they are from then on.

    ``pins`` are by row; how many copies a repo should have is the machine's setting."""

    __slots__ = ("_is_known", "pins", "table")

    def __init__(
        self,
        workers: Iterable[WorkerId] = (),
        *,
        rows: int = 0,
        copies: int = 0,
        letters: Letters | None = None,
    ) -> None:
        """Copies on other ``workers`` do not count. Room for so many rows and copies is made at once;
        ``letters``: where those of the keys are kept."""
        self.table = FleetTable(letters)
        self.table.reserve(rows, copies)
        self.pins: dict[int, tuple[str, ...]] = {}
        self._is_known = np.zeros(NOBODY + 1, np.bool_)
        self.know(workers)

    def know(self, workers: Iterable[WorkerId]) -> None:
        """Copies on these count too."""
        self._is_known[list(workers)] = True

    def put_repos(
        self,
        keys: Sequence[str],
        trusted_only: NDArray[np.bool_],
        salts: NDArray[np.uint8],
        pins: Mapping[int, tuple[str, ...]],
    ) -> NDArray[np.int32]:
        """Their rows; ``pins`` are by place, of the few that have some."""
        rows = self.table.put_repos(keys, trusted_only, np.ones(len(keys), np.uint8))
        put_few(self.table.salt, rows, salts)
        for place, names in pins.items():
            row = int(rows[place])
            self.pins[row] = names
            self.table.one.flags[row] |= PINNED
        return rows

    def remove(self, rows: NDArray[np.int32]) -> None:
        """These left the catalog."""
        for row in rows.tolist():
            self.table.remove(row)
            if self.pins.pop(row, None) is not None:
                self.table.one.flags[row] &= 0xFF ^ PINNED

    def put_copies(
        self,
        rows: NDArray[np.int32],
        workers: NDArray[np.uint16],
        ranks: NDArray[np.uint8],
        states: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        since_s: NDArray[np.uint32],
    ) -> None:
        """Negative rows are of repos that nobody knows; a rank of UNWANTED: held, but not wanted there."""
        counts = (rows >= 0) & self._is_known[workers]
        for state in np.unique(states[counts]).tolist():
            of = np.flatnonzero(counts & (states == state))
            new = self.table.add_copies(
                rows[of], workers[of], ranks[of], reasons[of], CopyState(state), since_s=0
            )
            self.table.c_since[new] = since_s[of]

    def put_copy_rows(self, copies: Iterable[CopyRow]) -> None:
        """The same from single values."""
        remaining = iter(copies)
        while chunk := list(islice(remaining, CHUNK)):
            self.put_copies(
                self.table.rows_of([copy.key for copy in chunk]),
                np.array([copy.worker for copy in chunk], np.uint16),
                np.array([UNWANTED if copy.rank is None else copy.rank for copy in chunk], np.uint8),
                np.array([copy.state for copy in chunk], np.uint8),
                np.array([copy.reason for copy in chunk], np.uint8),
                np.array([copy.since_s for copy in chunk]).astype(np.uint32),
            )
