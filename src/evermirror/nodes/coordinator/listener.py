"""Who else wants to know what happens in the fleet: one protocol, so that it knows no coordinator."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from evermirror.core.fleet.decisions import Alert, Assign
from evermirror.model.messages import Progress, Report, WorkerStatus
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.model.worker import WorkerId


class Listener(Protocol):
    """The coordinator."""

    def reported(self, worker: WorkerId, report: Report) -> None:
        """A report was persisted."""

    def understood(self, worker: WorkerId, report: Report) -> Report:
        """A report that is new, as far as it counts, of what only the listener knows about."""
        ...

    def disbelieved(self, worker: WorkerId, report: Report) -> None:
        """A report that is new, about a repo that the worker may not speak of."""

    def open_tasks(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Those of the tasks that are not ended, and about this repo."""

    def passing(self, worker: WorkerId, progress: Progress) -> None: ...

    def beat(self, worker: WorkerId, status: WorkerStatus) -> None: ...

    def gone(self, worker: WorkerId) -> None:
        """Its connection ended."""

    def behind(self, worker: WorkerId, assign: Assign) -> Iterable[object]:
        """What the worker is to do with these at once: commands that go out right behind."""

    def began_anew(self, worker: WorkerId) -> None:
        """It does none of the tasks it was given before."""

    def undelivered(self, command: object) -> None: ...

    def alert(self, alert: Alert) -> None: ...
