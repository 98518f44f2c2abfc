"""Which of many projects are pulled next: the pull machine, against sorting all of them each minute.

The alternative is what a cron every minute does: look at all projects, sort those that are due, start as many
as there is room for. Both make the same tasks of the same projects, in virtual time, without store and git.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC
from heapq import heappop, heappush
from math import inf

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch, alternate
from evermirror.core.pull.events import OpenTask, ProjectPut, TaskEnded, TaskOpened, Woke
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.model.pull import CONCURRENT_MAX, INTERVALS_S, MINUTE, Project, PullConfig, Strategy
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus, Trigger

BEGIN = 1_800_000_000.0
DUE = BEGIN + 1.0  # where all are due at once: after they were told
SHARES = ((Priority.CRITICAL, 5), (Priority.HIGH, 15), (Priority.NORMAL, 50), (Priority.LOW, 30))  # percent
SYNC_S = 2.0  # one pull: most find nothing new
FREED = 50  # slots that get free one after the other
HOUR_LIMIT = 50  # pulls at once in the hour that is played


def _projects(count: int, due: Callable[[int, float], float]) -> list[Project]:
    """``due``: from number and interval, when each is."""
    classes = [priority for priority, share in SHARES for _ in range(share)]
    found = []
    for n in range(count):
        priority, key = classes[n * 37 % 100], RepoKey(f"forge.example/team-{n % 97}/repo-{n}")
        config = PullConfig(priority, INTERVALS_S[priority])
        synced_at, host = BEGIN - n * 7919 % 100_003, Host(f"forge-{n % 3}.example")
        at = due(n, config.interval_s)
        found.append(Project(key, key, host, config, last_sync_at=synced_at, next_sync_at=at))
    return found


def _at_once(_: int, __: float) -> float:
    return DUE


def _spread(n: int, interval_s: float) -> float:
    return BEGIN + n * 7919 % 1_009 / 1_009 * interval_s


class Ours:
    """The machine, with a shell that stores at once."""

    def __init__(self, projects: list[Project], limit: int) -> None:
        self.machine = PullMachine(PullSettings(), UTC, Strategy(max_concurrent=limit, adaptive=False))
        self._tasks: dict[RepoKey, TaskId] = {}
        self._ids = 0
        for project in projects:
            self.machine.handle(ProjectPut(project), BEGIN)

    def next_wake(self, now: float) -> float:
        at = self.machine.next_wake(now)
        return inf if at is None else max(at, now)

    def tick(self, now: float) -> list[OpenTask]:
        return self.store(self.decide(now), now)

    def decide(self, now: float) -> tuple[OpenTask, ...]:
        return self.machine.handle(Woke(), now).opens

    def ended(self, key: RepoKey, now: float) -> list[OpenTask]:
        end = TaskEnded(key, self._tasks.pop(key), TaskStatus.SKIPPED, now - SYNC_S, now, look_s=0.2)
        return self.store(self.machine.handle(end, now).opens, now)

    def store(self, opens: tuple[OpenTask, ...], now: float) -> list[OpenTask]:
        for opened in opens:
            self._ids += 1
            self._tasks[opened.project.key] = TaskId(self._ids)
            self.machine.handle(TaskOpened(opened.project.key, TaskId(self._ids), Trigger.SCHEDULE), now)
        return list(opens)


class Sorting:
    """The obvious way: all projects in a dict, sorted whenever something is to be started."""

    def __init__(self, projects: list[Project], limit: int) -> None:
        self._projects = {project.key: project for project in projects}
        self._running: set[RepoKey] = set()
        self._limit = limit

    def next_wake(self, now: float) -> float:
        return (now // MINUTE + 1) * MINUTE

    def tick(self, now: float) -> list[OpenTask]:
        due = [
            project
            for project in self._projects.values()
            if project.config.enabled
            and project.next_sync_at <= now
            and project.failures < 5
            and project.key not in self._running
        ]
        due.sort(key=lambda p: (p.config.priority.rank, p.last_sync_at or 0.0, p.key))
        opens = []
        for project in due[: max(0, self._limit - len(self._running))]:
            opened = replace(project, next_sync_at=now + project.config.interval_s)
            self._projects[project.key] = opened
            self._running.add(project.key)
            opens.append(OpenTask(opened, project.failures))
        return opens

    decide = tick

    def ended(self, key: RepoKey, now: float) -> list[OpenTask]:
        self._running.discard(key)
        self._projects[key] = replace(self._projects[key], last_sync_at=now, failures=0)
        return []


Side = Callable[[list[Project], int], Ours | Sorting]


# One decision


def _deciding(make: Side, projects: list[Project], limit: int) -> Cost:
    """All are due at once; as many as may run are chosen."""
    side = make(projects, limit)
    assert not side.decide(BEGIN)
    with Stopwatch() as watch:
        opens = side.decide(DUE)
    assert len(opens) == min(limit, len(projects))
    return watch.cost


def _freeing(make: Side, projects: list[Project], limit: int) -> Cost:
    """Some pulls end, and for each the next one is started, with all others waiting."""
    side = make(projects, limit)
    keys = [opened.project.key for opened in side.tick(DUE)][:FREED]
    now = DUE + SYNC_S
    with Stopwatch() as watch:
        for key in keys:
            opens = side.ended(key, now) or side.tick(now)
            assert len(opens) == 1
    return watch.cost.per(len(keys))


# An hour


@dataclass(slots=True)
class Hour:
    """What came of it."""

    cpu_s: float = 0.0
    pulls: int = 0
    late_s: list[float] = field(default_factory=list)  # of critical projects

    @property
    def mean_late_s(self) -> float:
        return sum(self.late_s) / len(self.late_s)


def _hour(make: Side, projects: list[Project]) -> Hour:
    side, found, now = make(projects, HOUR_LIMIT), Hour(), BEGIN
    due = {project.key: project.next_sync_at for project in projects}
    ends: list[tuple[float, RepoKey]] = []
    with Stopwatch() as watch:
        opens = side.tick(now)
        while now < BEGIN + 60 * MINUTE:
            for opened in opens:
                project = opened.project
                if project.config.priority is Priority.CRITICAL:
                    found.late_s.append(now - due[project.key])
                due[project.key] = project.next_sync_at
                found.pulls += 1
                heappush(ends, (now + SYNC_S, project.key))
            wake_at = side.next_wake(now)
            if ends and ends[0][0] <= wake_at:
                now, key = heappop(ends)
                opens = side.ended(key, now)
            else:
                now = wake_at
                opens = side.tick(now)
    found.cpu_s = watch.cost.cpu_s
    return found


# Size


def _bytes_each(projects: list[Project]) -> float:
    """What the machine needs for a project, beside the project itself."""
    gc.collect()
    tracemalloc.start()
    try:
        side = Ours(projects, 1)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert side.machine.next_wake(BEGIN) == BEGIN
    return used / len(projects)


def _run(context: Context) -> list[Line]:
    count, many = context.size(10_000, 500), context.size(100_000, 2_000)
    limit, rounds = context.size(CONCURRENT_MAX, 100), context.repeats(3)
    due = _projects(count, _at_once)

    def both(measure: Callable[[Side, list[Project], int], Cost], scale: float) -> list[tuple[float, ...]]:
        sides = alternate(rounds, lambda: measure(Ours, due, limit), lambda: measure(Sorting, due, limit))
        return [tuple(cost.cpu_s * scale for cost in side) for side in sides]

    spread = _projects(count, _spread)
    hours = [(_hour(Ours, spread), _hour(Sorting, spread)) for _ in range(context.repeats(3))]
    ours, theirs = ([pair[side] for pair in hours] for side in (0, 1))
    few, crowd = (_projects(n, _at_once) for n in (context.size(1_000, 200), many))
    flat = alternate(rounds, lambda: _freeing(Ours, crowd, 50), lambda: _freeing(Ours, few, 50))
    at_most, at_least = Sense.AT_MOST, Sense.AT_LEAST
    return [
        Line(
            f"{count:,} due: the next {limit:,} chosen",
            "ms CPU",
            *both(_deciding, 1e3),
            at_most,
            50.0,
            promise="pull-schedule",
        ),
        Line(f"{count:,} due: a slot gets free", "µs CPU", *both(_freeing, 1e6), Sense.TIMES_LESS, 20.0),
        Line(
            f"a slot gets free: {many:,} against {len(few):,} due",
            "µs CPU",
            *(tuple(cost.cpu_s * 1e6 for cost in side) for side in flat),
            Sense.TIMES_AS_MUCH,
            2.0,
        ),
        Line(
            f"{count:,} projects: critical ones late by",
            "s",
            tuple(hour.mean_late_s for hour in ours),
            tuple(hour.mean_late_s for hour in theirs),
            at_most,
            1.0,
        ),
        Line(
            f"{count:,} projects: pulls in an hour, {HOUR_LIMIT} at once",
            "pulls",
            tuple(float(hour.pulls) for hour in ours),
            tuple(float(hour.pulls) for hour in theirs),
            at_least,
        ),
        Line(
            f"{count:,} projects: deciding for an hour, per pull",
            "µs CPU",
            tuple(hour.cpu_s / hour.pulls * 1e6 for hour in ours),
            tuple(hour.cpu_s / hour.pulls * 1e6 for hour in theirs),
            Sense.TIMES_AS_MUCH,
        ),
        Line(f"{many:,} projects: memory each", "bytes", (_bytes_each(crowd),), (), at_most, 400.0),
    ]


BENCH = Bench(
    name="pull-schedule",
    measures="which of 10,000 projects are pulled next: decisions, lateness, memory",
    alternative="all projects looked at and sorted each minute",
    run=_run,
    order=36,
    takes_s=15,
)
