"""A table whose every bound is reached with a handful of repos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from evermirror.core.fleet import columns, keyindex, table

Hash = Callable[[bytes], int]

POOR: dict[str, Hash] = {
    "all alike": lambda _letters: 7,
    "three kinds": lambda letters: 2**64 - 1 - len(letters) % 3,  # they wrap round at the end of the slots
    "in a row": sum,  # neighbours want one another's slots
}


@contextmanager
def small_sizes(hash_: Hash | None = None) -> Iterator[None]:
    """Columns, slots and batches begin tiny; ``hash_`` takes the place of the good one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (columns, keyindex, table):
            patch.setattr(module, "CAPACITY_MIN", 2)
        for module in (keyindex, table):
            patch.setattr(module, "BATCH", 3)
        patch.setattr(keyindex, "SLOTS_MIN", 4)
        patch.setattr(keyindex, "WASTE_MIN", 8)
        patch.setattr(keyindex, "LATELY_MAX", 2)
        if hash_ is not None:

            def many(letters: Sequence[bytes]) -> NDArray[np.uint64]:
                return np.array([hash_(each) for each in letters], np.uint64)

            patch.setattr(keyindex, "bytes_hash", hash_)
            patch.setattr(keyindex, "bytes_hashes", many)
        yield
