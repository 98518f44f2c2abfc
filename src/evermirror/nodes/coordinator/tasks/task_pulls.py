"""What pull mirroring has to say about tasks; tasks.py asks, pulling.py answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from evermirror.core.fleet.machine import FleetMachine
from evermirror.model.messages import Report, SyncNow
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.nodes.coordinator.tasks.task_book import TaskBook

ASIDE_S = 10.0  # a project's sync waits so long for a worker before others go before it


class Pulls(Protocol):
    """What pull mirroring has to say about tasks."""

    def is_project(self, key: RepoKey) -> bool: ...

    def decides(self, command: SyncNow) -> bool:
        """Whether it is theirs to start; not what was asked for before the repo was a project."""
        ...

    def completed(self, command: SyncNow) -> SyncNow:
        """With its targets as they are at this moment."""
        ...

    def set_aside(self, command: SyncNow) -> None:
        """Nobody can do it now: others are to go before it."""
        ...

    def taken_up(self, command: SyncNow) -> None:
        """There is somebody for it again."""
        ...

    def reported(self, report: Report) -> None:
        """It is in the store."""
        ...


class NoPulls:
    """Nothing is pulled."""

    def is_project(self, key: RepoKey) -> bool:
        return False

    def decides(self, command: SyncNow) -> bool:
        return False

    def completed(self, command: SyncNow) -> SyncNow:
        return command

    def set_aside(self, command: SyncNow) -> None:
        return

    def taken_up(self, command: SyncNow) -> None:
        return

    def reported(self, report: Report) -> None:
        return


class Asides:
    """Tasks that pull mirroring started and nobody does: they take no room there until somebody can. A search
    rests so, between two looks at a commit that is not there."""

    def __init__(self, book: TaskBook, pulls: Callable[[], Pulls]) -> None:
        self._book = book
        self._pulls = pulls
        self._waits_since: dict[TaskId, float] = {}  # for a worker
        self._aside: dict[TaskId, SyncNow] = {}

    def step(self, machine: FleetMachine, now: float) -> None:
        """What waits for a worker for long; and what waited, and has one now."""
        ours = (c for c in self._book.waiting_commands() if isinstance(c, SyncNow))
        able = (c for c in ours if not self._book.waits_its_turn(c))
        waiting = {c.task_id: c for c in able if self._pulls().decides(c)}
        self._waits_since = {i: self._waits_since.get(i, now) for i in waiting}
        late = [c for i, c in waiting.items() if now - self._waits_since[i] >= ASIDE_S]
        if late and not machine.totals().warming:
            for command in late:
                self._book.hold(command.task_id)
                self._aside[command.task_id] = command
                self._pulls().set_aside(command)
        for task_id, command in list(self._aside.items()):
            repo = machine.repo(command.key)
            if task_id not in self._book or (repo is not None and repo.primary is not None):
                del self._aside[task_id]
                self._pulls().taken_up(command)

    def rests(self, task_id: TaskId) -> None:
        """It is looked at again later."""
        if (command := self._decided(task_id)) is not None:
            self._pulls().set_aside(command)

    def woke(self, ids: Iterable[TaskId]) -> None:
        """These are looked at again now: pull mirroring starts its own."""
        for task_id in ids:
            if (command := self._decided(task_id)) is not None:
                self._book.hold(task_id)
                self._pulls().set_aside(command)  # where it heard of the last look's begin after its end
                self._pulls().taken_up(command)

    def _decided(self, task_id: TaskId) -> SyncNow | None:
        command = self._book.command(task_id)
        return command if isinstance(command, SyncNow) and self._pulls().decides(command) else None
