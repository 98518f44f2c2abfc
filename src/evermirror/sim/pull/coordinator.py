"""The coordinator's part in pull mirroring, simulated: drives the machine, stores, crashes, comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Protocol

from evermirror.core.pull.events import (
    Event,
    LoadSeen,
    OpenTask,
    ProjectPut,
    PullDecision,
    StartTask,
    StrategySet,
    TaskBegan,
    TaskEnded,
    TaskOpened,
    Woke,
)
from evermirror.core.pull.views import PullView
from evermirror.model.pull import Project, Strategy
from evermirror.model.repo import RepoKey
from evermirror.model.task import Trigger
from evermirror.sim.clock import VirtualTime
from evermirror.sim.pull.store import OpenRow
from evermirror.sim.pull.truth import Broken, Truth
from evermirror.sim.pull.worker import Report

AGAIN_S = 10.0  # until a project is tried again whose task the store did not take
SPINS_MAX = 1_000  # decisions without a moment passing, on a machine that asks to be woken at once


class Machine(Protocol):
    """What decides; the real one, or one with a fault planted in it."""

    def handle(self, event: Event, now: float) -> PullDecision: ...

    def next_wake(self, now: float) -> float | None: ...

    def view(self, now: float) -> PullView: ...


class Watcher(Protocol):
    """Who looks on: checks that raise ``Broken``, or somebody who counts."""

    def booted(self, now: float) -> None: ...

    def opened(self, row: OpenRow, order: OpenTask, before: Project, now: float) -> None: ...

    def started(self, order: StartTask, now: float) -> None: ...

    def decided(self, event: Event, before: Project | None, decision: PullDecision, now: float) -> None: ...

    def tick(self, now: float) -> None: ...


class Coordinator:
    """``start_task`` gives an order to the worker. While it is away reports wait at the worker."""

    def __init__(
        self,
        truth: Truth,
        time: VirtualTime,
        chance: Random,
        watcher: Watcher,
        make_machine: Callable[[Strategy], Machine],
        start_task: Callable[[StartTask], None],
        store_fails: float,
    ) -> None:
        self._truth = truth
        self._time = time
        self._chance = chance
        self._watcher = watcher
        self._make_machine = make_machine
        self._start_task = start_task
        self._store_fails = store_fails
        self._boot = 0
        self._outbox: list[Report] = []
        self._doomed = False
        self._wake_at: float | None = None
        self._spins = (0.0, 0)
        self.events = 0
        self.log: list[str] = []

    # Its life

    def start(self) -> None:
        """Everything that the store has is told, then what the worker had to say."""
        truth, now = self._truth, self._time.now
        self._boot += 1
        truth.away, truth.booted_at, truth.load = False, now, None
        self.machine = self._make_machine(truth.strategy)
        self._watcher.booted(now)
        self._wake_at = None
        for project in list(truth.store.projects.values()):
            self.handle(ProjectPut(project))
        reports, self._outbox = self._outbox, []
        for report in reports:
            self.hear(report)
        for row in list(truth.store.open.values()):
            self.handle(TaskOpened(row.key, row.id, row.trigger))
            if row.id in truth.store.begun:
                self.handle(TaskBegan(row.key, row.id, truth.store.begun[row.id]))
        self.handle(Woke())

    def crash(self) -> None:
        """At once, or when it next has something to start, which is then stored and not started."""
        if self._truth.away:
            return
        self._doomed = self._chance.random() < 0.5
        if not self._doomed:
            self._die()

    def _die(self) -> None:
        self._doomed, self._truth.away = False, True
        self._time.after(self._chance.expovariate(1 / 60.0), self.start)

    # What it is told

    def hear(self, report: Report) -> None:
        if self._truth.away:
            self._outbox.append(report)
        else:
            if isinstance(report, TaskEnded):
                self._truth.store.end(report)
            elif isinstance(report, TaskBegan):
                self._truth.store.begin(report)
            self.handle(report)

    def set_strategy(self, strategy: Strategy) -> None:
        self._truth.strategy = strategy
        if not self._truth.away:
            self.handle(StrategySet(strategy))

    def put(self, project: Project) -> None:
        """A person changed it."""
        self._truth.store.save(project)
        if not self._truth.away:
            self.handle(ProjectPut(project))

    def trigger(self, key: RepoKey, trigger: Trigger) -> None:
        """A person asks; where it has a task already, that is the answer."""
        store = self._truth.store
        project = store.projects[key]
        if self._truth.away or store.open_of(key) is not None or not project.config.enabled:
            return
        row = store.add_task(OpenTask(project, project.failures, trigger), self._time.now)
        self.handle(TaskOpened(key, row.id, trigger))

    def see_load(self, seen: LoadSeen) -> None:
        if not self._truth.away:
            self.handle(seen)

    def cron(self) -> None:
        if not self._truth.away:
            self.handle(Woke(cron=True))

    # Decisions: first the store, then the rest; what was opened is answered before anything else is heard

    def handle(self, event: Event) -> None:
        now, waiting, starts = self._time.now, deque([event]), list[StartTask]()
        while waiting:
            decision = self._decide(waiting.popleft(), now)
            waiting.extendleft(reversed([self._open(order, now) for order in decision.opens]))
            starts += decision.starts
        if self._doomed and starts:
            self._die()
            return
        for start in starts:
            self._watcher.started(start, now)
            self._start_task(start)
        self._ask_to_be_woken(now)

    def _decide(self, event: Event, now: float) -> PullDecision:
        truth = self._truth
        self.events += 1
        before = truth.store.projects.get(event.key) if isinstance(event, TaskEnded) else None
        decision = self.machine.handle(event, now)
        if decision.opens or isinstance(event, TaskEnded | LoadSeen | Woke):
            load = self.machine.view(now).load
            truth.load = load.level if load is not None else None
        for project in decision.saves:
            truth.store.save(project)
        self.log += decision.logs
        self._watcher.decided(event, before, decision, now)
        return decision

    def _open(self, order: OpenTask, now: float) -> Event:
        if self._chance.random() < self._store_fails:
            later = replace(order.project, next_sync_at=now + AGAIN_S)
            self._truth.store.save(later)
            return ProjectPut(later)
        before = self._truth.store.projects[order.project.key]
        row = self._truth.store.add_task(order, now)
        self._watcher.opened(row, order, before, now)
        return TaskOpened(row.key, row.id, row.trigger)

    def _later(self, delay_s: float, do: Callable[..., None], *args: object) -> None:
        self._time.after(delay_s, self._if_alive, self._boot, do, args)

    def _if_alive(self, boot: int, do: Callable[..., None], args: tuple[object, ...]) -> None:
        if boot == self._boot and not self._truth.away:
            do(*args)

    # Waking

    def _ask_to_be_woken(self, now: float) -> None:
        wake_at = self.machine.next_wake(now)
        if wake_at is None or wake_at == self._wake_at:
            return
        self._wake_at = wake_at
        at, spins = self._spins
        self._spins = (now, spins + 1 if at == now else 1)
        if self._spins[1] > SPINS_MAX:
            raise Broken(f"the machine wants to be woken at once, again and again, at {now}")
        self._later(max(0.0, wake_at - now), self._wake, wake_at)

    def _wake(self, wake_at: float) -> None:
        if wake_at == self._wake_at:
            self._wake_at = None
            self.handle(Woke())
