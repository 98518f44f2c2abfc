"""Looks at repos that hooks tell of: tasks, stored before the hook is answered, and given out in their time.

    ask: Spacing says NOW, LATER ──▶ tasks, one transaction ──▶ answered ──▶ NOW is given out
                                                                 LATER is held until Spacing says so
    reports: begun, found something or not ──▶ Spacing ──▶ looks again, by tasks of their own

A hook that waits for a later look has its task in the store: after a restart it is given out at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from evermirror.core.hooks.spacing import Spacing, Verdict
from evermirror.edge.store.outcomes import moved
from evermirror.model.failure import FailureError
from evermirror.model.messages import Failed, Refused, Report, Started, Synced
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.coordinator.tasks.submission import sync_params
from evermirror.nodes.coordinator.tasks.tasks import Tasks
from evermirror.nodes.service import TaskParams

log = structlog.get_logger(__name__)

SLEEP_MAX_S = 60.0
STARTING_MAX = 1_000  # batches of tasks that wait to be given out
ROUND_S = 0.02  # between two goes through what is due: looks that wait for their turn go out together
AGAIN_USER = "webhook"  # who asks for a look that no hook led to at once
_PARAMS = sync_params(TaskParams())


class HookLooks:
    """``ask`` and ``started``; ``heard`` what workers report; ``run`` beside."""

    def __init__(
        self,
        tasks: Tasks,
        pulling: Pulling,
        is_ours: Callable[[RepoKey], bool],
        clock: Callable[[], float],
    ) -> None:
        self._tasks = tasks
        self._pulling = pulling
        self._is_ours = is_ours
        self._clock = clock
        self._spacing = Spacing()
        self._newest: dict[RepoKey, TaskId] = {}  # whose end was not heard
        self._later: dict[RepoKey, TaskRecord] = {}  # held until due
        self._storing: dict[RepoKey, bool] = {}  # to be held, and not in the store yet; whether it is due
        self._given: asyncio.Queue[Sequence[TaskRecord]] = asyncio.Queue(STARTING_MAX)
        self._pulled: asyncio.Queue[Sequence[TaskRecord]] = asyncio.Queue(STARTING_MAX)
        self._poke = asyncio.Event()

    async def ask(self, wishes: Mapping[RepoKey, str]) -> tuple[Mapping[RepoKey, Verdict], list[TaskRecord]]:
        """What becomes of a hook about each repo, and the tasks to be started; by whom it was told. All is
        stored when this returns; ``FailureError``: nothing is, and the next hook is the first."""
        now = self._clock()
        verdicts = {key: self._verdict(key, now) for key in wishes}
        new = [key for key, verdict in verdicts.items() if verdict is not Verdict.MERGED]
        self._storing = {key: False for key in new if verdicts[key] is Verdict.LATER}
        try:
            made = await self._stored({key: wishes[key] for key in new})
        except BaseException:
            for key in new:
                self._spacing.forget(key)
            raise
        finally:
            storing, self._storing = self._storing, {}
        begin: list[TaskRecord] = []
        for task in made:
            if storing.get(task.repo, True):
                self._newest[task.repo] = task.id
                begin.append(task)
            else:
                self._later[task.repo] = task
        self._poke.set()
        return verdicts, begin

    def _verdict(self, key: RepoKey, now: float) -> Verdict:
        newest = self._newest.get(key)
        if newest is not None and not self._tasks.about(key, [newest]):  # it ended, and no worker told so
            del self._newest[key]
            self._spacing.look_ended(key, False, now)
        return self._spacing.hook(key, now)

    async def _stored(self, wishes: Mapping[RepoKey, str]) -> list[TaskRecord]:
        by_user: dict[str, list[RepoKey]] = defaultdict(list)
        for key, user in wishes.items():
            by_user[user].append(key)
        made: list[TaskRecord] = []
        for user, keys in by_user.items():
            made += await self._tasks.create_apart(keys, Trigger.WEBHOOK, user=user, params=_PARAMS)
        return made

    async def start(self, tasks: Iterable[TaskRecord]) -> None:
        """Given out beside; those of projects by the pull machine, which starts them at once. Who calls waits
        only where very many do already: they are stored, and nobody's next hook has to wait for them."""
        given: list[TaskRecord] = []
        pulled: list[TaskRecord] = []
        for task in tasks:
            (pulled if self._pulling.is_project(task.repo) else given).append(task)
        if given:
            await self._given.put(given)
        if pulled:
            await self._pulled.put(pulled)

    async def _start_all(self) -> None:
        while True:
            for task in await self._given.get():
                await self._start(task)

    async def _start_all_pulled(self) -> None:
        while True:
            tasks = await self._pulled.get()
            await self._pulling.changing.finished(self._start_pulled(tasks))

    async def _start_pulled(self, tasks: Sequence[TaskRecord]) -> None:
        async with self._pulling.changing.patient:
            ours = [task for task in tasks if self._pulling.is_project(task.repo)]
            await self._pulling.tell(*self._pulling.opened(ours))
        for task in tasks:
            if task not in ours:
                await self._start(task)

    async def _start(self, task: TaskRecord) -> None:
        """What cannot be given out now waits among the tasks, which are gone through every second."""
        with contextlib.suppress(FailureError):
            await self._tasks.start(task.id)

    # What comes of them

    def heard(self, report: Report) -> None:
        """A report is in the store."""
        if not isinstance(report, Started | Synced | Failed | Refused):
            return
        key, now = report.key, self._clock()
        is_newest = self._newest.get(key) in report.task_ids
        if is_newest and not isinstance(report, Started):
            del self._newest[key]
        if key not in self._spacing:
            return
        if is_newest:
            self._spacing.look_began(key, now)
            if not isinstance(report, Started):
                self._spacing.look_ended(key, _found(report), now)
        elif _found(report):
            self._spacing.look_ended(key, True, now)
        self._poke.set()

    async def run(self) -> None:
        """Until cancelled. What was not given out by then is, after the start."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_all())
            group.create_task(self._start_all())
            group.create_task(self._start_all_pulled())

    async def _look_all(self) -> None:
        while True:
            self._poke.clear()
            await self._look_due(self._spacing.due(self._clock()))
            await asyncio.sleep(ROUND_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._sleep_s()):
                    await self._poke.wait()

    def _sleep_s(self) -> float:
        wake_at = self._spacing.next_wake()
        return SLEEP_MAX_S if wake_at is None else max(0.0, min(SLEEP_MAX_S, wake_at - self._clock()))

    async def _look_due(self, due: Sequence[RepoKey]) -> None:
        keys = [key for key in due if key not in self._storing]
        self._storing.update((key, True) for key in due if key in self._storing)  # begun once it is stored
        held = [task for key in keys if (task := self._later.pop(key, None)) is not None]
        ours = {task.repo for task in held}
        again = [key for key in keys if key not in ours and self._is_ours(key)]
        try:
            made = await self._stored(dict.fromkeys(again, AGAIN_USER))
        except FailureError as error:
            log.warning("looks again after hooks left out", looks=len(again), reason=error.failure.message)
            made = []
            for key in again:
                self._spacing.forget(key)
        tasks = [*held, *made]
        self._newest.update((task.repo, task.id) for task in tasks)
        await self.start(tasks)


def _found(report: Started | Synced | Failed | Refused) -> bool:
    return isinstance(report, Synced) and moved(report)
