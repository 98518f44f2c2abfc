"""What a simulated worker says to the coordinator, and the log that keeps its reports until they are safe.

Rules of the log
- What is noted is gathered for a moment and then written down as one report for each run of the same kind.
- On a link nothing is sent before the first acknowledgement: it tells from where to send again.
- An acknowledgement that repeats the last one, while more was sent, means that something was missed: send
  again from there, once for each number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from evermirror.core.fleet.digests import RangeDigests, differing, digests_of, range_of
from evermirror.core.fleet.events import HeldCopy, ReportId
from evermirror.core.fleet.hashing import key_hashes
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId

CHUNK = 500  # copies in one report


@dataclass(frozen=True, slots=True)
class Hello:
    """First on every link."""

    worker: WorkerId | None
    facts: WorkerFacts
    boot: int
    generation: int
    epoch: int
    seen: int
    limits: ApplySettings | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    accepting: bool
    progress: int = 0  # another number whenever a clone got further; 0: none runs


@dataclass(frozen=True, slots=True)
class Took:
    """Commands up to ``seq`` are taken in."""

    seq: int


@dataclass(frozen=True, slots=True)
class Told:
    """A chunk of all that it holds."""

    copies: tuple[HeldCopy, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """What it holds in the ranges that differ."""

    ranges: tuple[int, ...]
    copies: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """``kind`` is one of the reports of ``core.fleet.events``, ``rest`` what follows its id."""

    generation: int
    seq: int
    kind: Any
    rest: tuple[Any, ...]

    def event(self, worker: WorkerId, session: int) -> Any:
        return self.kind(ReportId(worker, session, self.generation, self.seq), *self.rest)


class ReportLog:
    """``send`` is called with each report that is to go out now."""

    def __init__(self, generation: int, send: Callable[[Report], None]) -> None:
        self.generation = generation
        self.kept: deque[Report] = deque()
        self.open = False  # a link is there, and told where to go on
        self._send = send
        self._seq = 0
        self._acked: int | None = None  # last told on this link
        self._resent = -1
        self._noted: list[tuple[Any, Any]] = []

    def note(self, kind: Any, item: HeldCopy | RepoKey) -> bool:
        """True: this is the first since the last ``write``, which somebody must call soon."""
        self._noted.append((kind, item))
        return len(self._noted) == 1

    def write(self) -> None:
        """What was noted becomes reports."""
        noted, self._noted = self._noted, []
        for kind, group in groupby(noted, key=lambda entry: entry[0]):
            items = [item for _, item in group]
            for start in range(0, len(items), CHUNK):
                self.add(kind, tuple(items[start : start + CHUNK]))

    def add(self, kind: Any, *rest: Any) -> None:
        """Write down one report after all that was noted before."""
        if self._noted:
            self.write()
        self._seq += 1
        report = Report(self.generation, self._seq, kind, rest)
        self.kept.append(report)
        if self.open:
            self._send(report)

    def acked(self, generation: int, seq: int) -> None:
        """Safe over there up to ``seq``."""
        if generation != self.generation:
            return
        while self.kept and self.kept[0].seq <= seq:
            self.kept.popleft()
        repeated, self._acked = self._acked == seq, seq
        if not self.open or (repeated and self.kept and self._resent != seq):
            self._resent = seq if self.open else -1
            self.open = True
            for report in tuple(self.kept):
                self._send(report)

    def unplugged(self) -> None:
        """The link is gone."""
        self.open = False
        self._acked = None
        self._resent = -1

    def crashed(self) -> None:
        """What was noted and not written is lost."""
        self.unplugged()
        self._noted.clear()


def compared(held: Sequence[HeldCopy], theirs: RangeDigests) -> Compared:
    """What is held, against what the coordinator takes it for: all of the ranges that differ."""
    hashes = key_hashes([copy.key for copy in held])
    ours = digests_of(hashes, np.array([copy.digest for copy in held], dtype=np.uint64))
    ranges = differing(ours, theirs)
    told = frozenset(ranges)
    which = zip(hashes.tolist(), held, strict=True)
    return Compared(ranges, tuple(copy for number, copy in which if range_of(number) in told))
