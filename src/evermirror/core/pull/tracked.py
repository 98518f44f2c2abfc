"""What the pull machine keeps of one project: small, as there may be a hundred thousand."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from evermirror.core.pull.queue import NEVER, Waiter
from evermirror.core.pull.retry import effective_rank
from evermirror.core.pull.settings import PullSettings
from evermirror.model.pull import Project, Target
from evermirror.model.push import PushTo, TargetId
from evermirror.model.task import TaskId, Trigger

# Started the moment they are told, whatever runs.
AT_ONCE = frozenset({Trigger.MANUAL, Trigger.API, Trigger.WEBHOOK})
# Nobody waits for these: they leave a target alone that is to be left alone for a while.
PATIENT = frozenset({Trigger.SCHEDULE, Trigger.WEBHOOK})

_NAMES = [field.name for field in fields(Project)]
_VALUES = attrgetter(*_NAMES)
_NEXT_SYNC_AT = _NAMES.index("next_sync_at")


def due_at(project: Project, at: float) -> Project:
    """``replace(project, next_sync_at=at)`` in half of the time: it is most of what opening a task costs."""
    values = list(_VALUES(project))
    values[_NEXT_SYNC_AT] = at
    return Project(*values)


def renewed(before: Project, after: Project) -> frozenset[TargetId | None]:
    """What a person's change wants tried anew: targets, by their ids; None: the source."""
    known = {target.id: target for target in before.targets}
    anew: set[TargetId | None] = {
        target.id for target in after.targets if (was := known.get(target.id)) and _is_anew(was, target)
    }
    forgiven = (before.failures or before.paused) and not (after.failures or after.paused)
    if forgiven or before.source_credential != after.source_credential:
        anew.add(None)
    return frozenset(anew)


def _is_anew(before: Target, after: Target) -> bool:
    forgiven = (before.failures or before.paused) and not (after.failures or after.paused)
    return bool(forgiven or before.credential != after.credential or (after.adopt and not before.adopt))


@dataclass(slots=True)
class OpenOne:
    """A task that is open: running, waiting for room (a batch), or set aside, as nobody can do it."""

    trigger: Trigger
    rank: int | None
    running: bool
    aside: bool = False
    renewed: frozenset[TargetId | None] = frozenset()  # since it started


class Tracked(Waiter):
    """A project with its open tasks, in the order told. ``opening``: the store was asked for a task."""

    __slots__ = ("applied_at", "busy", "opening", "project", "tasks")

    def __init__(self, project: Project) -> None:
        super().__init__(project.key, project.host)
        self.project = project
        self.tasks: dict[TaskId, OpenOne] | None = None  # None: none, which most have
        self.opening = False
        self.busy = False  # as it was last counted
        self.applied_at = 0.0  # end of the last sync that counted

    def add(self, task_id: TaskId, task: OpenOne) -> None:
        if self.tasks is None:
            self.tasks = {}
        self.tasks[task_id] = task

    def find(self, task_id: TaskId) -> OpenOne | None:
        return self.tasks.get(task_id) if self.tasks else None

    def drop(self, task_id: TaskId) -> OpenOne | None:
        task = self.tasks.pop(task_id, None) if self.tasks else None
        if not self.tasks:
            self.tasks = None
        return task

    def change(self, project: Project) -> None:
        """By a person, while tasks of it may run."""
        for task in self.tasks.values() if self.tasks else ():
            task.renewed |= renewed(self.project, project)
        self.project = project

    @property
    def first_task(self) -> TaskId | None:
        return next(iter(self.tasks)) if self.tasks else None

    @property
    def runs(self) -> bool:
        return self.opening or (self.tasks is not None and any(t.running for t in self.tasks.values()))

    def batch_waiting(self) -> tuple[TaskId, OpenOne] | None:
        """The first task that waits for room: a batch's, or one that was set aside before."""
        for task_id, task in self.tasks.items() if self.tasks else ():
            if not task.running and not task.aside:
                return task_id, task
        return None

    def take_place(self, settings: PullSettings) -> float | None:
        """Rank and place in the queue as they follow from its state; returns when it is due, None: never."""
        project = self.project
        self.rank = effective_rank(project, settings.demote_after)
        waiting = self.batch_waiting()
        self.batch = waiting is not None
        if waiting is not None:
            self.since = waiting[0]
            if waiting[1].rank is not None:
                self.rank = waiting[1].rank
            return 0.0
        if self.tasks or not project.config.enabled or project.failures >= settings.pause_after:
            return None
        self.since = NEVER if project.last_sync_at is None else project.last_sync_at
        return project.next_sync_at

    def push_to(self, trigger: Trigger, now: float) -> tuple[PushTo, ...]:
        """The targets to be served by a task that starts now."""
        return tuple(
            PushTo(target.id, target.url, target.credential, target.put, target.adopt)
            for target in self.project.targets
            if not target.paused and (trigger not in PATIENT or target.not_before <= now)
        )
