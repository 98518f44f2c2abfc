"""The columns of the fleet's table: what they are called, what they hold, and how they grow."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

CAPACITY_MIN = 1024
GROWTH = 1.25  # little room is wasted, and each value is copied about four times in all

_Kind = TypeVar("_Kind", bound=np.generic)
Kinds = dict[str, type[np.generic]]

REPO_COLUMNS: Kinds = {
    "salt": np.uint8,
    "flags": np.uint8,
    "replicas": np.uint8,
    "witness": np.uint64,
    "first": np.int32,
}
COPY_COLUMNS: Kinds = {
    "c_row": np.int32,
    "c_worker": np.uint16,
    "c_rank": np.uint8,
    "c_state": np.uint8,
    "c_reason": np.uint8,
    "c_primary": np.uint8,
    "c_digest": np.uint64,
    "c_verified": np.uint32,
    "c_since": np.uint32,
    "c_next": np.int32,
}


class Cells:
    """The same columns, for one value at a time: see table.py for what they mean."""

    __slots__ = ("hash", *REPO_COLUMNS, *COPY_COLUMNS)

    hash: memoryview
    salt: memoryview
    flags: memoryview
    replicas: memoryview
    witness: memoryview
    first: memoryview
    c_row: memoryview
    c_worker: memoryview
    c_rank: memoryview
    c_state: memoryview
    c_reason: memoryview
    c_primary: memoryview
    c_digest: memoryview
    c_verified: memoryview
    c_since: memoryview
    c_next: memoryview


def put_few(column: NDArray[_Kind], at: NDArray[np.int32], values: NDArray[_Kind]) -> None:
    """As ``column[at] = values``, where nearly all are 0: what is 0 already is not written, and takes no
    memory."""
    other = np.flatnonzero(column[at] != values)
    column[at[other]] = values[other]


def wider(column: NDArray[_Kind], needed: int) -> NDArray[_Kind]:
    """The same values with room for ``needed``. Room that was never written to takes no memory yet."""
    grown = np.zeros(max(needed, int(len(column) * GROWTH), CAPACITY_MIN), column.dtype)
    grown[: len(column)] = column
    return grown
