"""What the coordinator's store holds, simulated: projects and their tasks survive a crash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evermirror.core.pull.events import OpenTask, TaskBegan, TaskEnded
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, Trigger


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A task that has not ended."""

    id: TaskId
    key: RepoKey
    trigger: Trigger
    opened_at: float


@dataclass(slots=True)
class Store:
    projects: dict[RepoKey, Project] = field(default_factory=dict)
    open: dict[TaskId, OpenRow] = field(default_factory=dict)
    begun: dict[TaskId, float] = field(default_factory=dict)  # of those that are open
    tasks: int = 0  # ever opened

    def save(self, project: Project) -> None:
        self.projects[project.key] = project

    def add_task(self, order: OpenTask, now: float) -> OpenRow:
        """The task and its project, at once."""
        self.tasks += 1
        row = OpenRow(TaskId(self.tasks), order.project.key, order.trigger, now)
        self.open[row.id] = row
        self.projects[row.key] = replace(order.project, task=row.id)
        return row

    def begin(self, event: TaskBegan) -> None:
        if event.task_id in self.open:
            self.begun[event.task_id] = event.at

    def end(self, event: TaskEnded) -> OpenRow | None:
        self.begun.pop(event.task_id, None)
        return self.open.pop(event.task_id, None)

    def open_of(self, key: RepoKey) -> OpenRow | None:
        return next((row for row in self.open.values() if row.key == key), None)
