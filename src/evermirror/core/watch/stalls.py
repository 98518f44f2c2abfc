"""Work that waits and does not move: noticed, whatever the reason, so that nothing waits silently.

A *sample* says how much of a kind of work is pending, and how far that work is. Work is stalled when it was
pending at many looks in a row and nothing about how far it is changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One kind of work at one place, now."""

    about: str  # a worker's name, or "fleet"
    what: str  # "first clones", "syncs": with ``about`` it tells samples apart
    pending: int
    progress: Hashable  # anything that changes when the work moves


@dataclass(frozen=True, slots=True)
class Stall:
    """So much waits, and nothing has moved over so many looks."""

    about: str
    what: str
    pending: int
    looks: int


class StallWatch:
    """``look`` at even intervals; what stalls is told each time. Looks are counted and not time, so that
    neither a clock that jumps nor a process that was paused raises a false alarm."""

    def __init__(self, looks_max: int) -> None:
        self._looks_max = looks_max
        self._seen: dict[tuple[str, str], tuple[Hashable, int]] = {}

    def look(self, samples: Iterable[Sample]) -> list[Stall]:
        before, self._seen = self._seen, {}
        stalls = []
        for sample in samples:
            if not sample.pending:
                continue
            which = (sample.about, sample.what)
            progress, looks = before.get(which, (None, 0))
            looks = looks + 1 if progress == sample.progress else 0
            self._seen[which] = (sample.progress, looks)
            if looks >= self._looks_max:
                stalls.append(Stall(sample.about, sample.what, sample.pending, looks))
        return stalls
