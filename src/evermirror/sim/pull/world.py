"""Everybody in a simulated day of pull mirroring: 200 projects, their source, targets, people, weather."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from random import Random
from zoneinfo import ZoneInfo

from evermirror.core.pull.cron import next_time
from evermirror.core.pull.events import LoadSeen
from evermirror.core.pull.load import cpu_load
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import FailureKind
from evermirror.model.pull import INTERVALS_S, Project, PullConfig, Strategy, Target
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskStatus, Trigger
from evermirror.sim.clock import VirtualTime
from evermirror.sim.pull.checkers import Checkers
from evermirror.sim.pull.checks.punctual import TICK_S
from evermirror.sim.pull.coordinator import Coordinator, Machine, Watcher
from evermirror.sim.pull.source import Source
from evermirror.sim.pull.truth import Broken, Truth
from evermirror.sim.pull.worker import Held, Report, Upstream, Worker, digest_of

DAY_S = 86_400.0
HOUR_S = 3_600.0
CRON_S = 60.0
HOST = Host("source.example")
PROJECTS = {Priority.CRITICAL: 10, Priority.HIGH: 30, Priority.NORMAL: 100, Priority.LOW: 60}  # of seed 003
PUSHES_A_DAY = {Priority.CRITICAL: 20.0, Priority.HIGH: 10.0, Priority.NORMAL: 3.0, Priority.LOW: 0.3}
TARGET_HOSTS = (  # each as likely as the others
    ("target.example",),
    ("target.example",),
    ("second.example",),
    ("target.example", "second.example"),
    (),
)
OFFICE = range(9, 19)  # hours in which the source is busy with others

AIM = Strategy(peak_avoidance=True, adaptive=True)  # what seed 003 recommends for 200 projects
SOURCE_ILLS = (
    FailureKind.NETWORK_TIMEOUT,
    FailureKind.UNKNOWN,
    FailureKind.AUTH_FAILED,
    FailureKind.CONFLICT,
)
TARGET_ILLS = (FailureKind.PERMISSION_DENIED, FailureKind.NETWORK_TIMEOUT, FailureKind.CONFLICT)


@dataclass(frozen=True, slots=True)
class Climate:
    """How a day goes. Gaps are means, in seconds; 0: never."""

    strategy: Strategy = AIM
    settings: PullSettings = field(default_factory=PullSettings)
    projects: Mapping[Priority, int] = field(default_factory=lambda: PROJECTS)
    zone: str = "Asia/Shanghai"
    day: str = "2026-06-01"  # that begins at midnight of the zone
    days: float = 1.0
    calm_days: float = 0.75  # longer than a peak and the longest interval
    fresh: bool = False  # nothing was ever synced when it begins
    metrics: bool = True  # the source tells its CPU
    cron: str | None = None  # the scheduler's, CRON_S apart
    cpu_max: float | None = 0.15  # the aim of seed 003
    others: float = 0.2  # share of the source that others keep busy at night; in office hours twice that
    push_fails: float = 0.01
    store_fails: float = 0.001
    outage_gap_s: float = 12 * HOUR_S
    outage_s: float = 0.7 * HOUR_S
    overload_gap_s: float = 10 * HOUR_S
    overload_s: float = 1.5 * HOUR_S
    overload_after_s: float = 0.0  # not before
    ill_gap_s: float = 1 * HOUR_S  # a project fails for a while
    ill_s: float = 1.5 * HOUR_S
    target_ill_gap_s: float = 4 * HOUR_S
    looks_a_minute: float = inf
    crash_gap_s: float = 0.0
    manual_gap_s: float = 0.0
    batch_gap_s: float = 0.0
    change_gap_s: float = 0.0  # a person changes a project, or the strategy
    reset_s: float = 2 * HOUR_S  # until a person resets what was paused


class World:
    """``make_machine`` is there so that faults can be planted."""

    def __init__(self, climate: Climate, seed: int, make_machine: type[PullMachine] = PullMachine) -> None:
        self.climate = climate
        zone = ZoneInfo(climate.zone)
        self._chance = chance = Random(seed)  # noqa: S311 - a day that can be played again
        self.time = VirtualTime()
        self.began_at = self.time.now = datetime.fromisoformat(climate.day).replace(tzinfo=zone).timestamp()
        self.source = Source(chance, self.began_at, climate.others, looks_a_minute=climate.looks_a_minute)
        self.truth = Truth(climate.strategy, zone, climate.settings, self.source)
        self.checkers = Checkers(
            self.truth,
            self.began_at,
            warm_up_s=HOUR_S * climate.fresh,
            cron_s=0.0 if climate.cron is None else CRON_S,
            cpu_max=climate.cpu_max,
        )
        self._watcher = self._make_watcher()
        self.worker = Worker(self.time, chance, self.source, self._report, climate.push_fails)
        self.coordinator = Coordinator(
            self.truth,
            self.time,
            chance,
            self._watcher,
            lambda strategy: self._machine(make_machine, strategy),
            self.worker.start,
            climate.store_fails,
        )
        self._rough = True
        self._overloaded_until = 0.0
        self._make_projects()

    def _make_watcher(self) -> Watcher:
        return self.checkers

    def _machine(self, make: type[PullMachine], strategy: Strategy) -> Machine:
        return make(self.climate.settings, self.truth.zone, strategy)

    def _report(self, report: Report) -> None:
        self.coordinator.hear(report)

    def _make_projects(self) -> None:
        numbers = iter(range(sum(self.climate.projects.values())))
        for priority, count in self.climate.projects.items():
            for _ in range(count):
                self._make_project(next(numbers), priority)

    def _make_project(self, number: int, priority: Priority) -> None:
        chance, fresh = self._chance, self.climate.fresh
        key, interval_s = RepoKey(f"{HOST}/group/project{number}"), INTERVALS_S[priority]
        put = None if fresh else digest_of(key, 1)
        hosts = chance.choice(TARGET_HOSTS)
        targets = tuple(
            Target(TargetId(n), f"https://{host}/group/project{number}", put=put)
            for n, host in enumerate(hosts, 1)
        )
        synced_at = None if fresh else self.began_at - chance.uniform(0.0, interval_s)
        self.truth.store.save(
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

    # What goes on

    def run(self) -> None:
        """Rough days, then calm ones in which everything must settle; raises Broken."""
        self.play()
        self._calm_down()
        self.time.run(self.time.now + self.climate.calm_days * DAY_S)
        self._settled()

    def play(self) -> None:
        """The rough days alone."""
        climate = self.climate
        self.coordinator.start()
        self._tick()
        if climate.cron is not None:
            self._cron(climate.cron)
        pushes_a_day = sum(PUSHES_A_DAY[p] * count for p, count in climate.projects.items())
        for gap_s, happen in (
            (DAY_S / pushes_a_day, self._push),
            (climate.outage_gap_s, self._outage),
            (climate.overload_gap_s, self._overload),
            (climate.ill_gap_s, self._fall_ill),
            (climate.target_ill_gap_s, self._target_falls_ill),
            (climate.crash_gap_s, self.coordinator.crash),
            (climate.manual_gap_s, self._trigger_one),
            (climate.batch_gap_s, self._trigger_some),
            (climate.change_gap_s, self._change),
        ):
            if gap_s:
                after_s = climate.overload_after_s if happen == self._overload else 0.0
                self.time.after(after_s, self._repeat, gap_s, happen)
        self.time.run(self.began_at + climate.days * DAY_S)

    def _repeat(self, gap_s: float, happen: Callable[[], None]) -> None:
        def again() -> None:
            if self._rough:
                happen()
                self.time.after(self._chance.expovariate(1.0 / gap_s), again)

        self.time.after(self._chance.expovariate(1.0 / gap_s), again)

    def _tick(self) -> None:
        now = self.time.now
        self.time.after(TICK_S, self._tick)
        busy = self.climate.others * (2.0 if self.truth.hour(now) in OFFICE else 1.0)
        self.source.others = 0.93 if now < self._overloaded_until else busy
        if self.climate.metrics:
            self.coordinator.see_load(LoadSeen(cpu_load(100.0 * self.source.cpu())))
        if int((now - self.began_at) / TICK_S) % 30 == 0:
            for project in self._all():
                paused = project.paused or any(target.paused for target in project.targets)
                if paused and now > (project.last_failure_at or 0.0) + self.climate.reset_s:
                    self._heal(project)
        self._watcher.tick(now)

    def _cron(self, expression: str) -> None:
        self.coordinator.cron()
        at = next_time(expression, self.time.now, self.truth.zone)
        if at is not None:
            self.time.at(at, self._cron, expression)

    def _all(self) -> list[Project]:
        return list(self.truth.store.projects.values())

    def _any(self) -> Project:
        return self._chance.choice(self._all())

    def _push(self) -> None:
        classes = self.climate.projects
        weights = [PUSHES_A_DAY[p] * count for p, count in classes.items()]
        (priority,) = self._chance.choices(list(classes), weights)
        first = 0
        for each, count in classes.items():
            if each is priority:
                number = first + self._chance.randrange(count)
                self._pushed(RepoKey(f"{HOST}/group/project{number}"))
            first += count

    def _pushed(self, key: RepoKey) -> None:
        self.worker.upstreams[key].version += 1

    def _outage(self) -> None:
        self.go_down(self.time.now + self._chance.expovariate(1 / self.climate.outage_s))

    def go_down(self, until: float) -> None:
        """The source does not answer any more."""
        self.source.down_until = until

    def _overload(self) -> None:
        self._overloaded_until = self.time.now + self._chance.expovariate(1 / self.climate.overload_s)

    def _fall_ill(self) -> None:
        upstream = self.worker.upstreams[self._any().key]
        upstream.ill = self._chance.choice(SOURCE_ILLS)
        self.time.after(self._chance.expovariate(1 / self.climate.ill_s), upstream.cure)

    def _target_falls_ill(self) -> None:
        held = self._chance.choice(list(self.worker.targets.values()))
        held.ill = self._chance.choice(TARGET_ILLS)
        self.time.after(self._chance.expovariate(1 / self.climate.ill_s), held.cure)

    # People

    def _trigger_one(self) -> None:
        self.coordinator.trigger(self._any().key, self._chance.choice((Trigger.MANUAL, Trigger.API)))

    def _trigger_some(self) -> None:
        for project in self._chance.sample(self._all(), min(20, len(self._all()))):
            self.coordinator.trigger(project.key, Trigger.MANUAL_BATCH)

    def _change(self) -> None:
        project, chance = self._any(), self._chance
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
        chance = self._chance
        return replace(
            self.truth.strategy,
            max_concurrent=chance.randint(2, 8),
            peak_avoidance=chance.random() < 0.7,
            peak_start=chance.randrange(24),
            peak_end=chance.randrange(24),
            off_peak_max_concurrent=chance.randint(4, 8),
            adaptive=chance.random() < 0.7,
            enabled=chance.random() < 0.8,
        )

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

    # The end

    def _calm_down(self) -> None:
        """From now on all is well, and nobody pushes."""
        self._rough = False
        self._overloaded_until = self.source.down_until = 0.0
        for upstream in self.worker.upstreams.values():
            upstream.cure()
        for held in self.worker.targets.values():
            held.cure()
        if self.truth.away:
            self.time.after(HOUR_S, self._calm_down)
            return
        if not self.truth.strategy.enabled:
            self.coordinator.set_strategy(replace(self.truth.strategy, enabled=True))
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
