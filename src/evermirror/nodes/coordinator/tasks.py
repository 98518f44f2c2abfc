"""Tasks from being asked for to their end: given to those who can do them, watched, and waited for.

A task is in the store before the fleet hears of it. One that nobody can do now waits in the book
(task_book.py); it goes out right behind the command that assigns its repo to somebody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from evermirror.core.fleet.decisions import Assign
from evermirror.core.fleet.events import CommandGiven
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import writes_of
from evermirror.errors import NotFound
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, Progress, Refused, Report, Restored, Started, Synced
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.worker import Liveness, WorkerId
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.submission import command_of
from evermirror.nodes.coordinator.task_book import TaskBook, TaskCommand

LOOK_S = 5.0  # between two looks who is silent: each counts over all copies
WAIT_MAX_S = 300.0  # the longest that one request may wait for a task


class Tasks:
    """All tasks that are not ended."""

    def __init__(
        self, store: Store, recorder: Recorder, fleet: Callable[[], Fleet], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._fleet = fleet
        self._clock = clock
        self._book = TaskBook()
        self._pending: dict[RepoKey, TaskRecord] = {}  # the newest task of a repo whose poll has not begun
        self._progress: dict[TaskId, Progress] = {}
        self._ended: dict[TaskId, set[asyncio.Event]] = {}  # one for each who waits
        self._looked_at = float("-inf")

    # In

    async def resume(self) -> int:
        """What a stop or crash left unfinished is to be done; returns how many."""
        tasks = await self._store.unfinished_tasks()
        for task in tasks:
            self._book.add(command_of(task))
        return len(tasks)

    async def create(
        self, key: RepoKey, trigger: Trigger, *, user: str, params: Mapping[str, object]
    ) -> TaskRecord:
        """Stored, and in the book; ``give`` it."""
        task = await self._store.create_task(key, trigger, user=user, params=params)
        self._book.add(command_of(task))
        return task

    async def create_or_join(
        self, key: RepoKey, trigger: Trigger, *, user: str, params: Mapping[str, object]
    ) -> tuple[TaskRecord, bool]:
        """A sync, and whether it is new: one that asks for the same and has not begun is enough for both."""
        task = self._pending.get(key)
        if task is not None and task.params == params:
            return task, False
        task = await self.create(key, trigger, user=user, params=params)
        self._pending[key] = task
        return task, True

    def left(self, keys: Iterable[RepoKey]) -> None:
        """These repos left the catalog: who asks for one that is back does not join what was asked before."""
        for key in keys:
            self._pending.pop(key, None)

    # To those who do them

    async def give(self, task: TaskRecord) -> None:
        """At once, where somebody can do it."""
        command = command_of(task)
        if self._book.waits(task.id):
            await self._give_out(command)

    async def route(self) -> None:
        """Every task that waits goes to its repo's primary, if there is one; those of the silent wait
        again."""
        busy, now = self._book.workers(), self._clock()
        if busy and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            workers = self._fleet().machine.workers()
            alive = {w.record.id for w in workers if w.record.liveness is Liveness.ALIVE}
            for worker in busy - alive:
                self._book.began_anew(worker)
        for command in self._book.waiting_commands():
            await self._give_out(command)

    async def _give_out(self, command: TaskCommand) -> None:
        """To the repo's primary, if there is one; refused where the repo is no longer in the catalog."""
        repo = self._fleet().machine.repo(command.key)
        if repo is None or repo.removed:
            if await self._store.find_repo(command.key) is None:
                await self._refuse(command)
        elif repo.primary is not None:
            self._book.given(command.task_id, repo.primary)
            await self._fleet().tell(CommandGiven(repo.primary, command))

    async def _refuse(self, command: TaskCommand) -> None:
        now = self._clock()
        failure = Failure(FailureKind.NOT_FOUND, "the repo left the catalog")
        report = Refused(command.key, (command.task_id,), failure, now, now)
        await self._recorder.put(*writes_of(report))
        await self._recorder.flush()
        self.reported(report)

    def behind(self, worker: WorkerId, assign: Assign) -> list[TaskCommand]:
        """What waited for one of these repos to be given to somebody."""
        if not self._book.waiting:
            return []
        keys = {item.key for item in assign.items if item.primary}
        commands = [command for command in self._book.waiting_commands() if command.key in keys]
        for command in commands:
            self._book.given(command.task_id, worker)
        return commands

    def undelivered(self, command: object) -> None:
        self._book.undelivered(command)

    def began_anew(self, worker: WorkerId) -> None:
        self._book.began_anew(worker)

    # What comes of them

    def reported(self, report: Report) -> None:
        """It is in the store: whoever waits for it is told."""
        if isinstance(report, Started | Synced | Restored | Failed | Refused):
            pending = self._pending.get(report.key)
            if pending is not None and pending.id in report.task_ids:
                del self._pending[report.key]
        if isinstance(report, Synced | Restored | Failed | Refused):
            for task_id in report.task_ids:
                self._progress.pop(task_id, None)
                self._book.ended(task_id)
                for event in self._ended.get(task_id, ()):
                    event.set()

    def about(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are not ended, and about this repo."""
        return self._book.about(key, ids)

    def passing(self, progress: Progress) -> None:
        for task_id in progress.task_ids:
            if task_id in self._book:  # it may come later than the end
                self._progress[task_id] = progress

    async def get(self, task_id: TaskId) -> TaskRecord:
        task = await self._store.get_task(task_id)
        if task is None:
            raise NotFound(f"no task {task_id}", hint="Task ids come from POST /api/tasks")
        progress = self._progress.get(task_id)
        if progress is None or task.status.ended:
            return task
        return replace(task, progress_percent=progress.percent, progress_phase=progress.phase)

    async def wait(self, task_id: TaskId, timeout_s: float) -> TaskRecord:
        """The task at its end, or as it is after that time."""
        event = asyncio.Event()
        self._ended.setdefault(task_id, set()).add(event)
        try:
            async with asyncio.timeout(min(timeout_s, WAIT_MAX_S)):
                await self._recorder.flush()
                task = await self.get(task_id)
                if not task.status.ended:
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            self._ended[task_id].discard(event)
            if not self._ended[task_id]:
                del self._ended[task_id]
        return await self.get(task_id)
