"""The workers, as one, simulated: looks at the source, fetches, pushes to targets, and reports."""

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
from evermirror.sim.pull.source import FETCH_CORES, FETCH_S, LOOK_CORES, LOOK_S, Source

PUSH_S = 2.0
TIME_OUT_S = 30.0
WEATHER_AFTER = 3  # different projects that failed one after the other: it is the host

Report = TaskBegan | TaskEnded | FailureExcused


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
class _Sync:
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
        sync = _Sync(order, now)
        if self.source.is_down(now):
            self.time.after(self.chance.choice((0.05, TIME_OUT_S)), self._no_answer, sync)
            return
        wait_s = self.source.refuses(now)
        if wait_s is not None:
            failure = Failure(FailureKind.RATE_LIMITED, "too many requests", retry_after_s=wait_s)
            self.time.after(0.05, self._end, sync, TaskStatus.FAILED, failure, False)
            return
        self.source.begin(LOOK_CORES, now)
        self.time.after(self.source.takes(LOOK_S), self._looked, sync)

    def _no_answer(self, sync: _Sync) -> None:
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

    def _looked(self, sync: _Sync) -> None:
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

    def _fetched(self, sync: _Sync, version: int) -> None:
        now = self.time.now
        self.source.end(FETCH_CORES, now)
        if self.source.is_down(now):
            self._no_answer(sync)
            return
        self.mirrors[sync.order.key] = version
        self._push(sync)

    # Targets, one after the other

    def _push(self, sync: _Sync) -> None:
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

    def _pushed(self, sync: _Sync, to: PushTo, began_at: float) -> None:
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

    def _pushed_all(self, sync: _Sync) -> None:
        failures = [pushed.failure for pushed in sync.pushes if pushed.failure is not None]
        if failures and len(failures) == len(sync.pushes):
            self._end(sync, TaskStatus.FAILED, failures[0])
        else:
            status = TaskStatus.SUCCESS if sync.changed else TaskStatus.SKIPPED
            self._end(sync, status, failures[0] if failures else None)

    def _end(
        self, sync: _Sync, status: TaskStatus, failure: Failure | None = None, counted: bool = True
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
