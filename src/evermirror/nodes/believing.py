"""What of a worker's report is believed: only what it may speak of, and no later than now.

A worker speaks of repos that it was given or really holds, and ends tasks of those repos. Its clock may be
wrong: a time that has not come yet is taken for now. The number of a report is taken in any case, or the
worker would send it for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from evermirror.model.messages import (
    Declined,
    Excused,
    Failed,
    HeldRepo,
    Kept,
    Refused,
    Report,
    Restored,
    Started,
    Synced,
    Verified,
)
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId

OwnTasks = Callable[[RepoKey, Collection[TaskId]], tuple[TaskId, ...]]
"""Those of the tasks that are open and about this repo."""


def believed(report: Report, given: Callable[[RepoKey], bool], own: OwnTasks, now_s: float) -> Report | None:
    """The report as far as it counts; None where nothing of it does."""
    match report:
        case Started() | Synced() | Restored() | Failed() | Refused():
            if not given(report.key):
                return None
            ids = own(report.key, report.task_ids)
            if isinstance(report, Synced):
                return replace(report, task_ids=ids, verified_at=min(report.verified_at, now_s))
            return replace(report, task_ids=ids)
        case Verified():
            return Verified(tuple((key, min(at, now_s)) for key, at in report.items if given(key)))
        case Excused():
            return Excused(tuple(key for key in report.keys if given(key)))
        case Kept():
            return Kept(_held(report.items, given, now_s))
        case Declined():
            return Declined(_held(report.items, given, now_s))
        case _:
            return report


def _held(items: Iterable[HeldRepo], given: Callable[[RepoKey], bool], now_s: float) -> tuple[HeldRepo, ...]:
    return tuple(
        replace(item, verified_at=None if item.verified_at is None else min(item.verified_at, now_s))
        for item in items
        if given(item.key)
    )
