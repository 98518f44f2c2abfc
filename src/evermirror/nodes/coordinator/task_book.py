"""Tasks that are not ended: which worker does each, and where it goes when that worker cannot.

      submitted                    the repo has a primary         its report came
 ──────┬───────▶ WAITING ─────────────────────────────▶ GIVEN ──────────────────▶ ended
       ▼            ▲ ▲                                    │
      HELD ─started─┘ └── undelivered, worker began anew ──┘
                          or is no longer alive

A task is in the store before it is here, and leaves by the report that ends it. Given twice (a worker that
restarted may have finished it), it ends once: the store takes the first end. A bad end counts only while it
is that worker's: another may be about to end it well. One of a project that is pulled is held until the pull
machine starts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from evermirror.model.messages import RestoreTip, SyncNow
from evermirror.model.push import PushTo
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.model.worker import WorkerId

TaskCommand = SyncNow | RestoreTip


@dataclass(slots=True)
class _Open:
    command: TaskCommand
    worker: WorkerId | None = None
    taken_from: WorkerId | None = None  # who was given it and then not heard of


class TaskBook:
    """Who does what, and what waits."""

    def __init__(self) -> None:
        self._open: dict[TaskId, _Open] = {}
        self._waiting: dict[TaskId, None] = {}  # in order of arrival
        self._held: dict[TaskId, None] = {}

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

    def add(self, command: TaskCommand, *, held: bool = False) -> None:
        if command.task_id not in self._open:
            self._open[command.task_id] = _Open(command)
            if held:
                self._held[command.task_id] = None
            else:
                self._waiting[command.task_id] = None

    def start(self, task_id: TaskId, push: tuple[PushTo, ...]) -> TaskCommand | None:
        """One that was held waits from now on, and is to be pushed there; None where none was held."""
        if task_id not in self._held:
            return None
        del self._held[task_id]
        self._waiting[task_id] = None
        task = self._open[task_id]
        if isinstance(task.command, SyncNow):
            task.command = replace(task.command, push=push)
        return task.command

    def is_held(self, task_id: TaskId) -> bool:
        return task_id in self._held

    def change(self, command: TaskCommand) -> None:
        """One that is held asks for something else."""
        if command.task_id in self._held:
            self._open[command.task_id].command = command

    def hold(self, task_id: TaskId) -> None:
        """One that waits is held again."""
        if task_id in self._waiting:
            del self._waiting[task_id]
            self._held[task_id] = None

    def held(self, key: RepoKey) -> tuple[TaskId, ...]:
        """Those of a repo that are held."""
        return tuple(i for i in self._held if self._open[i].command.key == key)

    def command(self, task_id: TaskId) -> TaskCommand | None:
        """As it was last given out, or is to be."""
        task = self._open.get(task_id)
        return task.command if task is not None else None

    def waiting_commands(self) -> Iterator[TaskCommand]:
        """Those that still wait when their turn comes."""
        for task_id in list(self._waiting):
            if task_id in self._waiting:
                yield self._open[task_id].command

    def given(self, command: TaskCommand, worker: WorkerId) -> None:
        task = self._open[command.task_id]
        task.command, task.worker = command, worker
        self._waiting.pop(command.task_id, None)

    def undelivered(self, command: object) -> None:
        if isinstance(command, SyncNow | RestoreTip):
            self.take_back(command.task_id)

    def began_anew(self, worker: WorkerId) -> None:
        """What the worker was doing, it does no more; or it does, and is asked a second time."""
        for task_id, task in list(self._open.items()):
            if task.worker == worker:
                self.take_back(task_id)

    def silent(self, worker: WorkerId) -> None:
        """Nobody hears of the worker: what it was doing is to be done by who is heard."""
        for task_id, task in list(self._open.items()):
            if task.worker == worker:
                task.taken_from = worker
                self.take_back(task_id)

    def disowned(self, task_id: TaskId, worker: WorkerId) -> bool:
        """It is another's by now, or was taken from this worker."""
        task = self._open.get(task_id)
        if task is None or task.worker == worker:
            return False
        return task.worker is not None or task.taken_from == worker

    def ended(self, task_id: TaskId) -> None:
        self._open.pop(task_id, None)
        self._waiting.pop(task_id, None)
        self._held.pop(task_id, None)

    def workers(self) -> frozenset[WorkerId]:
        """Those that have something to do."""
        return frozenset(task.worker for task in self._open.values() if task.worker is not None)

    def take_back(self, task_id: TaskId) -> None:
        """It waits for whoever can do it."""
        task = self._open.get(task_id)
        if task is not None and task_id not in self._held:
            task.worker = None
            self._waiting[task_id] = None
