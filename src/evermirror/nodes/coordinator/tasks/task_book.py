"""Tasks that are not ended: which worker does each, and where it goes when that worker cannot.

      submitted                    the repo has a primary         its report came
 ──────┬───────▶ WAITING ─────────────────────────────▶ GIVEN ──────────────────▶ ended
       ▼            ▲ ▲                                    │
      HELD ─started─┘ ├── undelivered, worker began anew ──┤
                      │   or is not to be heard any more   │
                      └──────── RESTING ◀── looked for ────┘
                         its time came      something that is not there yet

A task is in the store before it is here, and leaves by the report that ends it. Given twice (a worker that
restarted may have finished it), it ends once: the store takes the first end. A bad end counts only while it
is that worker's: another may be about to end it well. One of a project that is pulled is held until the pull
machine starts it.

Who asks for the same joins what was not given out by then, or rests: of all else the look may have begun.
What people ask for waits its turn here while a round of the repo runs for somebody, so that they can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from evermirror.model.messages import RestoreTip, SyncNow
from evermirror.model.push import PushTo
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, Trigger
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.tasks.task_given import GivenOut
from evermirror.nodes.coordinator.tasks.task_rests import Rests

TaskCommand = SyncNow | RestoreTip


@dataclass(slots=True)
class _Open:
    command: TaskCommand
    worker: WorkerId | None = None
    taken_from: WorkerId | None = None  # who was given it and then not heard of
    trigger: Trigger = Trigger.API
    given_as: int = 0  # which of all that were given out, when it was the first time; 0: it was not
    losses: int = 0  # workers that were lost while they did it


class TaskBook:
    """Who does what, and what waits."""

    def __init__(self) -> None:
        self._open: dict[TaskId, _Open] = {}
        self._waiting: dict[TaskId, None] = {}  # in order of arrival
        self._held: dict[TaskId, None] = {}
        self._resting = Rests()
        self._with = GivenOut()
        self.gives = 0  # tasks given out so far
        self._in_turn: dict[RepoKey, dict[TaskId, None]] = {}  # those that wait for a round of it to end

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._open

    def about(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are open, and about this repo."""
        return tuple(i for i in ids if (task := self._open.get(i)) is not None and task.command.key == key)

    def doing(self, worker: WorkerId, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are about this repo, and that this worker has."""
        return tuple(i for i in self.about(key, ids) if self._open[i].worker == worker)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waits(self, task_id: TaskId) -> bool:
        return task_id in self._waiting

    def triggers(self, ids: Collection[TaskId]) -> frozenset[Trigger]:
        """Why those of the tasks that are open were asked for."""
        return frozenset(task.trigger for i in ids if (task := self._open.get(i)) is not None)

    def add(
        self,
        command: TaskCommand,
        *,
        held: bool = False,
        trigger: Trigger = Trigger.API,
        in_turn: bool = False,
    ) -> None:
        if command.task_id not in self._open:
            if in_turn:
                self._in_turn.setdefault(command.key, {})[command.task_id] = None
            self._open[command.task_id] = _Open(command, trigger=trigger)
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

    def rest(self, task_id: TaskId, until: float) -> None:
        """Who had it is done with it for now; it waits again from then on."""
        if (task := self._open.get(task_id)) is not None:
            task.worker = task.taken_from = None
            self._with.drop(task_id)
            self._waiting.pop(task_id, None)
            self._resting.put(task_id, until)

    def rests(self, task_id: TaskId) -> bool:
        return task_id in self._resting

    def wake(self, now: float) -> list[TaskId]:
        """Those whose time has come wait again."""
        woken = self._resting.due(now)
        self._waiting.update(dict.fromkeys(woken))
        return woken

    def hasten(self, task_id: TaskId) -> bool:
        """One that rests waits again; whether it did rest."""
        rested = self._resting.take(task_id)
        if rested:
            self._waiting[task_id] = None
        return rested

    def next_wake(self) -> float | None:
        return self._resting.next_at()

    def idle(self, task_id: TaskId) -> TaskCommand | None:
        """One that waits or is held: nobody does anything for it."""
        idle = task_id in self._waiting or task_id in self._held
        return self._open[task_id].command if idle else None

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
        self.gives += 1
        task.command, task.worker, task.given_as = command, worker, task.given_as or self.gives
        self._waiting.pop(command.task_id, None)
        self._with.put(command.task_id, command.key, worker)
        self._leave_line(command.key, command.task_id)

    def began(self, ids: Collection[TaskId], worker: WorkerId) -> None:
        """The worker that was given these says that it looks."""
        for task_id in ids:
            if (task := self._open.get(task_id)) is not None and task.worker == worker:
                self._with.began(task_id)

    def is_fresh(self, task_id: TaskId, gives: int) -> bool:
        """It was certainly not looked at when so many had been given out: nobody had it, or nobody has."""
        task = self._open.get(task_id)
        return task is not None and (not task.given_as or task.given_as > gives or task_id in self._resting)

    def waits_its_turn(self, command: TaskCommand) -> bool:
        return command.task_id in self._in_turn.get(command.key, ()) and self._with.is_busy(command.key)

    def has_next(self, key: RepoKey) -> bool:
        """Some waited for a round of the repo to end, and none runs any more."""
        return key in self._in_turn and not self._with.is_busy(key)

    def losses(self, task_id: TaskId) -> int:
        return self._open[task_id].losses

    def undelivered(self, command: object) -> None:
        if isinstance(command, SyncNow | RestoreTip):
            self.take_back(command.task_id)

    def began_anew(self, worker: WorkerId) -> None:
        """What the worker was doing, it does no more; or it does, and is asked a second time."""
        for task_id in self._with.of(worker):
            self._lose(task_id)

    def silent(self, worker: WorkerId) -> None:
        """Nobody hears of the worker: what it was doing is to be done by who is heard."""
        for task_id in self._with.of(worker):
            self._lose(task_id)
            self._open[task_id].taken_from = worker

    def take_from(self, worker: WorkerId, ids: Collection[TaskId]) -> bool:
        """What it says of these is not believed any more: others do them. Whether it had any."""
        lost = [i for i in ids if (task := self._open.get(i)) is not None and task.worker == worker]
        for task_id in lost:
            self.take_back(task_id)
            self._open[task_id].taken_from = worker
        return bool(lost)

    def some_given(self, most: int) -> list[tuple[TaskId, RepoKey, WorkerId]]:
        """So many of those that workers have; the next time others."""
        return self._with.some(most)

    def disowned(self, task_id: TaskId, worker: WorkerId) -> bool:
        """It is another's by now, or was taken from this worker."""
        task = self._open.get(task_id)
        if task is None or task.worker == worker:
            return False
        return task.worker is not None or task.taken_from == worker

    def ended(self, task_id: TaskId) -> None:
        task = self._open.pop(task_id, None)
        if task is not None:
            self._leave_line(task.command.key, task_id)
        self._with.drop(task_id)
        self._waiting.pop(task_id, None)
        self._held.pop(task_id, None)
        self._resting.take(task_id)

    def workers(self) -> frozenset[WorkerId]:
        """Those that have something to do."""
        return self._with.workers

    def take_back(self, task_id: TaskId) -> None:
        """It waits for whoever can do it."""
        task = self._open.get(task_id)
        if task is not None and task_id not in self._held and task_id not in self._resting:
            task.worker = None
            self._with.drop(task_id)
            self._waiting[task_id] = None

    def _lose(self, task_id: TaskId) -> None:
        """Its worker is gone, and was perhaps killed by it."""
        self._open[task_id].losses += self._with.has_begun(task_id)
        self.take_back(task_id)

    def _leave_line(self, key: RepoKey, task_id: TaskId) -> None:
        line = self._in_turn.get(key)
        if line is not None and line.pop(task_id, task_id) is None and not line:
            del self._in_turn[key]
