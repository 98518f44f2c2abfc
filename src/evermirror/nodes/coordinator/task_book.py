"""Tasks that are not ended: which worker does each, and where it goes when that worker cannot.

      submitted                    the repo has a primary         its report came
 ──────────────▶ WAITING ─────────────────────────────▶ GIVEN ──────────────────▶ ended
                    ▲                                      │
                    └── undelivered, worker began anew ────┘
                        or is no longer alive

A task is in the store before it is here, and leaves by the report that ends it. Given twice (a worker that
restarted may have finished it), it ends once: the store takes the first end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from evermirror.model.messages import RestoreTip, SyncNow
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.model.worker import WorkerId

TaskCommand = SyncNow | RestoreTip


@dataclass(slots=True)
class _Open:
    command: TaskCommand
    worker: WorkerId | None = None


class TaskBook:
    """Who does what, and what waits."""

    def __init__(self) -> None:
        self._open: dict[TaskId, _Open] = {}
        self._waiting: dict[TaskId, None] = {}  # in order of arrival

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._open

    def about(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are open, and about this repo."""
        return tuple(i for i in ids if (task := self._open.get(i)) is not None and task.command.key == key)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waits(self, task_id: TaskId) -> bool:
        return task_id in self._waiting

    def add(self, command: TaskCommand) -> None:
        if command.task_id not in self._open:
            self._open[command.task_id] = _Open(command)
            self._waiting[command.task_id] = None

    def waiting_commands(self) -> Iterator[TaskCommand]:
        """Those that still wait when their turn comes."""
        for task_id in list(self._waiting):
            if task_id in self._waiting:
                yield self._open[task_id].command

    def given(self, task_id: TaskId, worker: WorkerId) -> None:
        self._open[task_id].worker = worker
        self._waiting.pop(task_id, None)

    def undelivered(self, command: object) -> None:
        if isinstance(command, SyncNow | RestoreTip):
            self._take_back(command.task_id)

    def began_anew(self, worker: WorkerId) -> None:
        """What the worker was doing, it does no more; or it does, and is asked a second time."""
        for task_id, task in list(self._open.items()):
            if task.worker == worker:
                self._take_back(task_id)

    def ended(self, task_id: TaskId) -> None:
        self._open.pop(task_id, None)
        self._waiting.pop(task_id, None)

    def workers(self) -> frozenset[WorkerId]:
        """Those that have something to do."""
        return frozenset(task.worker for task in self._open.values() if task.worker is not None)

    def _take_back(self, task_id: TaskId) -> None:
        task = self._open.get(task_id)
        if task is not None:
            task.worker = None
            self._waiting[task_id] = None
