"""How many clones each worker is asked for: few at first, more as they succeed, bounded for one and for all.

         plan                    take, asked                  ┌─▶ done, deferred: a windowful doubles the
                                                              │   window
    a copy ──▶ queued at its worker ─────────▶ outstanding ───┼─▶ failed (handed back): halves it
                                                              └─▶ stopped (not wanted any more): nothing
Rules
- A clone that failed, or that cannot begin now, is deferred and leaves at once: places are for clones that
  make progress. It cost the worker next to nothing, and so counts as done.
- A worker has at most its *window* outstanding. It begins at ``first``, doubles each time that a windowful
  was done, up to ``per_worker``, and halves, not below 1, with each that is handed back.
- The whole fleet has at most ``total`` outstanding: upstreams are shared.
- What is a fact is counted beyond the bounds as well (``asked`` after a restart); then nothing is taken until
  enough is done.
- Hastened copies, which somebody waits for or whose repo is of a high priority, go first, then orphans, which
  nobody holds, then the rest: within a worker; among workers those that have such ones queued go first.
- Otherwise workers take turns: who was offered goes to the end.
- A queue holds numbers of copies. An entry may be outdated, as none is taken out when plans change: who takes
  it looks whether that copy is still planned on that worker, and takes the next if not. Numbers that are
  queued over and over are thinned out, so that a queue stays within about twice the copies there are.
- A paused worker (not connected, not accepting) keeps its queue and is passed over.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from evermirror.model.worker import WorkerId

_COMPACT_MIN = 1024  # entries; below that, dead or double ones are not worth the work (4 KiB)


class _Lane:
    """Numbers, first in, first out: 4 bytes each, as a million may wait at the first placement."""

    __slots__ = ("_distinct", "_head", "_numbers")

    def __init__(self) -> None:
        self._numbers = array("i")
        self._head = 0  # those before it are gone
        self._distinct = 0  # entries left when doubles were last removed

    def __len__(self) -> int:
        return len(self._numbers) - self._head

    def extend(self, numbers: NDArray[np.int32]) -> None:
        self._numbers.frombytes(np.ascontiguousarray(numbers, dtype=np.intc).tobytes())
        if len(self) > 2 * self._distinct + _COMPACT_MIN:
            self._remove_doubles()

    def pop(self) -> int:
        number = self._numbers[self._head]
        self._head += 1
        if self._head >= _COMPACT_MIN and 2 * self._head >= len(self._numbers):
            del self._numbers[: self._head]
            self._head = 0
        return number

    def _remove_doubles(self) -> None:
        """Keeps the first of each: amortised over the entries that came since the last time."""
        waiting = np.array(self._numbers[self._head :], dtype=np.intc)
        _, first = np.unique(waiting, return_index=True)
        self._numbers = array("i", waiting[np.sort(first)].tobytes())
        self._head = 0
        self._distinct = len(self._numbers)


class _Worker:
    """What is counted of one worker."""

    __slots__ = ("done", "hastened", "hastened_now", "orphans", "outstanding", "paused", "rest", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.done = 0  # since the window changed
        self.outstanding = 0
        self.paused = False
        self.hastened = _Lane()
        self.hastened_now: set[int] = set()  # of those, the ones that were hastened while they waited
        self.orphans = _Lane()
        self.rest = _Lane()

    @property
    def lanes(self) -> tuple[_Lane, _Lane, _Lane]:
        """In the order in which they are taken from."""
        return self.hastened, self.orphans, self.rest


class Pace:
    """``plan`` → ``ready``, ``take`` → ``asked`` → ``done``, ``failed`` or ``stopped``."""

    __slots__ = ("_first", "_outstanding", "_per_worker", "_total", "_turns", "_turns_first", "_workers")

    def __init__(self, first: int, per_worker: int, total: int) -> None:
        self._first = max(1, min(first, per_worker))
        self._per_worker = max(1, per_worker)
        self._total = max(1, total)
        self._outstanding = 0
        self._workers: dict[WorkerId, _Worker] = {}
        # Workers that could take one now, were it not for the total; a worker is in one of the two at most.
        self._turns_first: OrderedDict[WorkerId, None] = OrderedDict()
        self._turns: OrderedDict[WorkerId, None] = OrderedDict()

    # What is known

    @property
    def total_outstanding(self) -> int:
        return self._outstanding

    def outstanding(self, worker: WorkerId) -> int:
        """Asked of it, and not yet done."""
        known = self._workers.get(worker)
        return known.outstanding if known is not None else 0

    def window(self, worker: WorkerId) -> int:
        """How many may be outstanding there."""
        known = self._workers.get(worker)
        return known.window if known is not None else self._first

    def queued(self, worker: WorkerId) -> int:
        """Entries in its queue, outdated ones included."""
        known = self._workers.get(worker)
        return sum(map(len, known.lanes)) if known is not None else 0

    # Who is next

    def plan(
        self,
        worker: WorkerId,
        copies: NDArray[np.int32] | Sequence[int],
        orphan: bool,
        *,
        urgent: bool = False,
    ) -> None:
        """These copies are to be asked of the worker, in this order, after those queued already."""
        known = self._known(worker)
        lane = known.hastened if urgent else known.orphans if orphan else known.rest
        lane.extend(np.asarray(copies, dtype=np.int32))
        self._place(worker, known)

    def hasten(self, worker: WorkerId, copy: int) -> None:
        """This copy, which is queued already, is to be asked before the others; its old entry is outdated."""
        known = self._known(worker)
        if copy not in known.hastened_now:
            known.hastened_now.add(copy)
            known.hastened.extend(np.array([copy], np.int32))
            self._place(worker, known)

    def ready(self) -> Iterator[WorkerId]:
        """Workers that may be asked for more, once round, while the total allows; ``take`` in between."""
        for turns in (self._turns_first, self._turns):
            for _ in range(len(turns)):
                if not turns or self._outstanding >= self._total:
                    break
                worker = next(iter(turns))
                turns.move_to_end(worker)
                yield worker

    def take(self, worker: WorkerId) -> int | None:
        """The next copy to ask of the worker, out of its queue; None: nothing queued, or no room."""
        known = self._workers.get(worker)
        if known is None or known.paused or self._outstanding >= self._total:
            return None
        if known.outstanding >= known.window:
            return None
        lane = next(filter(len, known.lanes), None)
        if lane is None:
            return None
        number = lane.pop()
        known.hastened_now.discard(number)
        self._place(worker, known)
        return number

    # What happened

    def asked(self, worker: WorkerId, count: int = 1) -> None:
        """So many more were asked of it."""
        known = self._known(worker)
        known.outstanding += count
        self._outstanding += count
        self._place(worker, known)

    def done(self, worker: WorkerId, count: int = 1) -> None:
        """So many were done, or deferred."""
        known = self._known(worker)
        known.done += self._end(known, count)
        while known.done >= known.window:
            known.done -= known.window
            known.window = min(2 * known.window, self._per_worker)
        self._place(worker, known)

    def failed(self, worker: WorkerId, count: int = 1) -> None:
        """So many were handed back."""
        known = self._known(worker)
        if ended := self._end(known, count):
            known.window = max(known.window >> min(ended, 31), 1)
            known.done = 0
        self._place(worker, known)

    def stopped(self, worker: WorkerId, count: int = 1) -> None:
        """So many are no longer wanted, which says nothing about the worker."""
        known = self._known(worker)
        self._end(known, count)
        self._place(worker, known)

    def pause(self, worker: WorkerId) -> None:
        """Nothing is asked of it for now."""
        known = self._known(worker)
        known.paused = True
        self._place(worker, known)

    def resume(self, worker: WorkerId) -> None:
        """It may be asked again."""
        known = self._known(worker)
        known.paused = False
        self._place(worker, known)

    def forget(self, worker: WorkerId, *, keep_queue: bool = False) -> None:
        """Nothing is outstanding there any more, and it begins anew; with ``keep_queue`` its queue stays,
        and it stays paused where it was."""
        known = self._workers.pop(worker, None)
        if known is None:
            return
        self._outstanding -= known.outstanding
        self._turns.pop(worker, None)
        self._turns_first.pop(worker, None)
        if keep_queue:
            anew = self._known(worker)
            anew.hastened, anew.orphans, anew.rest = known.lanes
            anew.hastened_now, anew.paused = known.hastened_now, known.paused
            self._place(worker, anew)

    def _known(self, worker: WorkerId) -> _Worker:
        known = self._workers.get(worker)
        if known is None:
            known = self._workers[worker] = _Worker(self._first)
        return known

    def _end(self, known: _Worker, count: int) -> int:
        """A report may come late, when the worker was forgotten meanwhile: then fewer are outstanding."""
        ended = min(count, known.outstanding)
        known.outstanding -= ended
        self._outstanding -= ended
        return ended

    def _place(self, worker: WorkerId, known: _Worker) -> None:
        """Keeps the turns: a worker that stays where it is keeps its place."""
        able = not known.paused and known.outstanding < known.window
        first = able and len(known.hastened) + len(known.orphans) > 0
        if first:
            self._turns_first.setdefault(worker)
        else:
            self._turns_first.pop(worker, None)
        if able and not first and len(known.rest) > 0:
            self._turns.setdefault(worker)
        else:
            self._turns.pop(worker, None)
