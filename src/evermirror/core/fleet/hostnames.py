"""Upstream hosts by number, and the host of every row: the part of a key before its first slash.

A number is for ever, also when the last repo of its host is gone: there are few hosts for many repos. The
column is filled when somebody asks, some thousands of rows at a time: 0.4 to 1 s for a million, 4 bytes each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.columns import CAPACITY_MIN, wider
from evermirror.core.fleet.table import FleetTable
from evermirror.model.repo import Host

UNKNOWN = -1
PART = 1 << 15  # rows looked at together
HEAD = 32  # letters: hosts with longer names are read one by one
SLASH = ord("/")
ODD = np.uint64(0x9E3779B97F4A7C15)

Rows = NDArray[np.int32]


class HostNames:
    """Numbers are 0, 1, 2, … in the order in which hosts were first seen."""

    __slots__ = ("_names", "_numbers", "_of_row", "_seen", "_table")

    def __init__(self, table: FleetTable) -> None:
        self._table = table
        self._names: list[Host] = []
        self._numbers: dict[str, int] = {}
        self._of_row = np.full(CAPACITY_MIN, UNKNOWN, np.int32)
        self._seen = 0  # rows below were looked at

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> Host:
        return self._names[number]

    def seen(self) -> int:
        """How many hosts there are, with those of all rows."""
        return len(self) if len(self.of_row) else 0

    @property
    def of_row(self) -> NDArray[np.int32]:
        """The host of each row; of a row that is free, some number or UNKNOWN."""
        if self._seen < self._table.rows:
            self.note(np.arange(self._seen, self._table.rows, dtype=np.int32))
            self._seen = self._table.rows
        return self._of_row

    def note(self, rows: Rows) -> None:
        """These rows are in use, perhaps by other keys than before."""
        if self._table.rows > len(self._of_row):
            self._of_row = wider(self._of_row, self._table.rows)
        for start in range(0, len(rows), PART):
            part = rows[start : start + PART]
            self._of_row[part] = self._numbers_of(part)

    def _numbers_of(self, rows: Rows) -> Rows:
        """Rows with the same letters before the slash are one host; only one of each is read."""
        heads = self._table.heads_of(rows, HEAD)
        ends = np.argmax(heads == SLASH, axis=1)  # 0 where there is no slash among them
        heads[np.arange(HEAD) >= ends[:, None]] = 0
        _, examples, kinds = np.unique(_mixed(heads), return_index=True, return_inverse=True)
        found = np.array([self._number(self._name(int(rows[i]))) for i in examples.tolist()], np.int32)[kinds]
        unlike = (ends == 0) | np.any(heads != heads[examples[kinds]], axis=1)
        for i in np.flatnonzero(unlike).tolist():
            found[i] = self._number(self._name(int(rows[i])))
        return found

    def _name(self, row: int) -> str:
        return self._table.key_of(row).partition("/")[0]

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(Host(name))
        return number


def _mixed(heads: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """A number for each, the same for the same letters."""
    words = heads.view(np.uint64)
    mixed = np.zeros(len(heads), np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed
