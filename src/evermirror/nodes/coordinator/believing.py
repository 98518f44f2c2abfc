"""What of a worker's report is believed: only what it may speak of.

A worker speaks of repos that it was given or really holds, and ends tasks of those repos. Its times and
numbers were bounded when they came in (edge/rpc/bounds.py). The number of a report is taken in any case, or
the worker would send it for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from evermirror.model.messages import (
    Declined,
    Excused,
    Failed,
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


def believed(report: Report, given: Callable[[RepoKey], bool], own: OwnTasks) -> Report | None:
    """The report as far as it counts; None where nothing of it does."""
    match report:
        case Started() | Synced() | Restored() | Failed() | Refused():
            if not given(report.key):
                return None
            return replace(report, task_ids=own(report.key, report.task_ids))
        case Verified():
            return Verified(tuple((key, at) for key, at in report.items if given(key)))
        case Excused():
            return Excused(tuple(key for key in report.keys if given(key)))
        case Kept():
            return Kept(tuple(item for item in report.items if given(item.key)))
        case Declined():
            return Declined(tuple(item for item in report.items if given(item.key)))
        case _:
            return report
