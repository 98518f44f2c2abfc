"""The source of all projects and the workers, as one, simulated.

The more the source is asked at once the slower it is, and it has others to serve, too. The worker looks at
it, fetches, pushes to targets, and reports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from evermirror.core.pull.events import FailureExcused, StartTask, TaskBegan, TaskEnded
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.push import Pushed, PushTo, TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskStatus
from evermirror.sim.clock import VirtualTime

CORES = 16
LOOK_CORES = 0.25  # busy while refs are told
FETCH_CORES = 0.2  # busy while a pack is made; most of the time it waits for the network
LOOK_S = 0.25  # on an idle machine
FETCH_S = 8.0
BUSY_MAX = 0.9  # it gets ten times slower at most
WINDOW_S = 60.0  # that our burden is averaged over
PUSH_S = 2.0
TIME_OUT_S = 30.0
WEATHER_AFTER = 3  # different projects that failed one after the other: it is the host

Report = TaskBegan | TaskEnded | FailureExcused


@dataclass(slots=True)
class Source:
    """``others`` is the share of its processors that others keep busy now. Times are UTC seconds."""

    chance: Random
    began_at: float
    others: float = 0.2
    down_until: float = 0.0
    ours_cores: float = 0.0
    peak_share: float = 0.0  # the highest that we kept busy over a window
    _window_busy_s: float = 0.0
    _seen_at: float = field(init=False)
    _window_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._seen_at = self._window_at = self.began_at

    def is_down(self, now: float) -> bool:
        return now < self.down_until

    def cpu(self) -> float:
        """What its metrics would say: 0 to 1."""
        return min(1.0, self.others + self.ours_cores / CORES)

    def takes(self, usual_s: float) -> float:
        """How long a request takes that begins now."""
        slower = 1.0 / (1.0 - min(BUSY_MAX, self.cpu()))
        return usual_s * slower * self.chance.lognormvariate(0.0, 0.4)

    def begin(self, cores: float, now: float) -> None:
        self.account(now)
        self.ours_cores += cores

    def end(self, cores: float, now: float) -> None:
        self.account(now)
        self.ours_cores = max(0.0, self.ours_cores - cores)

    def account(self, now: float) -> None:
        """Adds up what we kept busy until now."""
        while now - self._window_at >= WINDOW_S:
            self._window_at += WINDOW_S
            self._busy_until(self._window_at)
            self.peak_share = max(self.peak_share, self._window_busy_s / (CORES * WINDOW_S))
            self._window_busy_s = 0.0
        self._busy_until(now)

    def _busy_until(self, time: float) -> None:
        self._window_busy_s += self.ours_cores * (time - self._seen_at)
        self._seen_at = time


@dataclass(slots=True)
class Upstream:
    """One project at the source: ``version`` grows with every push. ``ill`` is what it answers instead."""

    version: int = 1
    ill: FailureKind | None = None

    def cure(self) -> None:
        self.ill = None


@dataclass(slots=True)
class Held:
    """One project's target: what is there, and what it answers instead of taking more."""

    version: int = 0
    ill: FailureKind | None = None

    def cure(self) -> None:
        self.ill = None


def digest_of(key: RepoKey, version: int) -> RefsDigest:
    return RefsDigest(hashlib.sha256(f"{key} {version}".encode()).hexdigest())


@dataclass(slots=True)
class Sync:
    """One task on its way. ``version`` is what was fetched."""

    order: StartTask
    began_at: float
    look_s: float | None = None
    changed: bool = False
    pushes: list[Pushed] = field(default_factory=list)


