"""Projects, errors and tasks, counted one after the other: what the store counts in SQL is compared with it.

A task belongs to the time it ended in, from ``begin`` (inclusive) to ``end`` (exclusive). One that carries a
failure is an error whatever its status: where one of two targets failed, the task succeeded and still has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evermirror.core.watch.progress import SyncState, state_of
from evermirror.model.failure import FailureKind
from evermirror.model.figures import PROJECTS_NAMED, ClassProgress, KindCount, Period
from evermirror.model.pull import Project
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskRecord, TaskStatus


@dataclass(slots=True)
class _Tally:
    states: dict[SyncState, int] = field(default_factory=lambda: dict.fromkeys(SyncState, 0))
    delays_s: list[float] = field(default_factory=list)

    def add(self, state: SyncState, synced_at: float | None, now: float) -> None:
        self.states[state] += 1
        if synced_at is not None and state is not SyncState.DISABLED:
            self.delays_s.append(max(0.0, now - synced_at))

    def counted(self) -> ClassProgress:
        states, measured = self.states, len(self.delays_s)
        return ClassProgress(
            total=sum(states.values()),
            synced=states[SyncState.SYNCED],
            syncing=states[SyncState.SYNCING],
            pending=states[SyncState.PENDING],
            failed=states[SyncState.FAILED],
            disabled=states[SyncState.DISABLED],
            average_delay_s=sum(self.delays_s) / measured if measured else None,
            measured=measured,
            worst_delay_s=max(self.delays_s, default=None),
        )


def progress_of(
    projects: Iterable[Project], now: float, *, syncing: Collection[RepoKey] = ()
) -> Mapping[Priority, ClassProgress]:
    """Each class, also those without a project."""
    tallies = {priority: _Tally() for priority in Priority}
    for project in projects:
        tally = tallies[project.config.priority]
        tally.add(state_of(project, now, syncing), project.last_sync_at, now)
    return {priority: tally.counted() for priority, tally in tallies.items()}


def count_errors(tasks: Iterable[TaskRecord], begin: float, end: float) -> Mapping[FailureKind, KindCount]:
    """Of the tasks of projects. Only kinds that occurred; most frequent first, then by name."""
    repos: dict[FailureKind, Counter[RepoKey]] = {}
    for task in _ended(tasks, begin, end):
        if task.failure is not None:
            repos.setdefault(task.failure.kind, Counter())[task.repo] += 1
    frequent = sorted(repos.items(), key=lambda item: (-item[1].total(), item[0].value))
    return {kind: _kind_count(keys) for kind, keys in frequent}


def _kind_count(errors: Counter[RepoKey]) -> KindCount:
    named = sorted(errors, key=lambda key: (-errors[key], key))[:PROJECTS_NAMED]
    return KindCount(errors.total(), len(errors), tuple(named))


def period_of(tasks: Sequence[TaskRecord], begin: float, end: float) -> Period:
    """What ended in it. A row that stands for a run of looks without a change has them evenly spread over
    the time from its beginning to its end, and those count that fall into the period."""
    looks = dict.fromkeys(TaskStatus, 0.0)
    changes = 0
    for task in tasks:
        if task.folded:
            looks[task.status] += (1 + task.folded) * _share(task, begin, end)
    for task in _ended(tasks, begin, end):
        changes += task.changes_count
        if not task.folded:
            looks[task.status] += 1
    by_status = {status: int(count + 0.5) for status, count in looks.items()}
    return Period(
        begin=begin,
        end=end,
        tasks=sum(by_status.values()),
        success=by_status[TaskStatus.SUCCESS],
        failed=by_status[TaskStatus.FAILED],
        skipped=by_status[TaskStatus.SKIPPED],
        changes=changes,
    )


def _share(run: TaskRecord, begin: float, end: float) -> float:
    """How much of a run's time lies in the period, between 0 and 1."""
    first, last = run.created_at, run.completed_at
    if last is None or last < begin or first >= end:
        return 0.0
    if begin <= first and last < end:
        return 1.0
    return max(0.0, min(last, end) - max(first, begin)) / (last - first)


def _ended(tasks: Iterable[TaskRecord], begin: float, end: float) -> Iterator[TaskRecord]:
    for task in tasks:
        if task.status.ended and task.completed_at is not None and begin <= task.completed_at < end:
            yield task
