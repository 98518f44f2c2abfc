"""The pull machine in a process: events in, what is decided into the store, and only then done.

    reports, wakes, people ──▶ PullMachine.handle ──▶ saves, tasks opened with projects ──▶ starts, alerts

One event is handled after the other, and each decision is stored before the next is made (``changing``): so
a person's change and the machine's own never overwrite each other. Projects are in memory, all of them.

    load: projects from the store ──▶ the catalog is read (``follow``) ──▶ resume: what a stop left open, what
    ended and was not applied ──▶ run
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from evermirror.core.pull.events import (
    Event,
    LoadSeen,
    OpenTask,
    ProjectPut,
    ProjectRemoved,
    PullDecision,
    StartTask,
    StrategySet,
    TaskOpened,
    TaskSetAside,
    TaskTakenUp,
    Woke,
)
from evermirror.core.pull.layers import by_policy, followed, has_credentials, placed_by, waits_for_a_person
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.outcome import standing_alerts
from evermirror.core.watch.kinds import PROJECT_KINDS
from evermirror.edge.store.pull import PutProjects
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import ProjectSaved
from evermirror.model.failure import FailureError
from evermirror.model.figures import Pressure
from evermirror.model.messages import Failed, Refused, Report, Synced, SyncNow
from evermirror.model.pull import Load, Project, RetryPolicy, Strategy, TargetSpec
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.pull.pull_checks import check_enabled
from evermirror.nodes.coordinator.pull.pull_figures import PullFigures, PullTotals
from evermirror.nodes.coordinator.pull.pull_hearing import ended, events_of, reopened, understood
from evermirror.nodes.coordinator.pull.pull_memory import Remembered
from evermirror.nodes.coordinator.pull.pull_opening import Opening
from evermirror.nodes.coordinator.pull.pull_turn import Turn, to_the_end
from evermirror.nodes.coordinator.tasks.submission import is_sync
from evermirror.nodes.coordinator.tasks.tasks import Tasks

log = structlog.get_logger(__name__)

SLEEP_MAX_S = 60.0  # a clock that was set back must not keep the schedule asleep for long
SLEEP_MIN_S = 0.02  # between two looks at what is due

Lines = Mapping[RepoKey, tuple[TargetSpec, ...]]
"""The targets that the catalog's lines name, of those repos that have any."""


