"""Worker ids from a bitmap: always the lowest that is free, so that tables by id stay small."""

from __future__ import annotations

from collections.abc import Iterator

from evermirror.model.worker import WORKERS_MAX, WorkerId


class NoIdFree(Exception):
    """As many workers are known as there are ids; retiring one frees its id."""


class IdBitmap:
    """``take`` gives an id, ``free`` takes it back; ``use`` marks one that is known from before."""

    __slots__ = ("_bits", "_limit")

    def __init__(self, limit: int = WORKERS_MAX) -> None:
        if not 0 < limit <= WORKERS_MAX:
            raise ValueError(f"a limit of {limit} ids is not within 1 and {WORKERS_MAX}")
        self._limit = limit
        self._bits = 0  # bit i is set: id i is in use

    def take(self) -> WorkerId:
        lowest_free = ~self._bits & (self._bits + 1)
        worker = lowest_free.bit_length() - 1
        if worker >= self._limit:
            raise NoIdFree(f"all {self._limit:,} worker ids are in use; retire workers that do not come back")
        self._bits |= lowest_free
        return WorkerId(worker)

    def use(self, worker: WorkerId) -> None:
        if not 0 <= worker < self._limit:
            raise ValueError(f"worker id {worker} is not within 0 and {self._limit - 1}")
        if worker in self:
            raise ValueError(f"worker id {worker} is in use already")
        self._bits |= 1 << worker

    def free(self, worker: WorkerId) -> None:
        if worker not in self:
            raise ValueError(f"worker id {worker} is not in use")
        self._bits ^= 1 << worker

    def used(self) -> Iterator[WorkerId]:
        """Lowest first."""
        bits = self._bits
        while bits:
            lowest = bits & -bits
            yield WorkerId(lowest.bit_length() - 1)
            bits ^= lowest

    def __contains__(self, worker: object) -> bool:
        return isinstance(worker, int) and worker >= 0 and bool(self._bits >> worker & 1)

    def __len__(self) -> int:
        return self._bits.bit_count()
