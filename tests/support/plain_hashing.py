"""Hashes of one key at a time, in plain integers: core.fleet.hashing is compared with them."""

from __future__ import annotations

from evermirror.core.fleet.hashing import bytes_hash

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_GOLDEN = 0x9E37_79B9_7F4A_7C15  # splitmix64's step and its two multipliers
_FIRST = 0xBF58_476D_1CE4_E5B9
_SECOND = 0x94D0_49BB_1331_11EB


def key_hash(key: str) -> int:
    return bytes_hash(key.encode())


def mix_one(x: int) -> int:
    """What ``mix`` does, for one number below 2**64."""
    x = (x ^ (x >> 30)) * _FIRST & _MASK
    x = (x ^ (x >> 27)) * _SECOND & _MASK
    return x ^ (x >> 31)


def position(hash_: int, salt: int) -> int:
    """What ``positions`` does, for one repo."""
    return mix_one((hash_ + salt * _GOLDEN) & _MASK)
