"""Days of pull mirroring in rough weather: outages, overload, crashes of the coordinator, and people at work.

Every promise is checked at every step. After the rough days come calm ones, in which everything must settle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from evermirror.core.pull.cron import next_time
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
from evermirror.core.pull.machine import PullMachine
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import INTERVALS_S, Project, Strategy
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskStatus, Trigger
from evermirror.sim.pull import world
from evermirror.sim.pull.worker import Report, Source, Sync, Worker
from evermirror.sim.pull.world import DAY_S, HOUR_S, Coordinator, OpenRow, PullWorld
from tests.support.sim.pull.checkers import Checkers
from tests.support.sim.pull.truth import Broken, Truth

CRON_S = 60.0
TARGET_ILLS = (FailureKind.PERMISSION_DENIED, FailureKind.NETWORK_TIMEOUT, FailureKind.CONFLICT)


@dataclass(frozen=True, slots=True)
class Climate(world.Climate):
    """How a day goes. Gaps are means, in seconds; 0: never."""

    calm_days: float = 0.75  # longer than a peak and the longest interval
    metrics: bool = True  # the source tells its CPU
    cron: str | None = None  # the scheduler's, CRON_S apart
    cpu_max: float | None = 0.15  # the aim for 200 projects
    store_fails: float = 0.001
    ill_gap_s: float = 1 * HOUR_S
    outage_gap_s: float = 12 * HOUR_S
    outage_s: float = 0.7 * HOUR_S
    overload_gap_s: float = 10 * HOUR_S
    overload_s: float = 1.5 * HOUR_S
    overload_after_s: float = 0.0  # not before
    target_ill_gap_s: float = 4 * HOUR_S
    looks_a_minute: float = inf
    crash_gap_s: float = 0.0
    manual_gap_s: float = 0.0
    batch_gap_s: float = 0.0
    change_gap_s: float = 0.0  # a person changes a project, or the strategy


class LimitingSource(Source):
    """Beyond so many looks a minute it refuses, and says for how long."""

    def limit(self, looks_a_minute: float) -> None:
        self._looks_a_minute = looks_a_minute
        self._looks: deque[float] = deque()

    def refuses(self, now: float) -> float | None:
        """Counts a look; seconds to wait where there were too many."""
        while self._looks and self._looks[0] <= now - 60.0:
            self._looks.popleft()
        if len(self._looks) >= self._looks_a_minute:
            return 120.0
        self._looks.append(now)
        return None


class LimitedWorker(Worker):
    def _look(self, sync: Sync) -> None:
        wait_s = self.source.refuses(self.time.now)
        if wait_s is None:
            super()._look(sync)
        else:
            failure = Failure(FailureKind.RATE_LIMITED, "too many requests", retry_after_s=wait_s)
            self.time.after(0.05, self._end, sync, TaskStatus.FAILED, failure, False)


class RoughCoordinator(Coordinator):
    """Crashes and comes back. While it is away reports wait at the worker."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._truth = world.truth
        self._boot = 0
        self._outbox: list[Report] = []
        self._doomed = False

    # Its life

    def start(self) -> None:
        """Everything that the store has is told, then what the worker had to say."""
        truth, store, now = self._truth, self._truth.store, self._time.now
        self._boot += 1
        truth.away, truth.booted_at, truth.load = False, now, None
        self.machine = self._world.make_machine()
        self._world.checkers.booted(now)
        self._wake_at = None
        for project in list(store.projects.values()):
            self.handle(ProjectPut(project))
        reports, self._outbox = self._outbox, []
        for report in reports:
            self.hear(report)
        for row in list(store.open.values()):
            self.handle(TaskOpened(row.key, row.id, row.trigger))
            if row.id in store.begun:
                self.handle(TaskBegan(row.key, row.id, store.begun[row.id]))
        self.handle(Woke())

    def crash(self) -> None:
        """At once, or when it next has something to start, which is then stored and not started."""
        if self._truth.away:
            return
        self._doomed = self._world.chance.random() < 0.5
        if not self._doomed:
            self._die()

    def _die(self) -> None:
        self._doomed, self._truth.away = False, True
        self._time.after(self._world.chance.expovariate(1 / 60.0), self.start)

    # What it is told

    def hear(self, report: Report) -> None:
        if self._truth.away:
            self._outbox.append(report)
        else:
            super().hear(report)

    def handle(self, event: Event) -> None:
        """What people, the cron and the source say is lost while it is away."""
        if not self._truth.away:
            super().handle(event)

    def set_strategy(self, strategy: Strategy) -> None:
        self._world.strategy = strategy
        self.handle(StrategySet(strategy))

    def trigger(self, key: RepoKey, trigger: Trigger) -> None:
        """A person asks; where it has a task already, that is the answer."""
        store = self._truth.store
        project = store.projects[key]
        taken = any(row.key == key for row in store.open.values())
        if self._truth.away or taken or not project.config.enabled:
            return
        row = store.add_task(OpenTask(project, project.failures, trigger), self._time.now)
        self.handle(TaskOpened(key, row.id, trigger))

    # Decisions

    def _start_all(self, starts: list[StartTask], now: float) -> None:
        if self._doomed and starts:
            self._die()
        else:
            super()._start_all(starts, now)

    def _later(self, delay_s: float, do: Callable[..., None], *args: object) -> None:
        self._time.after(delay_s, self._if_alive, self._boot, do, args)

    def _if_alive(self, boot: int, do: Callable[..., None], args: tuple[object, ...]) -> None:
        if boot == self._boot and not self._truth.away:
            do(*args)


