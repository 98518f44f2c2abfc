"""What a strategy would mean: days of pull mirroring, played without judging them, and their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evermirror.core.pull.events import Event, OpenTask, PullDecision, StartTask, TaskEnded
from evermirror.errors import UsageError
from evermirror.model.pull import CONCURRENT_MAX, Project, Strategy
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus
from evermirror.sim.pull.worker import Report
from evermirror.sim.pull.world import AIM, DAY_S, HOUR_S, PROJECTS, Climate, OpenRow, PullWorld

PROJECTS_MAX = 5_000
DAYS_MAX = 31.0
OUTAGE_AT_S = 12 * HOUR_S  # noon of the first day


@dataclass(frozen=True, slots=True)
class Study:
    """``outage_s``: the source is away for so long, once; 0: never."""

    strategy: Strategy = AIM
    projects: Mapping[Priority, int] = field(default_factory=lambda: PROJECTS)
    zone: str = "Asia/Shanghai"
    days: float = 1.0
    outage_s: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        total = sum(self.projects.values())
        if not 1 <= total <= PROJECTS_MAX or min(self.projects.values()) < 0:
            raise UsageError(f"{total} projects cannot be studied", hint=f"Name 1 to {PROJECTS_MAX}")
        if not 0 < self.days <= DAYS_MAX:
            raise UsageError(f"{self.days} days cannot be studied", hint=f"Name at most {DAYS_MAX:.0f}")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise UsageError(f"{self.zone!r} is not a time zone", hint="Such as Asia/Shanghai") from None
        if not 0 <= self.outage_s <= DAY_S:
            raise UsageError("an outage of more than a day cannot be studied", hint="Name a shorter one")
        figures = (
            self.strategy.max_concurrent,
            self.strategy.peak_max_concurrent,
            self.strategy.off_peak_max_concurrent,
        )
        if not all(1 <= figure <= CONCURRENT_MAX for figure in figures):
            raise UsageError("a limit is out of bounds", hint=f"Write 1 to {CONCURRENT_MAX}")


@dataclass(frozen=True, slots=True)
class ClassFound:
    """Of one class. Waits: from when a project was due until it was started. Delays: from a push at the
    source until it had arrived at the targets."""

    projects: int
    pulls: int
    failed: int
    skipped: int
    mean_wait_s: float | None
    longest_wait_s: float | None
    pushes: int
    mean_delay_s: float | None
    p95_delay_s: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """``cpu_share``: the most that we kept busy of the source over a minute."""

    classes: Mapping[Priority, ClassFound]
    most_at_once: int
    most_a_minute: int
    cpu_share: float
    limit_changes: int
    studied_s: float
    events: int


class _Days(PullWorld):
    """Counts, and notes when pushes arrive."""

    def __init__(self, climate: Climate, seed: int) -> None:
        self.on_way: dict[RepoKey, list[tuple[int, float]]] = {}
        self.delays_s: dict[Priority, list[float]] = {p: [] for p in Priority}
        self.waits_s: dict[Priority, list[float]] = {p: [] for p in Priority}
        self.ends: dict[tuple[Priority, TaskStatus], int] = {}
        self.running: set[TaskId] = set()
        self.most_at_once = self.most_a_minute = self._this_minute = 0
        super().__init__(climate, seed)

    def opened(self, row: OpenRow, order: OpenTask, before: Project, now: float) -> None:
        self.waits_s[before.config.priority].append(max(0.0, now - before.next_sync_at))

    def started(self, order: StartTask, now: float) -> None:
        self.running.add(order.task_id)
        self.most_at_once = max(self.most_at_once, len(self.running))
        self._this_minute += 1

    def decided(self, event: Event, before: Project | None, decision: PullDecision, now: float) -> None:
        if isinstance(event, TaskEnded) and before is not None:
            self.running.discard(event.task_id)
            end = before.config.priority, event.status
            self.ends[end] = self.ends.get(end, 0) + 1

    def ticked(self, now: float) -> None:
        self.most_a_minute = max(self.most_a_minute, self._this_minute)
        self._this_minute = 0

    def _pushed(self, key: RepoKey) -> None:
        super()._pushed(key)
        self.on_way.setdefault(key, []).append((self.worker.upstreams[key].version, self.time.now))

    def report(self, report: Report) -> None:
        if isinstance(report, TaskEnded) and report.status is not TaskStatus.FAILED:
            delays_s = self.delays_s[self.store.projects[report.key].config.priority]
            here = self.worker.mirrors[report.key]
            waiting = self.on_way.pop(report.key, [])
            delays_s += [self.time.now - at for version, at in waiting if version <= here]
            later = [(version, at) for version, at in waiting if version > here]
            if later:
                self.on_way[report.key] = later
        super().report(report)


def run(study: Study) -> Found:
    """The days that were asked for."""
    climate = Climate(strategy=study.strategy, projects=study.projects, zone=study.zone, days=study.days)
    days = _Days(climate, study.seed)
    if study.outage_s:
        ends_at = days.began_at + OUTAGE_AT_S + study.outage_s
        days.time.at(days.began_at + OUTAGE_AT_S, days.go_down, ends_at)
    days.play()
    return Found(
        classes={p: _of_class(days, p, count) for p, count in study.projects.items()},
        most_at_once=days.most_at_once,
        most_a_minute=days.most_a_minute,
        cpu_share=days.source.peak_share,
        limit_changes=len(days.coordinator.log),
        studied_s=days.time.now - days.began_at,
        events=days.coordinator.events,
    )


def _of_class(days: _Days, priority: Priority, projects: int) -> ClassFound:
    waits_s, delays_s = days.waits_s[priority], sorted(days.delays_s[priority])
    pulls = {status: days.ends.get((priority, status), 0) for status in TaskStatus}
    return ClassFound(
        projects=projects,
        pulls=sum(pulls.values()),
        failed=pulls[TaskStatus.FAILED],
        skipped=pulls[TaskStatus.SKIPPED],
        mean_wait_s=fmean(waits_s) if waits_s else None,
        longest_wait_s=max(waits_s, default=None),
        pushes=len(delays_s),
        mean_delay_s=fmean(delays_s) if delays_s else None,
        p95_delay_s=delays_s[int(0.95 * (len(delays_s) - 1))] if delays_s else None,
    )
