"""Which of the workers' reports were taken: each counts once, in order, however often it is sent.

    seq of a report     ┌── up to last ───▶ DUPLICATE: acknowledge it again, do nothing
    against the last ───┼── last + 1 ─────▶ NEW: take it; last is one more
    that was taken      └── above that ───▶ GAP: acknowledge last; the worker sends again from there

Rules
- A worker numbers its reports 1, 2, 3, … in its local file. ``generation`` is a random number that names that
  file: a worker whose file was lost begins a new generation at 1, and is not mistaken for its former self.
- A worker may speak for a while in an older generation (a disk put back): the last GENERATIONS of each worker
  are known, the one that was least recently taken from goes first.
- An acknowledgement shows the worker when one of the two memories was set back (a backup was put in place):
  it is lower than one before, or higher than anything sent. Numbers then mean different reports on the two
  sides, and the worker begins a new generation, whose first reports are those not acknowledged.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from evermirror.model.worker import WorkerId

GENERATIONS = 4  # remembered of a worker; more than one is rare, and each is a row in the store


class Taken(Enum):
    """What a report's number says."""

    NEW = "new"
    DUPLICATE = "duplicate"  # known: acknowledge it again, do nothing
    GAP = "gap"  # one before it is missing: acknowledge the last known, it is sent again from there


class Inbox:
    """``check``, then ``take`` together with the writes that follow from the report."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        # Of each worker its generations, the one last taken from at the end.
        self._last: dict[WorkerId, OrderedDict[int, int]] = {}

    def last(self, worker: WorkerId, generation: int) -> int:
        """The number up to which reports are known; 0 where none is."""
        known = self._last.get(worker)
        return known.get(generation, 0) if known is not None else 0

    def check(self, worker: WorkerId, generation: int, seq: int) -> Taken:
        """What to do with a report of this number."""
        expected = self.last(worker, generation) + 1
        if seq == expected:
            return Taken.NEW
        return Taken.DUPLICATE if seq < expected else Taken.GAP

    def take(self, worker: WorkerId, generation: int, seq: int) -> None:
        """This report counts from now on; it must be new."""
        if self.check(worker, generation, seq) is not Taken.NEW:
            raise ValueError(f"report {seq} of worker {worker} is not the next one")
        self._put(worker, generation, seq)

    def give_back(self, worker: WorkerId, generation: int, seq: int) -> None:
        """This report was the last one taken, and does not count after all: it will be sent again."""
        if self.last(worker, generation) != seq:
            raise ValueError(f"report {seq} of worker {worker} is not the last one")
        self._put(worker, generation, seq - 1)

    def restore(self, worker: WorkerId, generation: int, seq: int) -> None:
        """From the store, those taken from last at the end; never lowers what is known."""
        self._put(worker, generation, max(seq, self.last(worker, generation)))

    def forget(self, worker: WorkerId) -> None:
        """Its id is free again."""
        self._last.pop(worker, None)

    def _put(self, worker: WorkerId, generation: int, seq: int) -> None:
        known = self._last.setdefault(worker, OrderedDict())
        known[generation] = seq
        known.move_to_end(generation)
        if len(known) > GENERATIONS:
            known.popitem(last=False)
