"""Pull mirroring in figures: counted from the start of the process, as tasks of projects are made and end."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evermirror.core.pull.events import Event, ProjectPut, ProjectRemoved, PullDecision
from evermirror.core.pull.layers import has_left
from evermirror.core.pull.views import PullView
from evermirror.core.watch.class_figures import ByClass, ClassFigures
from evermirror.core.watch.progress import SyncState, state_of
from evermirror.edge.store.outcomes import outcome_of
from evermirror.model.failure import FailureKind
from evermirror.model.figures import Pressure
from evermirror.model.messages import Failed, Refused, Report, Synced
from evermirror.model.pull import Load, Project
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskRecord, TaskStatus

BUCKETS_S = (
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
    30.0,
    100.0,
    300.0,
    1_000.0,
    3_600.0,
)  # a skip to a giant's first clone
MINUTE_S = 60.0
MADE_MAX = 100_000  # tasks of one minute that are counted


@dataclass(frozen=True, slots=True)
class PullTotals:
    """At one moment. ``durations`` has one count more than ``BUCKETS_S``: those that took longer."""

    scheduled: int
    scheduled_last_minute: int
    queued: int
    running: int
    ended: dict[TaskStatus, int]
    durations: tuple[int, ...]
    duration_sum_s: float
    projects: int
    projects_changed: int  # whose latest task changed something
    projects_failed: int
    projects_failing: int  # with failures in a row
    projects_demoted: int  # with so many that it counts as one class lower
    projects_paused: int  # until a person resets it
    commits: int
    errors: dict[FailureKind, int]
    retries: int
    received_bytes: int
    sent_bytes: int  # to targets
    limit: int  # pulls that may run now
    load: Load | None  # of the source, where it is known
    classes: Mapping[Priority, ClassFigures]


@dataclass(slots=True)
class PullFigures:
    """``opened``, ``reported`` and ``took`` are its doors. Projects are counted as they change, and not when
    the totals are asked for: a walk through all of them would hold up everything else."""

    clock: Callable[[], float]
    demote_after: int
    _made: deque[float] = field(default_factory=lambda: deque(maxlen=MADE_MAX))
    _scheduled: int = 0
    _retries: int = 0
    _ended: Counter[TaskStatus] = field(default_factory=Counter)
    _durations: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    _duration_sum_s: float = 0.0
    _errors: Counter[FailureKind] = field(default_factory=Counter)
    _changed: set[RepoKey] = field(default_factory=set)
    _commits: int = 0
    _received_bytes: int = 0
    _sent_bytes: int = 0
    _looks: int = 0  # these two: since the last pressure was told
    _source_s: float = 0.0
    _received_before: int = 0
    _failed: set[RepoKey] = field(default_factory=set)
    _failing: set[RepoKey] = field(default_factory=set)
    _demoted: set[RepoKey] = field(default_factory=set)
    _paused: set[RepoKey] = field(default_factory=set)
    _by_class: ByClass = field(default_factory=ByClass)

    def took(self, event: Event, decision: PullDecision) -> None:
        """The machine took an event: what that changed of projects."""
        if isinstance(event, ProjectPut):
            self._saw(event.project)
        elif isinstance(event, ProjectRemoved):
            self.forget(event.key)
        for project in decision.saves:
            self._saw(project)

    def _saw(self, project: Project) -> None:
        _mark(self._failed, project.key, state_of(project, self.clock()) is SyncState.FAILED)
        _mark(self._failing, project.key, project.failures > 0)
        _mark(self._demoted, project.key, project.failures >= self.demote_after)
        _mark(self._paused, project.key, bool(project.paused) and not has_left(project))
        self._by_class.saw(project)

    def opened(self, task: TaskRecord) -> None:
        """A task of a project was made."""
        self._scheduled += 1
        self._retries += task.retry_count > 0
        self._made.append(self.clock())

    def reported(self, report: Report) -> None:
        """Of a project. Tasks that one sync answered count one by one; what it brought counts once, also
        where nobody asked for it: a first copy."""
        if isinstance(report, Synced):
            self._commits += report.commits
            self._received_bytes += report.received_bytes
            self._sent_bytes += sum(push.sent_bytes for push in report.pushes)
            self._by_class.synced(report)
        self._source_s += _at_source_s(report)
        if not isinstance(report, Synced | Failed | Refused) or not report.task_ids:
            return
        outcome, count = outcome_of(report), len(report.task_ids)
        took_s = max(0.0, outcome.ended_at - outcome.started_at)
        self._ended[outcome.status] += count
        self._looks += not isinstance(report, Refused)  # nobody looked
        self._durations[bisect_left(BUCKETS_S, took_s)] += count
        self._duration_sum_s += took_s * count
        if outcome.failure is not None:
            self._errors[outcome.failure.kind] += count
        _mark(self._changed, report.key, outcome.has_changes)

    def forget(self, key: RepoKey) -> None:
        """It is no project any more."""
        for known in (self._changed, self._failed, self._failing, self._demoted, self._paused):
            known.discard(key)
        self._by_class.forget(key)

    def pressure(self, view: PullView) -> Pressure:
        """How it stands, and what happened since this was last asked."""
        since = Pressure(
            view.limit,
            view.running,
            sum(view.queued.values()),
            view.load,
            looks=self._looks,
            source_s=self._source_s,
            received_bytes=self._received_bytes - self._received_before,
        )
        self._looks, self._source_s, self._received_before = 0, 0.0, self._received_bytes
        return since

    def totals(self, view: PullView) -> PullTotals:
        now = self.clock()
        while self._made and self._made[0] <= now - MINUTE_S:
            self._made.popleft()
        return PullTotals(
            self._scheduled,
            len(self._made),
            sum(view.queued.values()),
            view.running,
            dict(self._ended),
            tuple(self._durations),
            self._duration_sum_s,
            view.projects,
            len(self._changed),
            len(self._failed),
            len(self._failing),
            len(self._demoted),
            len(self._paused),
            self._commits,
            dict(self._errors),
            self._retries,
            self._received_bytes,
            self._sent_bytes,
            view.limit,
            view.load,
            self._by_class.figures(now),
        )


def _at_source_s(report: Report) -> float:
    """How long the source was asked and read from."""
    match report:
        case Synced():
            return (report.look_s or 0.0) + max(0.0, dict(report.phases_s).get("fetch", 0.0))
        case Failed():
            return max(0.0, report.ended_at - report.started_at)
        case _:
            return 0.0


def _mark(known: set[RepoKey], key: RepoKey, is_so: bool) -> None:
    if is_so:
        known.add(key)
    else:
        known.discard(key)
