"""Tasks from being asked for to their end: given to those who can do them, watched, and waited for.

A task is in the store before the fleet hears of it. One that nobody can do now waits in the book
(task_book.py); it goes out right behind the command that assigns its repo to somebody. Syncs of projects that
are pulled are held until the pull machine starts them, and get what is to be pushed when they are given out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import Assign
from evermirror.core.fleet.events import CloneHastened, CommandGiven
from evermirror.core.watch.course import MOST, later
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.errors import NotFound
from evermirror.model.messages import Failed, Progress, Refused, Report, Restored, Started, Synced, SyncNow
from evermirror.model.push import PushTo, TargetId
from evermirror.model.repo import RepoKey
from evermirror.model.task import SyncPhase, TaskId, TaskRecord, Trigger
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.tasks.submission import asked_of, command_of, is_sync
from evermirror.nodes.coordinator.tasks.task_book import TaskBook, TaskCommand
from evermirror.nodes.coordinator.tasks.task_giving_up import GivingUp, is_gone
from evermirror.nodes.coordinator.tasks.task_lost import is_worn_out, take_back
from evermirror.nodes.coordinator.tasks.task_pulls import Asides, NoPulls, Pulls
from evermirror.nodes.coordinator.tasks.task_searches import Searches, misses_commit
from evermirror.nodes.coordinator.tasks.task_waits import PATIENCE_S, Patience, Waiters

ROUTE_GAP_S = 0.1  # between two looks at what rests: those that wake meanwhile go out together
TOGETHER = 1_000  # tasks that are gone through before others have their turn
WAIT_MAX_S = 300.0  # the longest that one request may wait for a task


class Tasks:
    """All tasks that are not ended. ``pulls`` is asked for those of projects."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        fleet: Callable[[], Fleet],
        clock: Callable[[], float],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._fleet = fleet
        self._clock = clock
        self._book = TaskBook()
        self._patience = Patience(patience_s, clock)
        self._searches = Searches(clock)
        self._making: dict[RepoKey, asyncio.Event] = {}  # set when the task that is being stored is there
        self._pending: dict[RepoKey, TaskRecord] = {}  # the newest of a repo; no look of it is known
        self._progress: dict[TaskId, Progress] = {}
        self._waiters = Waiters()
        self._routed_at = 0.0
        self.pulls: Pulls = NoPulls()
        self._asides = Asides(self._book, lambda: self.pulls)
        self._giving_up = GivingUp(store, recorder, clock, self._book, self._gave_up)

    # In

    async def resume(self) -> tuple[TaskRecord, ...]:
        """What a stop or crash left unfinished is to be done; returns all of it, oldest first."""
        tasks = await self._store.unfinished_tasks()
        for task in tasks:
            self._enter(task, held=is_sync(task) and self.pulls.is_project(task.repo))
        return tasks

    def _enter(self, task: TaskRecord, *, held: bool = False, in_turn: bool = False) -> None:
        self._book.add(command_of(task), held=held, trigger=task.trigger, in_turn=in_turn)
        self._patience.entered(task)
        self._searches.entered(task)

    async def create(
        self, key: RepoKey, trigger: Trigger, *, user: str, params: Mapping[str, object]
    ) -> TaskRecord:
        """Stored, and in the book; ``give`` it."""
        task = await self._store.create_task(key, trigger, user=user, params=params)
        self._enter(task, in_turn=is_sync(task))
        return task

    @property
    def moment(self) -> int:
        """How many tasks were given out so far: who asks now may join what is given out later."""
        return self._book.gives

    async def create_or_join(
        self,
        key: RepoKey,
        trigger: Trigger,
        *,
        user: str,
        params: Mapping[str, object],
        asked: int | None = None,
    ) -> tuple[TaskRecord, bool]:
        """A sync, and whether it is new: one that asks for the same and has not begun is enough for both.
        Those who come while one is being stored wait for it, so that many at once share it too.
        ``asked``: the moment at which it was asked for."""
        asked = self.moment if asked is None else asked
        while (making := self._making.get(key)) is not None:
            await making.wait()
        task = self.joinable(key, params, asked)
        if task is not None:
            self.join(task, params)
            return task, False
        self._making[key] = made = asyncio.Event()
        try:
            with self.room(key, params):
                task = self._pending[key] = await self.create(key, trigger, user=user, params=params)
        finally:
            del self._making[key]
            made.set()
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
            self._enter(task, in_turn=True)
            self._pending[task.repo] = task
        for task in made:
            await self.give(task)
        return joined, made

    async def create_apart(
        self, keys: Sequence[RepoKey], trigger: Trigger, *, user: str, params: Mapping[str, object]
    ) -> Sequence[TaskRecord]:
        """Syncs of many repos at once, stored; each is held until ``start``, and nobody else joins it."""
        made = await self._store.create_tasks(keys, trigger, user=user, params=params) if keys else ()
        for task in made:
            self._enter(task, held=True)
        return made

    async def force(self, tasks: Iterable[TaskRecord]) -> tuple[TaskRecord, ...]:
        """Those of the tasks that nobody was given yet look at everything anew; returns them."""
        held = [task for task in tasks if self._book.is_held(task.id)]
        forced = await self._store.change_params({t.id: {**asked_of(t), "force": True} for t in held})
        for task in forced:
            self._book.change(command_of(task))
            if (pending := self._pending.get(task.repo)) is not None and pending.id == task.id:
                self._pending[task.repo] = task
        return forced

    def joinable(
        self, key: RepoKey, params: Mapping[str, object], asked: int | None = None
    ) -> TaskRecord | None:
        """A sync that asks for the same, and that nobody had when this was ``asked``: who has one may have
        looked before somebody's push (ADR 2). Or one that looks for the same commit until it is there."""
        task, asked = self._pending.get(key), self.moment if asked is None else asked
        if task is not None and asked_of(task) == params and self._book.is_fresh(task.id, asked):
            return task
        return self._searches.same(key, params)

    def join(self, task: TaskRecord, params: Mapping[str, object]) -> None:
        """Somebody else is content with it. A search looks at once, and as long as they wait too."""
        self._searches.joined(task.id, params)
        if self._book.hasten(task.id):
            self._asides.woke([task.id])

    def room(self, key: RepoKey, params: Mapping[str, object]) -> AbstractContextManager[None]:
        """While a task that asks for this is made; ``Unavailable`` where there are too many of its kind."""
        return self._searches.room(key, params)

    def hold(self, task: TaskRecord) -> None:
        """A sync of a project, which is stored: until ``start``."""
        self._enter(task, held=True, in_turn=True)
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
            self._searches.left(key)

    # To those who do them

    async def give(self, task: TaskRecord) -> None:
        """At once, where somebody can do it."""
        command = command_of(task)
        if self._book.waits(task.id):
            await self._give_out(command)

    async def route(self) -> None:
        """Every task that waits goes to its repo's primary, if there is one; those of the silent wait
        again. What waited too long is over."""
        now = self._clock()
        self._routed_at = now
        self._asides.woke(self._book.wake(now))
        take_back(self._book, self._fleet().machine)
        machine = self._fleet().machine
        await self._giving_up.gone([c for c in self._book.waiting_commands() if is_gone(machine, c)])
        await self._giving_up.worn_out()
        for passed, command in enumerate(self._book.waiting_commands(), 1):
            if not is_gone(machine, command):
                await self._give_out(command)
            if passed % TOGETHER == 0:
                await asyncio.sleep(0)
        self._asides.step(machine, now)
        await self._giving_up.late(machine, self.pulls, self._patience, self._searches, now)

    def pause_s(self, longest_s: float) -> float:
        """Until there is something to route again, as far as is known."""
        at = self._book.next_wake()
        soon = longest_s if at is None else max(at, self._routed_at + ROUTE_GAP_S) - self._clock()
        return min(max(0.0, soon), longest_s)

    async def _give_out(self, command: TaskCommand) -> None:
        """To the repo's primary, if there is one whose word counts; refused where the repo left the catalog.
        While a round of it runs for others, it waits here: whoever comes by then joins it."""
        machine = self._fleet().machine
        repo = machine.repo(command.key)
        if repo is None or repo.removed:
            await self._giving_up.gone([command])
        elif repo.primary is None and any(copy.state is CopyState.PLANNED for copy in repo.copies):
            await self._fleet().tell(CloneHastened(command.key))
        elif (
            repo.primary is not None
            and machine.speaks_for(command.key, repo.primary)
            and not self._book.waits_its_turn(command)
        ):
            command = self._completed(command)
            self._book.given(command, repo.primary)
            if self._fleet().about(repo.primary) is not None:
                self._patience.given(command.task_id)
            await self._fleet().tell(CommandGiven(repo.primary, command))

    def _completed(self, command: TaskCommand, *, early: bool = False) -> TaskCommand:
        if not isinstance(command, SyncNow):
            return command
        return self.pulls.completed(replace(command, early=early))

    def _gave_up(self, report: Refused) -> None:
        self.pulls.reported(report)
        self.reported(report)

    def behind(self, worker: WorkerId, assign: Assign) -> list[TaskCommand]:
        """What waited for one of these repos to be given to somebody."""
        if not self._book.waiting:
            return []
        keys = {item.key for item in assign.items if item.primary}
        waiting = [command for command in self._book.waiting_commands() if command.key in keys]
        able = [command for command in waiting if not is_worn_out(self._book, command)]
        commands = [self._completed(command, early=True) for command in able]
        for command in commands:
            self._book.given(command, worker)
            self._patience.given(command.task_id)
        return commands

    def undelivered(self, command: object) -> None:
        self._book.undelivered(command)

    def began_anew(self, worker: WorkerId) -> None:
        self._book.began_anew(worker)

    # What comes of them

    def reported(self, report: Report) -> bool:
        """It is in the store: whoever waits for it is told. Whether others have their turn now."""
        if isinstance(report, Started | Synced | Restored | Failed | Refused):
            pending = self._pending.get(report.key)
            if pending is not None and pending.id in report.task_ids:
                del self._pending[report.key]
        if isinstance(report, Started):
            for task_id in filter(self._book.rests, report.task_ids):  # it is over by now, and in vain
                self._asides.rests(task_id)
        if isinstance(report, Synced | Restored | Failed | Refused):
            for task_id in report.task_ids:
                self._progress.pop(task_id, None)
                self._book.ended(task_id)
                self._patience.given(task_id)
                self._searches.ended(task_id)
                self._waiters.ended(task_id)
            return self._book.has_next(report.key)
        return False

    def disbelieved(self, worker: WorkerId, report: Report) -> bool:
        """It may not speak of the repo any more; whether others do now what it did."""
        if isinstance(report, Started | Synced | Restored | Failed | Refused):
            return self._book.take_from(worker, report.task_ids)
        return False

    def counting(self, worker: WorkerId, report: Report) -> Report:
        """Without the tasks that ended badly with one who is not to do them any more: they go on with who
        is."""
        if isinstance(report, Started):
            self._book.began(report.task_ids, worker)
        if not isinstance(report, Synced | Failed | Refused) or not _went_wrong(report):
            return report
        repo = self._fleet().machine.repo(report.key)
        elsewhere = repo is not None and not repo.removed and repo.primary not in (None, worker)
        own = tuple(i for i in report.task_ids if not self._book.disowned(i, worker))
        if elsewhere:
            for task_id in own:
                self._book.take_back(task_id)
            own = ()
        if isinstance(report, Refused) and misses_commit(report):
            own = tuple(i for i in own if not self._looks_again(report.key, i))
            return self._searches.given_up(replace(report, task_ids=own))
        return replace(report, task_ids=own)

    def _looks_again(self, key: RepoKey, task_id: TaskId) -> bool:
        """For a commit that is not there yet, while there is time."""
        if self._book.rests(task_id):
            return True  # told a second time
        at = self._searches.next_look(task_id)
        if at is None:
            return False
        self._book.rest(task_id, at)
        self._asides.rests(task_id)
        self._progress[task_id] = Progress(key, (task_id,), SyncPhase.SEARCHING.value, None, 0, self._clock())
        return True

    def about(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are not ended, and about this repo."""
        return self._book.about(key, ids)

    def triggers_of(self, ids: Collection[TaskId]) -> frozenset[Trigger]:
        """Why those of the tasks that are not ended were asked for."""
        return self._book.triggers(ids)

    def pushes_of(self, ids: Iterable[TaskId]) -> dict[TargetId, PushTo]:
        """What those who were given these tasks were told to push."""
        commands = (self._book.command(i) for i in ids)
        return {to.target: to for c in commands if isinstance(c, SyncNow) for to in c.push}

    def passing(self, worker: WorkerId, progress: Progress) -> tuple[Progress, ...]:
        """As far as it is about what the worker was given to do, and does still: nothing, or one."""
        own = self._book.doing(worker, progress.key, progress.task_ids)
        for task_id in own:
            before = self._progress.get(task_id)
            percent = later(before.percent if before is not None else None, progress.percent)
            percent = min(MOST, percent) if percent is not None else None
            self._progress[task_id] = replace(progress, percent=percent)
        return (replace(progress, task_ids=own),) if own else ()

    async def get(self, task_id: TaskId) -> TaskRecord:
        task = await self._store.get_task(task_id)
        if task is None:
            raise NotFound(f"no task {task_id}", hint="Task ids come from POST /api/tasks")
        progress = self._progress.get(task_id)
        if progress is None or task.status.ended:
            return task
        return replace(task, progress_percent=progress.percent, progress_phase=progress.phase)

    async def wait(self, task_id: TaskId, timeout_s: float) -> TaskRecord:
        """The task at its end, or as it is after that time. ``Unavailable`` where we stop before."""
        async with self._waiters.until_end(task_id, min(timeout_s, WAIT_MAX_S)) as waiter:
            await self._recorder.flush()
            if not (await self.get(task_id)).status.ended:
                await waiter.wait()
        task = await self.get(task_id)
        if not task.status.ended:
            self._waiters.check_open(task_id)
        return task

    def stop_waiting(self) -> None:
        """We stop: nobody is kept waiting for what only comes after the next start."""
        self._waiters.close()


def _went_wrong(report: Synced | Failed | Refused) -> bool:
    return not isinstance(report, Synced) or any(push.failure is not None for push in report.pushes)