class World(PullWorld):
    """``machine_type`` is there so that faults can be planted."""

    def __init__(self, climate: Climate, seed: int, machine_type: type[PullMachine] = PullMachine) -> None:
        self._machine_type = machine_type
        self._overloaded_until = 0.0
        super().__init__(climate, seed)

    def make_source(self) -> LimitingSource:
        source = LimitingSource(self.chance, self.began_at, self.climate.others)
        source.limit(self.climate.looks_a_minute)
        return source

    def make_worker(self) -> LimitedWorker:
        return LimitedWorker(self.time, self.chance, self.source, self.report, self.climate.push_fails)

    def make_coordinator(self) -> RoughCoordinator:
        climate = self.climate
        self.truth = Truth(self)
        self.checkers = Checkers(
            self.truth,
            self.began_at,
            warm_up_s=HOUR_S * climate.fresh,
            cron_s=0.0 if climate.cron is None else CRON_S,
            cpu_max=climate.cpu_max,
        )
        return RoughCoordinator(self)

    def make_machine(self) -> PullMachine:
        return self._machine_type(self.climate.settings, self.zone, self.strategy)

    # The checkers look on

    def opened(self, row: OpenRow, order: OpenTask, before: Project, now: float) -> None:
        self.checkers.opened(row, order, before, now)

    def started(self, order: StartTask, now: float) -> None:
        self.checkers.started(order, now)

    def decided(self, event: Event, before: Project | None, decision: PullDecision, now: float) -> None:
        if decision.opens or isinstance(event, TaskEnded | LoadSeen | Woke):
            load = self.coordinator.machine.view(now).load
            self.truth.load = load.level if load is not None else None
        self.checkers.decided(event, before, decision, now)

    def ticked(self, now: float) -> None:
        self.checkers.tick(now)

    def broken(self, text: str) -> None:
        raise Broken(text)

    # What goes on

    def run(self) -> None:
        """Rough days, then calm ones in which everything must settle; raises Broken."""
        self.play()
        self._calm_down()
        self.time.run(self.time.now + self.climate.calm_days * DAY_S)
        self._settled()

    def _begin(self) -> None:
        super()._begin()
        if self.climate.cron is not None:
            self._cron(self.climate.cron)

    def _happenings(self) -> list[tuple[float, float, Callable[[], None]]]:
        climate = self.climate
        return [
            (DAY_S / self._pushes_a_day(), 0.0, self._push),
            (climate.outage_gap_s, 0.0, self._outage),
            (climate.overload_gap_s, climate.overload_after_s, self._overload),
            (climate.ill_gap_s, 0.0, self._fall_ill),
            (climate.target_ill_gap_s, 0.0, self._target_falls_ill),
            (climate.crash_gap_s, 0.0, self.coordinator.crash),
            (climate.manual_gap_s, 0.0, self._trigger_one),
            (climate.batch_gap_s, 0.0, self._trigger_some),
            (climate.change_gap_s, 0.0, self._change),
        ]

    def _others(self, now: float) -> float:
        return 0.93 if now < self._overloaded_until else super()._others(now)

    def _measure(self) -> None:
        if self.climate.metrics:
            super()._measure()

    def _cron(self, expression: str) -> None:
        self.coordinator.handle(Woke(cron=True))
        at = next_time(expression, self.time.now, self.zone)
        if at is not None:
            self.time.at(at, self._cron, expression)

    def _outage(self) -> None:
        self.go_down(self.time.now + self.chance.expovariate(1 / self.climate.outage_s))

    def _overload(self) -> None:
        self._overloaded_until = self.time.now + self.chance.expovariate(1 / self.climate.overload_s)

    def _target_falls_ill(self) -> None:
        held = self.chance.choice(list(self.worker.targets.values()))
        held.ill = self.chance.choice(TARGET_ILLS)
        self.time.after(self.chance.expovariate(1 / self.climate.ill_s), held.cure)

    # People

    def _trigger_one(self) -> None:
        self.coordinator.trigger(self._any().key, self.chance.choice((Trigger.MANUAL, Trigger.API)))

    def _trigger_some(self) -> None:
        for project in self.chance.sample(self._all(), min(20, len(self._all()))):
            self.coordinator.trigger(project.key, Trigger.MANUAL_BATCH)

    def _change(self) -> None:
        project, chance = self._any(), self.chance
        due_at = max(project.next_sync_at, self.time.now)  # so far it was not late: another rule held for it
        match chance.randrange(3):
            case 0:
                priority = chance.choice(list(Priority))
                changed = replace(project.config, priority=priority, interval_s=INTERVALS_S[priority])
                self.coordinator.put(replace(project, config=changed, next_sync_at=due_at))
            case 1 if not project.paused:
                changed = replace(project.config, enabled=not project.config.enabled)
                self.coordinator.put(replace(project, config=changed, next_sync_at=due_at))
            case _:
                self.coordinator.set_strategy(self._other_strategy())

    def _other_strategy(self) -> Strategy:
        chance = self.chance
        return replace(
            self.strategy,
            max_concurrent=chance.randint(2, 8),
            peak_avoidance=chance.random() < 0.7,
            peak_start=chance.randrange(24),
            peak_end=chance.randrange(24),
            off_peak_max_concurrent=chance.randint(4, 8),
            adaptive=chance.random() < 0.7,
            enabled=chance.random() < 0.8,
        )

    # The end

    def _calm_down(self) -> None:
        """From now on all is well, and nobody pushes."""
        self.rough = False
        self._overloaded_until = self.source.down_until = 0.0
        for upstream in self.worker.upstreams.values():
            upstream.cure()
        for held in self.worker.targets.values():
            held.cure()
        if self.truth.away:
            self.time.after(HOUR_S, self._calm_down)
            return
        if not self.strategy.enabled:
            self.coordinator.set_strategy(replace(self.strategy, enabled=True))
        for project in self._all():
            if project.paused or project.failures or any(t.failures or t.paused for t in project.targets):
                self._heal(project)

    def _settled(self) -> None:
        """Whatever was pushed has arrived everywhere."""
        self.checkers.alarms.settled()
        for project in self._all():
            if not project.config.enabled:
                continue
            version = self.worker.upstreams[project.key].version
            there = {
                f"target {t.url}": self.worker.targets[project.key, t.id].version for t in project.targets
            }
            there["mirror"] = self.worker.mirrors.get(project.key, 0)
            for where, held in there.items():
                if held != version:
                    raise Broken(
                        f"{project.key}: {where} has version {held}, the source {version}: {project}"
                    )
