"""Everybody in simulated days of pull mirroring: projects, their source and targets, people, the coordinator.

The machine that decides is the real one; the store, the source and the workers are simulated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from zoneinfo import ZoneInfo

from evermirror.core.pull.events import (
    Event,
    LoadSeen,
    OpenTask,
    ProjectPut,
    PullDecision,
    StartTask,
    TaskBegan,
    TaskEnded,
    TaskOpened,
    Woke,
)
from evermirror.core.pull.load import cpu_load
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import FailureKind
from evermirror.model.pull import INTERVALS_S, Project, PullConfig, Strategy, Target
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus, Trigger
from evermirror.sim.clock import VirtualTime
from evermirror.sim.pull.worker import Held, Report, Source, Upstream, Worker, digest_of

DAY_S = 86_400.0
HOUR_S = 3_600.0
TICK_S = 60.0
AGAIN_S = 10.0  # until a project is tried again whose task the store did not take
SPINS_MAX = 1_000  # decisions without a moment passing, on a machine that asks to be woken at once
HOST = Host("source.example")
PROJECTS = {Priority.CRITICAL: 10, Priority.HIGH: 30, Priority.NORMAL: 100, Priority.LOW: 60}
PUSHES_A_DAY = {Priority.CRITICAL: 20.0, Priority.HIGH: 10.0, Priority.NORMAL: 3.0, Priority.LOW: 0.3}
TARGET_HOSTS = (  # each as likely as the others
    ("target.example",),
    ("target.example",),
    ("second.example",),
    ("target.example", "second.example"),
    (),
)
OFFICE = range(9, 19)  # hours in which the source is busy with others

AIM = Strategy(peak_avoidance=True, adaptive=True)  # what is recommended for 200 projects
SOURCE_ILLS = (
    FailureKind.NETWORK_TIMEOUT,
    FailureKind.UNKNOWN,
    FailureKind.AUTH_FAILED,
    FailureKind.CONFLICT,
)


@dataclass(frozen=True, slots=True)
class Climate:
    """How the days go. Gaps are means, in seconds; 0: never."""

    strategy: Strategy = AIM
    settings: PullSettings = field(default_factory=PullSettings)
    projects: Mapping[Priority, int] = field(default_factory=lambda: PROJECTS)
    zone: str = "Asia/Shanghai"
    day: str = "2026-06-01"  # that begins at midnight of the zone
    days: float = 1.0
    fresh: bool = False  # nothing was ever synced when it begins
    others: float = 0.2  # share of the source that others keep busy at night; in office hours twice that
    push_fails: float = 0.01
    store_fails: float = 0.0
    ill_gap_s: float = 6 * HOUR_S  # a project fails for a while
    ill_s: float = 1.5 * HOUR_S
    reset_s: float = 2 * HOUR_S  # until a person resets what was paused


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A task that has not ended."""

    id: TaskId
    key: RepoKey
    trigger: Trigger
    opened_at: float


@dataclass(slots=True)
class Store:
    """What the coordinator wrote."""

    projects: dict[RepoKey, Project] = field(default_factory=dict)
    open: dict[TaskId, OpenRow] = field(default_factory=dict)
    begun: dict[TaskId, float] = field(default_factory=dict)  # of those that are open
    tasks: int = 0  # ever opened

    def save(self, project: Project) -> None:
        self.projects[project.key] = project

    def add_task(self, order: OpenTask, now: float) -> OpenRow:
        """The task and its project, at once."""
        self.tasks += 1
        row = OpenRow(TaskId(self.tasks), order.project.key, order.trigger, now)
        self.open[row.id] = row
        self.projects[row.key] = replace(order.project, task=row.id)
        return row

    def begin(self, event: TaskBegan) -> None:
        if event.task_id in self.open:
            self.begun[event.task_id] = event.at

    def end(self, event: TaskEnded) -> OpenRow | None:
        self.begun.pop(event.task_id, None)
        return self.open.pop(event.task_id, None)


