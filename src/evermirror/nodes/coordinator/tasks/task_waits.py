"""How long tasks wait for a worker that can do them, and people for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from evermirror.core.fleet.views import Totals
from evermirror.errors import Unavailable
from evermirror.model.duration import format_duration
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.task import TaskId, TaskRecord, TaskStatus
from evermirror.nodes.coordinator.tasks.task_book import TaskCommand

PATIENCE_S = 3600.0  # of fleet.task_patience, where nobody says otherwise
RETURN_S = 60.0  # after a start, for workers to be back: nothing is given up before


class Patience:
    """Tasks that nobody could be given, since when. A task counts from when it was asked for, also across
    restarts; one that a worker had counts from when it lost it."""

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self.patience_s = patience_s
        self._asked_at: dict[TaskId, float] = {}  # of those that no worker had
        self._since: dict[TaskId, float] = {}  # of those that wait now
        self._earliest = clock() + min(patience_s, RETURN_S)

    def entered(self, task: TaskRecord) -> None:
        if task.status is TaskStatus.PENDING:
            self._asked_at[task.id] = task.created_at

    def given(self, task_id: TaskId) -> None:
        """A worker that is there has it, or it has ended."""
        self._asked_at.pop(task_id, None)

    def may_end(self, now: float) -> bool:
        """Workers have had time to be back after our start."""
        return now >= self._earliest

    def over(self, waiting: Iterable[TaskCommand], now: float) -> list[TaskCommand]:
        """Those that have waited long enough, of all that wait now."""
        commands = {command.task_id: command for command in waiting}
        self._since = {i: self._asked_at.get(i, self._since.get(i, now)) for i in commands}
        if not self.may_end(now):
            return []
        return [c for i, c in commands.items() if now - self._since[i] >= self.patience_s]


class Waiters:
    """People who wait for tasks to end."""

    def __init__(self) -> None:
        self._events: dict[TaskId, set[asyncio.Event]] = {}  # one for each
        self._closed = False

    @asynccontextmanager
    async def until_end(self, task_id: TaskId, timeout_s: float) -> AsyncIterator[asyncio.Event]:
        """So long at most; the event comes with the task's end, or with ours."""
        event = asyncio.Event()
        if self._closed:
            event.set()
        self._events.setdefault(task_id, set()).add(event)
        try:
            async with asyncio.timeout(timeout_s):
                yield event
        except TimeoutError:
            pass
        finally:
            self._events[task_id].discard(event)
            if not self._events[task_id]:
                del self._events[task_id]

    def ended(self, task_id: TaskId) -> None:
        for event in self._events.get(task_id, ()):
            event.set()

    def close(self) -> None:
        """Nobody waits from now on."""
        self._closed = True
        for task_id in self._events:
            self.ended(task_id)

    def check_open(self, task_id: TaskId) -> None:
        """``Unavailable`` where we stop before the task has ended."""
        if self._closed:
            raise Unavailable(
                f"the coordinator stops; task {task_id} goes on when it is back",
                hint=f"Ask GET /api/tasks/{task_id} in a moment; there is no need to ask for the sync again",
            )


def nobody_came(patience_s: float, totals: Totals, *, has_holder: bool) -> Failure:
    """What those are told whose task no worker could be given."""
    if not totals.workers:
        why = "no worker has joined"
    elif not totals.alive:
        why = f"none of the {totals.workers} workers is there"
    elif has_holder:
        why = "the worker that holds the repo is away or in quarantine, and no other has a copy"
    else:
        why = "the repo has no place: no worker takes it"
    return Failure(
        FailureKind.UNKNOWN,
        f"no worker took this within {format_duration(patience_s)}: {why}",
        hint="`evermirror workers` says who is there; ask again when one is",
    )
