"""Tasks of projects opened in the store, and what the machine hears of projects that got none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from evermirror.core.pull.events import Event, OpenTask, ProjectPut, ProjectRemoved
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureError
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskRecord
from evermirror.nodes.coordinator.pull.pull_memory import Remembered

REOPEN_S = 10.0  # until a project is tried again whose task the database did not take


class Opening:
    """Asks the store."""

    def __init__(self, store: Store, remembered: Remembered, clock: Callable[[], float]) -> None:
        self._store = store
        self._remembered = remembered
        self._clock = clock

    async def open(self, opens: Sequence[OpenTask]) -> tuple[tuple[TaskRecord, ...], list[Event]]:
        """The tasks; and of each project that got none, that it is another by now, or none."""
        tasks = await self._store.open_pull_tasks(opens, self._clock())
        found = {task.repo for task in tasks}
        missing = {one.project.key: one.project for one in opens if one.project.key not in found}
        return tasks, await self._instead(missing) if missing else []

    async def _instead(self, missing: Mapping[RepoKey, Project]) -> list[Event]:
        try:
            fresh = await self._store.find_projects(missing)
        except FailureError:
            return self.later(missing.values())
        gone = [key for key in missing if key not in fresh]
        self._remembered.add(gone)
        return [*(ProjectPut(project) for project in fresh.values()), *(ProjectRemoved(key) for key in gone)]

    def later(self, projects: Iterable[Project]) -> list[Event]:
        """They are tried again."""
        at = self._clock() + REOPEN_S
        return [ProjectPut(replace(project, next_sync_at=at)) for project in projects]