class Coordinator:
    """First the store, then the rest; what was opened is answered before anything else is heard."""

    def __init__(self, world: PullWorld) -> None:
        self._world = world
        self._time = world.time
        self._wake_at: float | None = None
        self._spins = (0.0, 0)
        self.events = 0
        self.log: list[str] = []

    def start(self) -> None:
        """Everything that the store has is told."""
        self.machine = self._world.make_machine()
        self._wake_at = None
        for project in list(self._world.store.projects.values()):
            self.handle(ProjectPut(project))
        self.handle(Woke())

    # What it is told

    def hear(self, report: Report) -> None:
        if isinstance(report, TaskEnded):
            self._world.store.end(report)
        elif isinstance(report, TaskBegan):
            self._world.store.begin(report)
        self.handle(report)

    def put(self, project: Project) -> None:
        """A person changed it."""
        self._world.store.save(project)
        self.handle(ProjectPut(project))

    # Decisions

    def handle(self, event: Event) -> None:
        now, waiting, starts = self._time.now, deque([event]), list[StartTask]()
        while waiting:
            decision = self._decide(waiting.popleft(), now)
            waiting.extendleft(reversed([self._open(order, now) for order in decision.opens]))
            starts += decision.starts
        self._start_all(starts, now)

    def _start_all(self, starts: list[StartTask], now: float) -> None:
        for start in starts:
            self._world.started(start, now)
            self._world.worker.start(start)
        self._ask_to_be_woken(now)

    def _decide(self, event: Event, now: float) -> PullDecision:
        store = self._world.store
        self.events += 1
        before = store.projects.get(event.key) if isinstance(event, TaskEnded) else None
        decision = self.machine.handle(event, now)
        for project in decision.saves:
            store.save(project)
        self.log += decision.logs
        self._world.decided(event, before, decision, now)
        return decision

    def _open(self, order: OpenTask, now: float) -> Event:
        store = self._world.store
        if self._world.chance.random() < self._world.climate.store_fails:
            later = replace(order.project, next_sync_at=now + AGAIN_S)
            store.save(later)
            return ProjectPut(later)
        before = store.projects[order.project.key]
        row = store.add_task(order, now)
        self._world.opened(row, order, before, now)
        return TaskOpened(row.key, row.id, row.trigger)

    # Waking

    def _ask_to_be_woken(self, now: float) -> None:
        wake_at = self.machine.next_wake(now)
        if wake_at is None or wake_at == self._wake_at:
            return
        self._wake_at = wake_at
        at, spins = self._spins
        self._spins = (now, spins + 1 if at == now else 1)
        if self._spins[1] > SPINS_MAX:
            self._world.broken(f"the machine wants to be woken at once, again and again, at {now}")
        self._later(max(0.0, wake_at - now), self._wake, wake_at)

    def _later(self, delay_s: float, do: Callable[..., None], *args: object) -> None:
        self._time.after(delay_s, do, *args)

    def _wake(self, wake_at: float) -> None:
        if wake_at == self._wake_at:
            self._wake_at = None
            self.handle(Woke())


