"""Tasks that rest until their time, which are many: the next one is known without looking at all."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from evermirror.core.set_back import SetBack
from evermirror.model.task import TaskId

SPARE = 64  # entries of tasks that no longer rest are thrown out when there are more than this, and than half


class Rests:
    """Until when each rests."""

    def __init__(self) -> None:
        self._until: dict[TaskId, float] = {}
        self._set_back = SetBack()
        self._next: list[
            tuple[float, TaskId]
        ] = []  # a heap; entries that are not so any more are passed over

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._until

    def __len__(self) -> int:
        return len(self._until)

    def put(self, task_id: TaskId, until: float) -> None:
        self._until[task_id] = until
        heappush(self._next, (until, task_id))
        if len(self._next) > SPARE + 2 * len(self._until):
            self._next = [(at, i) for i, at in self._until.items()]
            heapify(self._next)

    def take(self, task_id: TaskId) -> bool:
        """It rests no more; whether it did."""
        return self._until.pop(task_id, None) is not None

    def next_at(self) -> float | None:
        """When the first of them has rested long enough."""
        while self._next and self._until.get(self._next[0][1]) != self._next[0][0]:
            heappop(self._next)
        return self._next[0][0] if self._next else None

    def due(self, now: float) -> list[TaskId]:
        """Those that have rested long enough, in order of their times; they rest no more."""
        if step_s := self._set_back.by_s(now):
            self._until = {task_id: at - step_s for task_id, at in self._until.items()}
            self._next = [(at, task_id) for task_id, at in self._until.items()]
            heapify(self._next)
        found = []
        while (at := self.next_at()) is not None and at <= now:
            found.append(heappop(self._next)[1])
            del self._until[found[-1]]
        return found
