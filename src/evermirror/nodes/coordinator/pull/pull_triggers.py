"""Syncs that people ask for by hand: of one project at once, of many within the limit.

| the project   | one by hand               | in a batch               |
|---------------|---------------------------|--------------------------|
| runs          | refused, with its task    | counted, and left alone  |
| has a pending | that task, now at once    | that task                |
| is disabled   | refused: how to enable it | named                    |
| otherwise     | at once                   | as soon as there is room |

A pending task that does not force what is asked to be forced does so from then on; where a worker has it
already, there is a second one.

A repo that is not pulled by a configuration of its own is synced as any other: its worker has its own limits.
A batch is done in parts, between which others have their turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evermirror.edge.store.store import Store
from evermirror.errors import Conflict
from evermirror.model.pull import Project, Wait, Waiting
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from evermirror.nodes.coordinator.pull.pull_checks import check_enabled
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.coordinator.tasks.submission import asked_of, is_sync, sync_params
from evermirror.nodes.coordinator.tasks.tasks import Tasks
from evermirror.nodes.service import TaskParams

PART = 500  # repos of a batch in one turn


@dataclass(slots=True)
class Batch:
    """What became of a batch. ``already_pending`` of its tasks were there before; ``waits``: what each waits
    for that has not begun."""

    task_ids: list[TaskId] = field(default_factory=list)
    skipped_running: int = 0
    disabled: list[str] = field(default_factory=list)
    already_pending: int = 0
    waits: Counter[Wait] = field(default_factory=Counter)

    def waiting(self) -> tuple[Waiting, ...]:
        return tuple(Waiting(wait, count) for wait, count in self.waits.most_common())

    def made(self, tasks: Collection[TaskRecord]) -> None:
        self.task_ids += [task.id for task in tasks]

    def found(self, tasks: Collection[TaskRecord]) -> None:
        self.made(tasks)
        self.already_pending += len(tasks)


@dataclass(slots=True)
class _Open:
    """Syncs of a repo that are not ended."""

    running: TaskRecord | None = None
    pending: list[TaskRecord] = field(default_factory=list)

    def answer(self, *, force: bool) -> TaskRecord | None:
        """One that waits and does all that is asked."""
        return next((task for task in self.pending if not force or asked_of(task).get("force")), None)


class Triggers:
    """By hand, and in batches."""

    def __init__(self, store: Store, pulling: Pulling, tasks: Tasks, clock: Callable[[], float]) -> None:
        self._store = store
        self._pulling = pulling
        self._tasks = tasks
        self._clock = clock

    async def one(
        self, record: RepoRecord, *, force: bool, trigger: Trigger, actor: str
    ) -> tuple[TaskRecord, bool]:
        """The task, and whether it is new."""
        params = sync_params(TaskParams(force=force))
        async with self._pulling.changing:
            project = self._pulling.project(record.key)
            _check_enabled(record, project)
            there = (await self._open([record])).get(record.key, _Open())
            if there.running is not None:
                raise Conflict(
                    f"{record.alias or record.key} is being synced by task {there.running.id}",
                    hint="Wait for its end, or look at it",
                )
            pending = there.answer(force=force)
            if pending is None and there.pending:
                pending = next(iter(await self._tasks.force(there.pending[:1])), None)
            if pending is not None:
                if project is not None:
                    await self._pulling.hurry(pending, trigger)
                return pending, False
            if project is not None:
                tasks = await self._pulling.open([project], trigger, user=actor, params=params)
                if tasks:
                    return tasks[0], True
        joined, made = await self._tasks.create_many([record.key], trigger, user=actor, params=params)
        return (joined or made)[0], not joined

    async def many(
        self, records: Sequence[RepoRecord], priority: Priority | None, *, force: bool, actor: str
    ) -> Batch:
        """These, and the enabled projects of the class where one is given."""
        done = Batch()
        for start in range(0, len(records), PART):
            await self._part(records[start : start + PART], done, force=force, actor=actor)
        if priority is not None:
            named = {record.key for record in records}
            more = [key for key in self._of_class(priority) if key not in named]
            for start in range(0, len(more), PART):
                found = await self._store.find_repos(more[start : start + PART])
                await self._part(list(found.values()), done, force=force, actor=actor)
        return done

    def _of_class(self, priority: Priority) -> Iterator[RepoKey]:
        for project in self._pulling.projects():
            if project.config.priority is priority and project.config.enabled:
                yield project.key

    async def _part(self, records: Sequence[RepoRecord], done: Batch, *, force: bool, actor: str) -> None:
        params = sync_params(TaskParams(force=force))
        alone: list[RepoKey] = []
        async with self._pulling.changing:
            pulled: list[Project] = []
            there = await self._open(records)
            for record in records:
                project = self._pulling.project(record.key)
                open_ = there.get(record.key, _Open())
                if not record.enabled or (project is not None and not project.config.enabled):
                    done.disabled.append(record.alias or record.key)
                elif open_.running is not None:
                    done.skipped_running += 1
                elif (pending := open_.answer(force=force)) is not None:
                    done.found([pending])
                elif project is not None:
                    pulled.append(project)
                else:
                    alone.append(record.key)
            weaker = [task for p in pulled if p.key in there for task in there[p.key].pending[:1]]
            forced = await self._tasks.force(weaker)
            waiting = {task.repo for task in forced}
            pulled = [project for project in pulled if project.key not in waiting]
            tasks = await self._pulling.open(pulled, Trigger.MANUAL_BATCH, user=actor, params=params)
            done.found(forced)
            done.made(tasks)
            now, machine = self._clock(), self._pulling.machine
            done.waits.update(wait for r in records if (wait := machine.wait(r.key, now)) is not None)
        joined, made = await self._tasks.create_many(alone, Trigger.MANUAL_BATCH, user=actor, params=params)
        done.found(joined)
        done.made(made)

    async def _open(self, records: Sequence[RepoRecord]) -> Mapping[RepoKey, _Open]:
        """Of those that have any."""
        found: dict[RepoKey, _Open] = {}
        for task in await self._store.open_tasks_of(self._may_have_some(records)):
            if is_sync(task):
                open_ = found.setdefault(task.repo, _Open())
                if task.status is TaskStatus.PENDING:
                    open_.pending.append(task)
                elif open_.running is None:
                    open_.running = task
        return found

    def _may_have_some(self, records: Sequence[RepoRecord]) -> Iterator[RepoKey]:
        for record in records:
            project = self._pulling.project(record.key)
            if project is None or project.task is not None:
                yield record.key


def _check_enabled(record: RepoRecord, project: Project | None) -> None:
    if not record.enabled:
        raise Conflict(
            f"{record.alias or record.key} is disabled", hint='Enable it: additional_info {"enabled": true}'
        )
    if project is not None:
        check_enabled(project)