class PullWorld:
    """``play`` lets the days of a climate go by."""

    def __init__(self, climate: Climate, seed: int) -> None:
        self.climate = climate
        self.strategy = climate.strategy
        self.zone = ZoneInfo(climate.zone)
        self.chance = Random(seed)  # noqa: S311 - a day that can be played again
        self.time = VirtualTime()
        self.began_at = datetime.fromisoformat(climate.day).replace(tzinfo=self.zone).timestamp()
        self.time.now = self.began_at
        self.source = self.make_source()
        self.store = Store()
        self.worker = self.make_worker()
        self.coordinator = self.make_coordinator()
        self.rough = True  # False: nothing new happens to projects and source
        self._make_projects()

    # What it is made of

    def make_source(self) -> Source:
        return Source(self.chance, self.began_at, self.climate.others)

    def make_worker(self) -> Worker:
        return Worker(self.time, self.chance, self.source, self.report, self.climate.push_fails)

    def make_coordinator(self) -> Coordinator:
        return Coordinator(self)

    def make_machine(self) -> PullMachine:
        return PullMachine(self.climate.settings, self.zone, self.strategy)

    def _make_projects(self) -> None:
        numbers = iter(range(sum(self.climate.projects.values())))
        for priority, count in self.climate.projects.items():
            for _ in range(count):
                self._make_project(next(numbers), priority)

    def _make_project(self, number: int, priority: Priority) -> None:
        chance, fresh = self.chance, self.climate.fresh
        key, interval_s = RepoKey(f"{HOST}/group/project{number}"), INTERVALS_S[priority]
        put = None if fresh else digest_of(key, 1)
        hosts = chance.choice(TARGET_HOSTS)
        targets = tuple(
            Target(TargetId(n), f"https://{host}/group/project{number}", put=put)
            for n, host in enumerate(hosts, 1)
        )
        synced_at = None if fresh else self.began_at - chance.uniform(0.0, interval_s)
        self.store.save(
            Project(
                key,
                f"group/project{number}",
                HOST,
                PullConfig(priority, interval_s),
                targets,
                last_sync_at=synced_at,
                next_sync_at=self.began_at if synced_at is None else synced_at + interval_s,
                last_status=None if fresh else TaskStatus.SKIPPED,
            )
        )
        self.worker.upstreams[key] = Upstream()
        if not fresh:
            self.worker.mirrors[key] = 1
        for target in targets:
            self.worker.targets[key, target.id] = Held(0 if fresh else 1)

    # What looks on may override

    def report(self, report: Report) -> None:
        """Of the worker, to the coordinator."""
        self.coordinator.hear(report)

    def opened(self, row: OpenRow, order: OpenTask, before: Project, now: float) -> None:
        """A task of a project that was like ``before``."""

    def started(self, order: StartTask, now: float) -> None:
        """A task is given to the worker."""

    def decided(self, event: Event, before: Project | None, decision: PullDecision, now: float) -> None:
        """``before``: the project that ended, as it was; the store has it as it is."""

    def ticked(self, now: float) -> None:
        """A minute is over."""

    def broken(self, text: str) -> None:
        raise AssertionError(text)

    # What goes on

    def play(self) -> None:
        self.coordinator.start()
        self._begin()
        for gap_s, after_s, happen in self._happenings():
            if gap_s:
                self.time.after(after_s, self._repeat, gap_s, happen)
        self.time.run(self.began_at + self.climate.days * DAY_S)

    def _begin(self) -> None:
        self._tick()

    def _happenings(self) -> list[tuple[float, float, Callable[[], None]]]:
        """What comes again and again: the mean gap, not before, what happens."""
        return [
            (DAY_S / self._pushes_a_day(), 0.0, self._push),
            (self.climate.ill_gap_s, 0.0, self._fall_ill),
        ]

    def _pushes_a_day(self) -> float:
        return sum(PUSHES_A_DAY[p] * count for p, count in self.climate.projects.items())

    def _repeat(self, gap_s: float, happen: Callable[[], None]) -> None:
        def again() -> None:
            if self.rough:
                happen()
                self.time.after(self.chance.expovariate(1.0 / gap_s), again)

        self.time.after(self.chance.expovariate(1.0 / gap_s), again)

    def _tick(self) -> None:
        now = self.time.now
        self.time.after(TICK_S, self._tick)
        self.source.others = self._others(now)
        self._measure()
        if int((now - self.began_at) / TICK_S) % 30 == 0:
            for project in self._all():
                paused = project.paused or any(target.paused for target in project.targets)
                if paused and now > (project.last_failure_at or 0.0) + self.climate.reset_s:
                    self._heal(project)
        self.ticked(now)

    def _others(self, now: float) -> float:
        """The share of the source that they keep busy."""
        return self.climate.others * (2.0 if self.hour(now) in OFFICE else 1.0)

    def _measure(self) -> None:
        """The source tells its CPU."""
        self.coordinator.handle(LoadSeen(cpu_load(100.0 * self.source.cpu())))

    def hour(self, now: float) -> int:
        return datetime.fromtimestamp(now, self.zone).hour

    def _all(self) -> list[Project]:
        return list(self.store.projects.values())

    def _any(self) -> Project:
        return self.chance.choice(self._all())

    def _push(self) -> None:
        classes = self.climate.projects
        weights = [PUSHES_A_DAY[p] * count for p, count in classes.items()]
        (priority,) = self.chance.choices(list(classes), weights)
        first = 0
        for each, count in classes.items():
            if each is priority:
                number = first + self.chance.randrange(count)
                self._pushed(RepoKey(f"{HOST}/group/project{number}"))
            first += count

    def _pushed(self, key: RepoKey) -> None:
        self.worker.upstreams[key].version += 1

    def go_down(self, until: float) -> None:
        """The source does not answer any more."""
        self.source.down_until = until

    def _fall_ill(self) -> None:
        upstream = self.worker.upstreams[self._any().key]
        upstream.ill = self.chance.choice(SOURCE_ILLS)
        self.time.after(self.chance.expovariate(1 / self.climate.ill_s), upstream.cure)

    def _heal(self, project: Project) -> None:
        """A person has looked at it, and lets it go on."""
        targets = tuple(replace(t, failures=0, not_before=0.0, paused="") for t in project.targets)
        config = replace(project.config, enabled=project.config.enabled or bool(project.paused))
        now = self.time.now
        self.coordinator.put(
            replace(
                project,
                config=config,
                targets=targets,
                failures=0,
                paused="",
                last_status=None,
                next_sync_at=now,
            )
        )
