"""Tasks from being asked for to their end: given to those who can do them, watched, and waited for.

A task is in the store before the fleet hears of it. One that nobody can do now waits in the book
(task_book.py); it goes out right behind the command that assigns its repo to somebody. Syncs of projects that
are pulled are held until the pull machine starts them, and get what is to be pushed when they are given out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from evermirror.core.fleet.decisions import Assign
from evermirror.core.fleet.events import CommandGiven
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import writes_of
from evermirror.errors import NotFound
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, Progress, Refused, Report, Restored, Started, Synced, SyncNow
from evermirror.model.push import PushTo, TargetId
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.worker import Liveness, WorkerId
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.submission import asked_of, command_of, is_sync
from evermirror.nodes.coordinator.task_book import TaskBook, TaskCommand

ASIDE_S = 10.0  # a project's sync waits so long for a worker before others go before it
LOOK_S = 5.0  # between two looks who is silent: each counts over all copies
WAIT_MAX_S = 300.0  # the longest that one request may wait for a task


class Pulls(Protocol):
    """What pull mirroring has to say about tasks."""

    def is_project(self, key: RepoKey) -> bool: ...

    def decides(self, command: SyncNow) -> bool:
        """Whether it is theirs to start; not what was asked for before the repo was a project."""
        ...

    def completed(self, command: SyncNow) -> SyncNow:
        """With its targets as they are at this moment."""
        ...

    def set_aside(self, command: SyncNow) -> None:
        """Nobody can do it now: others are to go before it."""
        ...

    def taken_up(self, command: SyncNow) -> None:
        """There is somebody for it again."""
        ...


class NoPulls:
    """Nothing is pulled."""

    def is_project(self, key: RepoKey) -> bool:
        return False

    def decides(self, command: SyncNow) -> bool:
        return False

    def completed(self, command: SyncNow) -> SyncNow:
        return command

    def set_aside(self, command: SyncNow) -> None:
        return

    def taken_up(self, command: SyncNow) -> None:
        return


class Tasks:
    """All tasks that are not ended. ``pulls`` is asked for those of projects."""

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
        self._waits_since: dict[TaskId, float] = {}  # of projects, for a worker
        self._aside: dict[TaskId, SyncNow] = {}
        self.pulls: Pulls = NoPulls()

    # In

    async def resume(self) -> tuple[TaskRecord, ...]:
        """What a stop or crash left unfinished is to be done; returns all of it, oldest first."""
        tasks = await self._store.unfinished_tasks()
        for task in tasks:
            self._book.add(command_of(task), held=is_sync(task) and self.pulls.is_project(task.repo))
        return tasks

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
        task = self.joinable(key, params)
        if task is not None:
            return task, False
        task = await self.create(key, trigger, user=user, params=params)
        self._pending[key] = task
        return task, True

    async def create_many(
        self, keys: Sequence[RepoKey], trigger: Trigger, *, user: str, params: Mapping[str, object]
    ) -> tuple[Sequence[TaskRecord], Sequence[TaskRecord]]:
        """The same of many repos at once: what was joined, and what is new and given out by now."""
        joined = [task for key in keys if (task := self.joinable(key, params)) is not None]
        ours = {task.repo for task in joined}
        new = [key for key in keys if key not in ours]
        made = await self._store.create_tasks(new, trigger, user=user, params=params)
        for task in made:
            self._book.add(command_of(task))
            self._pending[task.repo] = task
        for task in made:
            await self.give(task)
        return joined, made

    async def force(self, tasks: Iterable[TaskRecord]) -> tuple[TaskRecord, ...]:
        """Those of the tasks that nobody was given yet look at everything anew; returns them."""
        held = [task for task in tasks if self._book.is_held(task.id)]
        forced = await self._store.change_params({t.id: {**asked_of(t), "force": True} for t in held})
        for task in forced:
            self._book.change(command_of(task))
            if (pending := self._pending.get(task.repo)) is not None and pending.id == task.id:
                self._pending[task.repo] = task
        return forced

    def joinable(self, key: RepoKey, params: Mapping[str, object]) -> TaskRecord | None:
        """A sync that asks for the same, and has not begun."""
        task = self._pending.get(key)
        return task if task is not None and asked_of(task) == params else None

    def hold(self, task: TaskRecord) -> None:
        """A sync of a project, which is stored: until ``start``."""
        self._book.add(command_of(task), held=True)
        self._pending[task.repo] = task

    async def start(self, task_id: TaskId, push: tuple[PushTo, ...] = ()) -> None:
        """What was held goes to who can do it, and on to these targets."""
        command = self._book.start(task_id, push)
        if command is not None:
            await self._give_out(command)

    async def start_all(self, key: RepoKey) -> None:
        """The repo is no project any more: nobody else starts what was held."""
        for task_id in self._book.held(key):
            await self.start(task_id)

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
                self._book.silent(worker)
        for command in self._book.waiting_commands():
            await self._give_out(command)
        self._set_aside(now)

    def _set_aside(self, now: float) -> None:
        """What waits for a worker for long and is a project's; and what waited, and has one now."""
        machine = self._fleet().machine
        ours = (c for c in self._book.waiting_commands() if isinstance(c, SyncNow))
        waiting = {c.task_id: c for c in ours if self.pulls.decides(c)}
        self._waits_since = {i: self._waits_since.get(i, now) for i in waiting}
        late = [c for i, c in waiting.items() if now - self._waits_since[i] >= ASIDE_S]
        if late and not machine.totals().warming:
            for command in late:
                self._book.hold(command.task_id)
                self._aside[command.task_id] = command
                self.pulls.set_aside(command)
        for task_id, command in list(self._aside.items()):
            repo = machine.repo(command.key)
            if task_id not in self._book or (repo is not None and repo.primary is not None):
                del self._aside[task_id]
                self.pulls.taken_up(command)

    async def _give_out(self, command: TaskCommand) -> None:
        """To the repo's primary, if there is one; refused where the repo is no longer in the catalog."""
        repo = self._fleet().machine.repo(command.key)
        if repo is None or repo.removed:
            if await self._store.find_repo(command.key) is None:
                await self._refuse(command)
        elif repo.primary is not None:
            command = self._completed(command)
            self._book.given(command, repo.primary)
            await self._fleet().tell(CommandGiven(repo.primary, command))

    def _completed(self, command: TaskCommand) -> TaskCommand:
        return self.pulls.completed(command) if isinstance(command, SyncNow) else command

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
        waiting = [command for command in self._book.waiting_commands() if command.key in keys]
        commands = [self._completed(command) for command in waiting]
        for command in commands:
            self._book.given(command, worker)
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

    def counting(self, worker: WorkerId, report: Report) -> Report:
        """Without the tasks that ended badly with one who is not to do them any more: they go on with who
        is."""
        if not isinstance(report, Synced | Failed | Refused) or not _went_wrong(report):
            return report
        repo = self._fleet().machine.repo(report.key)
        elsewhere = repo is not None and not repo.removed and repo.primary not in (None, worker)
        own = tuple(i for i in report.task_ids if not self._book.disowned(i, worker))
        if elsewhere:
            for task_id in own:
                self._book.take_back(task_id)
            own = ()
        return replace(report, task_ids=own)

    def about(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are not ended, and about this repo."""
        return self._book.about(key, ids)

    def pushes_of(self, ids: Iterable[TaskId]) -> dict[TargetId, PushTo]:
        """What those who were given these tasks were told to push."""
        commands = (self._book.command(i) for i in ids)
        return {to.target: to for c in commands if isinstance(c, SyncNow) for to in c.push}

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


def _went_wrong(report: Synced | Failed | Refused) -> bool:
    return not isinstance(report, Synced) or any(push.failure is not None for push in report.pushes)
