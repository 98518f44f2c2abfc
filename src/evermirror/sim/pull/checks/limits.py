"""Never more at once than the strategy says, in peak hours only the urgent, and one task for each project."""

from __future__ import annotations

from evermirror.core.pull.events import OpenTask, StartTask
from evermirror.model.repo import Priority
from evermirror.model.task import TaskId
from evermirror.sim.pull.store import OpenRow
from evermirror.sim.pull.truth import LIMITED, Broken, Truth

LATE_LOAD_S = 120.0  # an overload is told every minute, and each step of the limit takes one
SPARED = 2  # what is left after enough of them


class Limits:
    """A task of the schedule takes its room when it is opened, one of a batch when it starts."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._room: set[TaskId] = set()
        self._overloaded_since: float | None = None
        self.most = 0  # that ever ran at once

    @property
    def used(self) -> int:
        return len(self._room)

    def opened(self, row: OpenRow, order: OpenTask, now: float) -> None:
        """By the schedule."""
        truth, project = self._truth, order.project
        others = [r for r in truth.store.open.values() if r.key == row.key and r.id != row.id]
        if others:
            raise Broken(f"{row.key} has two tasks: {row} and {others[0]}")
        if not project.config.enabled:
            raise Broken(f"{row.key} is disabled, and was started")
        if not truth.strategy.enabled:
            raise Broken(f"the strategy is off, and {row.key} was started")
        rank = truth.rank(project)
        if truth.in_peak(now) and rank > Priority.HIGH.rank:
            raise Broken(f"{row.key} ({_name(rank)}) was started in peak hours")
        if not truth.may_run(rank, now):
            raise Broken(f"{row.key} ({_name(rank)}) was started while the source is overloaded")
        self._take(row.id, now)

    def started(self, order: StartTask, row: OpenRow, now: float) -> None:
        if row.trigger in LIMITED and order.task_id not in self._room:
            self._take(order.task_id, now)

    def ended(self, task: TaskId) -> None:
        self._room.discard(task)

    def booted(self) -> None:
        """Who ran goes on: each has its room. What waited, or had not begun, waits again."""
        store = self._truth.store
        self._room = {i for i in store.begun if store.open[i].trigger in LIMITED}
        self._overloaded_since = None

    def tick(self, now: float) -> None:
        if not self._truth.overloaded():
            self._overloaded_since = None
        elif self._overloaded_since is None:
            self._overloaded_since = now

    def _take(self, task: TaskId, now: float) -> None:
        self._room.add(task)
        self.most = max(self.most, self.used)
        figure, since = self._truth.figure(now), self._overloaded_since
        if since is not None and self._truth.overloaded() and now - since > LATE_LOAD_S + 60.0 * figure:
            figure = min(figure, SPARED)
        if self.used > figure:
            raise Broken(f"{self.used} run at once, and {figure} may")


def _name(rank: int) -> str:
    return next(p.value for p in Priority if p.rank == rank)
