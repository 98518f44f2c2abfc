"""Errors and tasks of a time, counted. The store counts the same in SQL; this is the plain version that it is
compared with.

A task belongs to the time it ended in, from ``begin`` (inclusive) to ``end`` (exclusive). One that carries a
failure is an error whatever its status: where one of two targets failed, the task succeeded and still has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from evermirror.model.failure import FailureKind
from evermirror.model.figures import PROJECTS_NAMED, KindCount, Period
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskRecord, TaskStatus


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
