"""Errors and tasks of a time are counted as people would."""

from __future__ import annotations

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import KindCount
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from tests.support.plain_counts import count_errors, period_of

TIMEOUT, AUTH = FailureKind.NETWORK_TIMEOUT, FailureKind.AUTH_FAILED


def task(
    number: int,
    repo: str,
    at: float | None,
    status: TaskStatus,
    kind: FailureKind | None = None,
    **more: float,
) -> TaskRecord:
    failure = None if kind is None else Failure(kind, "no")
    return TaskRecord(
        TaskId(number), RepoKey(repo), status, Trigger.SCHEDULE, completed_at=at, failure=failure, **more
    )


TASKS = [
    task(1, "a", 10.0, TaskStatus.FAILED, TIMEOUT),
    task(2, "a", 20.0, TaskStatus.FAILED, TIMEOUT),
    task(3, "b", 30.0, TaskStatus.FAILED, TIMEOUT),
    task(4, "b", 99.9, TaskStatus.FAILED, AUTH),
    task(5, "c", 50.0, TaskStatus.SUCCESS, AUTH, changes_count=3),  # one of its targets failed
    task(6, "d", 9.9, TaskStatus.FAILED, AUTH),  # before
    task(7, "d", 100.0, TaskStatus.FAILED, AUTH),  # after
    task(8, "e", None, TaskStatus.RUNNING),
    task(9, "f", 60.0, TaskStatus.SUCCESS, changes_count=4),
    task(10, "f", 61.0, TaskStatus.SKIPPED, folded=11, created_at=10.0),
]


def test_errors_are_counted_by_kind_with_the_projects_they_hit() -> None:
    counted = count_errors(TASKS, 10.0, 100.0)
    assert counted == {TIMEOUT: KindCount(3, 2, ("a", "b")), AUTH: KindCount(2, 2, ("b", "c"))}
    assert list(counted) == [TIMEOUT, AUTH]  # most frequent first
    assert count_errors(TASKS, 200.0, 300.0) == {}


def test_a_period_has_what_ended_in_it_and_every_look_that_a_row_stands_for() -> None:
    period = period_of(TASKS, 10.0, 100.0)
    assert (period.tasks, period.success, period.failed, period.skipped) == (18, 2, 4, 12)
    assert period.changes == 7
    assert (period.begin, period.end) == (10.0, 100.0)


def test_a_run_of_looks_that_reaches_over_the_end_counts_in_part() -> None:
    run = task(1, "a", 200.0, TaskStatus.SKIPPED, folded=9, created_at=100.0)
    assert [period_of([run], begin, begin + 40.0).skipped for begin in (40.0, 80.0, 120.0, 180.0, 220.0)] == [
        0,
        2,
        4,
        2,
        0,
    ]
