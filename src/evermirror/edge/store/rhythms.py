"""A repo's hours as a few bytes of a row, the coordinator's and a worker's; null where none are known."""

from __future__ import annotations

import struct

from evermirror.model.activity import NO_RHYTHM, Rhythm, rhythm_of

_FIVE = struct.Struct("<5f")


def rhythm_in(rhythm: Rhythm) -> bytes | None:
    if rhythm == NO_RHYTHM:
        return None
    day, half_day = rhythm.day, rhythm.half_day
    return _FIVE.pack(rhythm.pushes, day.real, day.imag, half_day.real, half_day.imag)


def rhythm_out(kept: bytes | None) -> Rhythm:
    """What is not of this form, or cannot be, is taken for none: it is learnt again."""
    if not isinstance(kept, bytes) or len(kept) != _FIVE.size:
        return NO_RHYTHM
    pushes, *waves = _FIVE.unpack(kept)
    return rhythm_of(pushes, waves) or NO_RHYTHM