@dataclass(slots=True)
class Worker:
    """``report`` brings a report to the coordinator, some time or other."""

    time: VirtualTime
    chance: Random
    source: Source
    report: Callable[[Report], None]
    push_fails: float = 0.01  # share of pushes that time out
    upstreams: dict[RepoKey, Upstream] = field(default_factory=dict)
    mirrors: dict[RepoKey, int] = field(default_factory=dict)
    targets: dict[tuple[RepoKey, TargetId], Held] = field(default_factory=dict)
    running: dict[TaskId, RepoKey] = field(default_factory=dict)
    _suspects: list[RepoKey] = field(default_factory=list)  # whose failures were counted
    _weather: bool = False

    def start(self, order: StartTask) -> None:
        """An order that comes again, after a restart of the coordinator, changes nothing."""
        if order.task_id not in self.running:
            self.running[order.task_id] = order.key
            self.time.after(self.chance.uniform(0.01, 0.3), self._begin, order)

    def _begin(self, order: StartTask) -> None:
        now = self.time.now
        self.report(TaskBegan(order.key, order.task_id, now))
        sync = Sync(order, now)
        if self.source.is_down(now):
            self.time.after(self.chance.choice((0.05, TIME_OUT_S)), self._no_answer, sync)
        else:
            self._look(sync)

    def _look(self, sync: Sync) -> None:
        self.source.begin(LOOK_CORES, self.time.now)
        self.time.after(self.source.takes(LOOK_S), self._looked, sync)

    def _no_answer(self, sync: Sync) -> None:
        """Of the first projects it may be their own fault; when it turns out not to be, they are excused."""
        failure = Failure(FailureKind.NETWORK_TIMEOUT, "Connection timed out")
        key = sync.order.key
        if not self._weather and len({*self._suspects, key}) >= WEATHER_AFTER:
            self._weather = True
            for earlier in self._suspects:
                self.report(FailureExcused(earlier))
        if not self._weather:
            self._suspects.append(key)
        self._end(sync, TaskStatus.FAILED, failure, counted=not self._weather)

    def _looked(self, sync: Sync) -> None:
        now, key = self.time.now, sync.order.key
        self.source.end(LOOK_CORES, now)
        upstream = self.upstreams[key]
        if self.source.is_down(now):
            self._no_answer(sync)
            return
        self._suspects.clear()
        self._weather = False
        sync.look_s = now - sync.began_at
        if upstream.ill is not None:
            self._end(sync, TaskStatus.FAILED, Failure(upstream.ill, f"{key}: {upstream.ill.value}"))
        elif self.mirrors.get(key) == upstream.version:
            self._push(sync)
        else:
            sync.changed = True
            self.source.begin(FETCH_CORES, now)
            self.time.after(self.source.takes(FETCH_S), self._fetched, sync, upstream.version)

    def _fetched(self, sync: Sync, version: int) -> None:
        now = self.time.now
        self.source.end(FETCH_CORES, now)
        if self.source.is_down(now):
            self._no_answer(sync)
            return
        self.mirrors[sync.order.key] = version
        self._push(sync)

    # Targets, one after the other

    def _push(self, sync: Sync) -> None:
        key = sync.order.key
        wanted = digest_of(key, self.mirrors[key])
        done = {pushed.target for pushed in sync.pushes}
        for to in sync.order.push:
            if to.target in done:
                continue
            if to.put == wanted:
                sync.pushes.append(Pushed(to.target, wanted))
                continue
            self.time.after(
                self.chance.lognormvariate(0.0, 0.5) * PUSH_S, self._pushed, sync, to, self.time.now
            )
            return
        self._pushed_all(sync)

    def _pushed(self, sync: Sync, to: PushTo, began_at: float) -> None:
        key, now = sync.order.key, self.time.now
        held, version = self.targets[key, to.target], self.mirrors[key]
        ill = held.ill
        if ill is None and self.chance.random() < self.push_fails:
            ill = FailureKind.NETWORK_TIMEOUT
        if ill is None:
            held.version, sync.changed = version, True
            result = Pushed(
                to.target, digest_of(key, version), put_total=1, started_at=began_at, ended_at=now
            )
        else:
            failure = Failure(ill, f"target: {ill.value}")
            result = Pushed(to.target, to.put, started_at=began_at, ended_at=now, failure=failure)
        sync.pushes.append(result)
        self._push(sync)

    def _pushed_all(self, sync: Sync) -> None:
        failures = [pushed.failure for pushed in sync.pushes if pushed.failure is not None]
        if failures and len(failures) == len(sync.pushes):
            self._end(sync, TaskStatus.FAILED, failures[0])
        else:
            status = TaskStatus.SUCCESS if sync.changed else TaskStatus.SKIPPED
            self._end(sync, status, failures[0] if failures else None)

    def _end(
        self, sync: Sync, status: TaskStatus, failure: Failure | None = None, counted: bool = True
    ) -> None:
        order = sync.order
        del self.running[order.task_id]
        self.report(
            TaskEnded(
                order.key,
                order.task_id,
                status,
                sync.began_at,
                self.time.now,
                failure,
                counted,
                tuple(sync.pushes),
                sync.look_s,
            )
        )
