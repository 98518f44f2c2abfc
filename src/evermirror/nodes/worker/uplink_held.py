"""What a worker holds, as frames: all of it at the start of a session, what differs in a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evermirror.core.fleet.digests import RangeDigests, differing, digests_of, ranges_of
from evermirror.core.fleet.hashing import key_hashes
from evermirror.model.messages import HeldRepo
from evermirror.model.refs import short_digest
from evermirror.model.wire import Compare, Compared, Holding

CHUNK = 1000  # repos in one frame


def holding(items: Sequence[HeldRepo]) -> list[Holding]:
    """All of it, in chunks; one that is empty where there is nothing."""
    starts = range(0, max(len(items), 1), CHUNK)
    return [Holding(tuple(items[s : s + CHUNK]), last=s + CHUNK >= len(items)) for s in starts]


def compared(items: Sequence[HeldRepo], compare: Compare) -> list[Compared]:
    """The ranges that differ with all that is held there, a few ranges a frame; raises ValueError."""
    hashes = key_hashes([item.key for item in items])
    digests = np.fromiter((short_digest(item.digest) for item in items), np.uint64, len(items))
    ranges = differing(digests_of(hashes, digests), RangeDigests(compare.digests))
    if not ranges:
        return [Compared((), ())]
    of_range: dict[int, list[HeldRepo]] = {number: [] for number in ranges}
    for number, item in zip(ranges_of(hashes).tolist(), items, strict=True):
        if number in of_range:
            of_range[number].append(item)
    frames: list[Compared] = []
    told: list[int] = []
    gathered: list[HeldRepo] = []
    for number, held in of_range.items():
        if told and len(gathered) + len(held) > CHUNK:
            frames.append(Compared(tuple(told), tuple(gathered)))
            told, gathered = [], []
        told.append(number)
        gathered += held
    return [*frames, Compared(tuple(told), tuple(gathered))]