class Pulling:
    """All projects. Implements ``Pulls`` for the tasks."""

    def __init__(
        self,
        machine: PullMachine,
        *,
        store: Store,
        recorder: Recorder,
        tasks: Tasks,
        alerts: AlertSink,
        clock: Callable[[], float],
    ) -> None:
        self._machine = machine
        self._store = store
        self._recorder = recorder
        self._tasks = tasks
        self._alerts = alerts
        self._clock = clock
        self._figures = PullFigures(clock, machine.settings.demote_after)
        self._loaded: dict[RepoKey, Project] | None = {}  # None: the machine has them
        self._remembered = Remembered(store)
        self._opening = Opening(store, self._remembered, clock)
        self._inbox: deque[Event] = deque()
        self._applied: set[TaskId] = set()  # ends that were taken from the store at the start
        self._poke = asyncio.Event()
        self._stale = False  # the machine may have taken in half an event
        self.place: Callable[[Iterable[RepoKey]], Awaitable[None]] = _placed  # of repos whose tasks begin
        self.changing = Turn()  # whoever changes the catalog as well takes its lock first
        tasks.pulls = self

    # What is known

    @property
    def machine(self) -> PullMachine:
        """To be read only; it is changed through this object."""
        return self._machine

    @property
    def retry_policy(self) -> RetryPolicy:
        return self._machine.settings.retry

    def project(self, key: RepoKey) -> Project | None:
        return self._machine.project(key) if self._loaded is None else self._loaded.get(key)

    def is_project(self, key: RepoKey) -> bool:
        return self.project(key) is not None

    def decides(self, command: SyncNow) -> bool:
        return self._machine.has_task(command.key, command.task_id)

    def projects(self) -> Iterator[Project]:
        return iter(self._machine.projects() if self._loaded is None else self._loaded.values())

    def syncing(self) -> set[RepoKey]:
        """Those whose tasks run."""
        return set(self._machine.running())

    def totals(self) -> PullTotals:
        """Since the start, and now."""
        return self._figures.totals(self._machine.view(self._clock()))

    def pressure(self) -> Pressure:
        """Now, and since this was last asked: once for each note of the course."""
        return self._figures.pressure(self._machine.view(self._clock()))

    def see_load(self, load: Load) -> None:
        """Somebody outside knows how the source is doing."""
        self._hear(LoadSeen(load))

    def completed(self, command: SyncNow) -> SyncNow:
        """With what is at its targets by now, and the project's priority where none was asked for."""
        project = self.project(command.key)
        if project is None:
            return replace(command, push=())
        chosen = {to.target for to in command.push}
        push = tuple(to for to in self._machine.push_of(command.key, self._clock()) if to.target in chosen)
        return replace(command, push=push, priority=command.priority or project.config.priority)

    def understood(self, report: Report, protocol: int) -> Report:
        """As far as it counts; ``protocol`` is what its worker speaks."""
        return understood(report, self.project, self._tasks.pushes_of, protocol)

    def has_credentials(self, key: RepoKey) -> bool:
        return has_credentials(self.project(key))

    def set_aside(self, command: SyncNow) -> None:
        self._hear(TaskSetAside(command.key, command.task_id))

    def taken_up(self, command: SyncNow) -> None:
        self._hear(TaskTakenUp(command.key, command.task_id))

    def waits_at_target(self, key: RepoKey) -> bool:
        """Whether something at a target needs a person's word."""
        return waits_for_a_person(self.project(key))

    # Life

    async def load(self) -> None:
        """Before anything else is asked."""
        loaded = await self._store.load_projects()
        self._loaded = {project.key: by_policy(project, self.retry_policy) for project in loaded}
        await self._remembered.load()

    async def resume(self, tasks: Iterable[TaskRecord]) -> None:
        """The machine takes over: the projects, and what a stop or crash left unfinished. ``tasks``: all that
        are open."""
        async with self.changing.patient:
            await self._resume(tasks)
        self._poke.set()

    async def _resume(self, tasks: Iterable[TaskRecord]) -> None:
        strategy = await self._store.get_strategy()
        ended_before = await self._store.ended_pull_tasks()
        # Nothing is waited for from here until the machine has them: workers report meanwhile.
        loaded, self._loaded = self._loaded or {}, None
        events: list[Event] = [] if strategy is None else [StrategySet(strategy)]
        events += [ProjectPut(project) for project in loaded.values()]
        over = [task for task in ended_before if task.repo in loaded]
        told = {event.task_id for event in self._inbox if hasattr(event, "task_id")}
        events += [ended(task) for task in over if task.id not in told]
        self._applied = {task.id for task in over} - told
        for task in tasks:
            if task.repo in loaded and is_sync(task):
                events += reopened(task)
        self._alerts.stand(PROJECT_KINDS, standing_alerts(loaded.values(), self._machine.settings))
        await self._take([*events, Woke()])
        log.info("projects loaded", projects=len(loaded), ends_applied=len(self._applied))

    async def _reload(self) -> None:
        """A new machine, with what the store has: as after a restart."""
        async with self.changing.patient:
            tasks = await self._store.unfinished_tasks()
            await self.load()
            self._machine, self._stale = self._machine.anew(), False
            await self._resume(tasks)

    async def run(self) -> None:
        """Hears what happens, and wakes when something is due, until cancelled. After an event that could not
        be handled to its end, the machine is made anew from the store before the next one: ends of tasks that
        it had not applied are applied then, so only what that one event meant may be lost."""
        while True:
            if self._stale:
                await self._reload()
            wake_at = await self._until_something()
            async with self.changing.patient:
                events = list(self._inbox)
                self._inbox.clear()
                if wake_at is not None and wake_at <= self._clock():
                    events.append(Woke())
                await self._take(events)

    def wake(self) -> None:
        """The scheduler's cron has come."""
        self._hear(Woke(cron=True))

    def _hear(self, event: Event) -> None:
        self._inbox.append(event)
        self._poke.set()

    async def _until_something(self) -> float | None:
        """Returns when the machine wanted to be woken. Asked again afterwards, the machine may no longer
        say so: the window that was to end is another one by then."""
        wake_at = self._machine.next_wake(self._clock())
        sleep_s = SLEEP_MAX_S if wake_at is None else min(SLEEP_MAX_S, wake_at - self._clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(SLEEP_MIN_S, sleep_s)):
                await self._poke.wait()
        self._poke.clear()
        return wake_at

    # What the fleet tells

    def reported(self, report: Report) -> None:
        """A report is in the store."""
        if isinstance(report, Synced | Failed | Refused) and self.is_project(report.key):
            self._figures.reported(report)
        told = tuple(self._tasks.pushes_of(report.task_ids).values()) if isinstance(report, Synced) else ()
        for event in events_of(report, self.is_project, told):
            if getattr(event, "task_id", None) not in self._applied:
                self._hear(event)

    # What people and the catalog change

    async def tell(self, *events: Event) -> None:
        """Handled at once; ``changing`` is held."""
        await self._take(events)

    async def put(self, projects: Sequence[Project], write: PutProjects | None = None) -> tuple[Project, ...]:
        """Stored (by ``write``), known to the machine; ``changing`` is held. Returns those in the catalog."""
        if not projects:
            return ()
        stored = await (write or self._store.put_projects)(projects)
        self._remembered.taken(project.key for project in stored)
        if self._loaded is None:
            await self._take([ProjectPut(project) for project in stored])
        else:
            self._loaded.update({project.key: project for project in stored})
        return stored

    async def remove(self, keys: Collection[RepoKey]) -> None:
        """No longer projects; ``changing`` is held. What was held for one goes its way without a push."""
        if not keys:
            return
        await self._store.remove_projects(list(keys))
        self._remembered.taken(keys)
        await self._drop(keys)

    async def _drop(self, keys: Collection[RepoKey]) -> None:
        if self._loaded is None:
            await self._take([ProjectRemoved(key) for key in keys])
        else:
            for key in keys:
                self._loaded.pop(key, None)
        for key in keys:
            self._figures.forget(key)
            await self._tasks.start_all(key)

    @to_the_end
    async def left(self, keys: Iterable[RepoKey]) -> None:
        """These repos left the catalog; their projects stay in the store, for the day they come back."""
        ours = [key for key in keys if self.is_project(key)]
        if ours:
            self._remembered.add(ours)
            async with self.changing.patient:
                await self._drop(ours)

    @to_the_end
    async def forget(self, key: RepoKey) -> None:
        """Its repo is added anew, and not back: it is no project before somebody makes it one."""
        if key in self._remembered:
            async with self.changing:
                await self.remove([key])

    @to_the_end
    async def follow(
        self,
        records: Iterable[RepoRecord],
        lines: Lines | None = None,
        overruled: Mapping[RepoKey, Priority] | None = None,
    ) -> set[RepoKey]:
        """These repos are new or changed, and so may be the targets that their lines name (``lines``; None:
        those are as before), and priorities in them that a person overruled. Returns those that the fleet
        must hear of: pulled now and not before, or the other way; or another kind of worker is needed."""
        concerned = [r for r in records if self._concerns(r.key, lines or {})]
        if not concerned:
            return set()
        async with self.changing:
            now, put, gone = self._clock(), list[Project](), list[RepoKey]()
            turned: set[RepoKey] = set()
            back = await self._remembered.find(record.key for record in concerned)
            for record in concerned:
                known = self.project(record.key)
                before = known or back.get(record.key)
                said = before.catalog if lines is None and before is not None else ()
                said = said if lines is None else lines.get(record.key, ())
                over = (overruled or {}).get(record.key)
                after = followed(record, said, before, now, over, self.retry_policy)
                if after is None and before is not None:
                    gone.append(record.key)
                elif after is not None and after != known:
                    put.append(after)
                if placed_by(known) != placed_by(after):
                    turned.add(record.key)
            await self.put(put)
            await self.remove(gone)
        return turned

    def _concerns(self, key: RepoKey, lines: Lines) -> bool:
        return key in lines or self.is_project(key) or key in self._remembered

    async def put_strategy(self, strategy: Strategy) -> None:
        """Stored, and in force; ``changing`` is held."""
        await self._take([StrategySet(await self._store.put_strategy(strategy))])

    # Tasks that somebody asks for

    async def open(
        self,
        projects: Sequence[Project],
        trigger: Trigger,
        *,
        user: str,
        params: Mapping[str, object],
    ) -> tuple[TaskRecord, ...]:
        """A task for each, stored with its project; ``changing`` is held."""
        wanted, tasks = {project.key: project for project in projects}, list[TaskRecord]()
        for _ in range(2):  # what was changed meanwhile is opened as it is then
            opens = [OpenTask(p, p.failures, trigger, user, params) for p in wanted.values()]
            made, instead = await self._opening.open(opens)
            tasks += made
            await self._take([*self.opened(made), *instead])
            wanted = {e.project.key: e.project for e in instead if isinstance(e, ProjectPut)}
            if not wanted:
                break
        return tuple(tasks)

    async def hurry(self, task: TaskRecord, trigger: Trigger) -> None:
        """Somebody else asks for a task that waits, and does not want to; ``changing`` is held."""
        await self._take([TaskOpened(task.repo, task.id, trigger)])

    @to_the_end
    async def submit(
        self, key: RepoKey, trigger: Trigger, *, user: str, params: Mapping[str, object]
    ) -> TaskRecord | None:
        """A sync of a project: one that asks for the same and has not begun is enough for both. None: it is
        none. ``Conflict`` where it is disabled."""
        if not self.is_project(key):
            return None
        async with self.changing:
            project = self.project(key)
            if project is None:
                return None
            check_enabled(project)
            task = self._tasks.joinable(key, params)
            if task is not None:
                self._tasks.join(task, params)
                await self.hurry(task, trigger)
                return task
            with self._tasks.room(key, params):
                return next(iter(await self.open([project], trigger, user=user, params=params)), None)

    # Inside

    async def _take(self, events: Iterable[Event]) -> None:
        """What is decided is stored, in order, and then done. Where that fails, all is reloaded."""
        try:
            await self._take_each(events)
        except Exception:
            self._stale = True
            self._poke.set()
            raise

    async def _take_each(self, events: Iterable[Event]) -> None:
        waiting, starts, saves = deque(events), list[StartTask](), dict[RepoKey, Project]()
        while waiting:
            decision = self._machine.handle(event := waiting.popleft(), self._clock())
            self._figures.took(event, decision)
            saves.update((project.key, project) for project in decision.saves)
            starts += decision.starts
            self._tell(decision)
            if decision.opens:
                await self._save(saves)
                waiting.extendleft(reversed(await self._open(decision.opens)))
        await self._save(saves)
        if starts:
            await self.place(start.key for start in starts)
        for start in starts:
            await self._tasks.start(start.task_id, start.push)

    async def _save(self, projects: dict[RepoKey, Project]) -> None:
        if projects:
            await self._recorder.put(*(ProjectSaved(project) for project in projects.values()))
            await self._recorder.flush()
            projects.clear()

    async def _open(self, opens: Sequence[OpenTask]) -> list[Event]:
        """The answer to each: its task, or that there is none."""
        try:
            tasks, instead = await self._opening.open(opens)
        except FailureError as error:
            log.warning("tasks of the schedule not opened", tasks=len(opens), reason=error.failure.message)
            return self._opening.later(one.project for one in opens)
        return [*self.opened(tasks), *instead]

    def opened(self, tasks: Iterable[TaskRecord]) -> list[Event]:
        events: list[Event] = []
        for task in tasks:
            self._tasks.hold(task)
            self._figures.opened(task)
            events.append(TaskOpened(task.repo, task.id, task.trigger))
        return events

    def _tell(self, decision: PullDecision) -> None:
        for alert in decision.alerts:
            self._alerts.told(alert)
        for line in decision.logs:
            log.info(line)


async def _placed(keys: Iterable[RepoKey]) -> None:
    """Where no fleet is led, all are."""
