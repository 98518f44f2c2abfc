"""Numbers from keys that never change: the same on every machine, in every process, for ever.

Placement and the comparison of copies rest on them, so nothing here may change once repos were placed by it.
A key's number is xxh3 (64 bits) of its UTF-8; further numbers are made from it by the finaliser of
splitmix64, which is a bijection: distinct in, distinct out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

_GOLDEN = 0x9E37_79B9_7F4A_7C15  # splitmix64's step: 2**64 by the golden ratio, odd
_FIRST = 0xBF58_476D_1CE4_E5B9  # splitmix64's two multipliers
_SECOND = 0x94D0_49BB_1331_11EB


def key_hashes(keys: Sequence[str]) -> NDArray[np.uint64]:
    return np.fromiter(map(xxh3_64_intdigest, map(str.encode, keys)), np.uint64, len(keys))


def bytes_hash(letters: bytes) -> int:
    """For those who have the key's UTF-8 in hand already."""
    return xxh3_64_intdigest(letters)


def bytes_hashes(letters: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.fromiter(map(xxh3_64_intdigest, letters), np.uint64, len(letters))


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits: neighbours in, strangers out. ``x`` stays as it is."""
    y = x ^ (x >> np.uint64(30))
    y *= np.uint64(_FIRST)
    y ^= y >> np.uint64(27)
    y *= np.uint64(_SECOND)
    y ^= y >> np.uint64(31)
    return y


def positions(
    hashes: NDArray[np.uint64], salts: NDArray[np.uint8] | NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Places on the ring; each further salt is an independent other place."""
    return mix(hashes + salts.astype(np.uint64) * np.uint64(_GOLDEN))
