"""What of a worker's report is believed: only what it may speak of, at times that have come.

A worker speaks of repos that it was given or really holds, and ends tasks of those repos. Its clock may be
wrong: a time far ahead is taken for now. The number of a report is taken in any case, or the
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

CLOCK_SLACK_S = 300.0  # clocks of home servers differ by seconds, seldom by minutes

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
                return replace(report, task_ids=ids, verified_at=_not_ahead(report.verified_at, now_s))
            return replace(report, task_ids=ids)
        case Verified():
            return Verified(tuple((key, _not_ahead(at, now_s)) for key, at in report.items if given(key)))
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
        replace(item, verified_at=None if item.verified_at is None else _not_ahead(item.verified_at, now_s))
        for item in items
        if given(item.key)
    )


def _not_ahead(at_s: float, now_s: float) -> float:
    return at_s if at_s <= now_s + CLOCK_SLACK_S else now_s
