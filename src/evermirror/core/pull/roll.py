"""All projects that the pull machine knows, and who of them runs: what others may ask at any time."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.pull.tracked import OpenOne, Tracked
from evermirror.model.pull import Project
from evermirror.model.push import PushTo
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, Trigger


class Roll:
    """To be read by everybody; the machine is who writes it."""

    def __init__(self) -> None:
        self._tracked: dict[RepoKey, Tracked] = {}
        self._busy: set[RepoKey] = set()  # projects that something runs for, or is being opened for

    def project(self, key: RepoKey) -> Project | None:
        tracked = self._tracked.get(key)
        return tracked.project if tracked is not None else None

    def projects(self) -> Iterable[Project]:
        return (tracked.project for tracked in self._tracked.values())

    def is_running(self, key: RepoKey) -> bool:
        return key in self._busy

    def running(self) -> frozenset[RepoKey]:
        return frozenset(self._busy)

    def has_task(self, key: RepoKey, task_id: TaskId) -> bool:
        """Whether it was told of a task that is open."""
        return self._task(key, task_id) is not None

    def push_of(self, key: RepoKey, now: float, trigger: Trigger = Trigger.MANUAL) -> tuple[PushTo, ...]:
        """What a task that starts now would be told to serve."""
        tracked = self._tracked.get(key)
        return tracked.push_to(trigger, now) if tracked is not None else ()

    def _task(self, key: RepoKey, task_id: TaskId) -> tuple[Tracked, OpenOne] | None:
        tracked = self._tracked.get(key)
        task = tracked.find(task_id) if tracked is not None else None
        return (tracked, task) if tracked is not None and task is not None else None
