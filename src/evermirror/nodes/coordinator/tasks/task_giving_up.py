"""Ends what nobody can do or need do any more: with a reason, so many at a time, in one write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.machine import FleetMachine
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import writes_of
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Refused, SyncNow
from evermirror.model.task import TaskId
from evermirror.nodes.coordinator.tasks.task_book import TaskBook, TaskCommand
from evermirror.nodes.coordinator.tasks.task_lost import lost_too_often
from evermirror.nodes.coordinator.tasks.task_pulls import Pulls
from evermirror.nodes.coordinator.tasks.task_searches import Searches
from evermirror.nodes.coordinator.tasks.task_waits import Patience, nobody_came

AT_ONCE = 1_000  # the rest has its turn the next time


class GivingUp:
    """``told`` hears of each end once it is in the store."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        clock: Callable[[], float],
        book: TaskBook,
        told: Callable[[Refused], None],
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._book = book
        self._told = told

    async def worn_out(self) -> None:
        """What took too many workers with it."""
        await self._refuse(lost_too_often(self._book)[:AT_ONCE])

    async def gone(self, commands: Sequence[TaskCommand]) -> None:
        """Those whose repo left the catalog."""
        commands = commands[:AT_ONCE]
        known = await self._store.find_repos({command.key for command in commands}) if commands else {}
        left = Failure(FailureKind.NOT_FOUND, "the repo left the catalog")
        await self._refuse([(command, left) for command in commands if command.key not in known])

    async def late(
        self, machine: FleetMachine, pulls: Pulls, patience: Patience, searches: Searches, now: float
    ) -> None:
        """What nobody could be given for long; projects wait for their turn however long it takes. Also what
        looked for a commit, and its time is over."""
        late = patience.over(self._book.waiting_commands(), now)
        late = [c for c in late if not self._book.waits_its_turn(c)]
        late = [c for c in late if not (isinstance(c, SyncNow) and pulls.decides(c))]
        ends: dict[TaskId, tuple[TaskCommand, Failure]] = {}
        for command in late[:AT_ONCE]:
            repo = machine.repo(command.key)
            held = repo is not None and any(c.state is CopyState.HELD for c in repo.copies)
            failure = nobody_came(patience.patience_s, machine.totals(), has_holder=held)
            ends[command.task_id] = command, failure
        if patience.may_end(now):
            for task_id, failure in searches.overdue(now):
                idle = self._book.idle(task_id)
                if idle is not None and not self._book.waits_its_turn(idle):
                    ends[task_id] = idle, failure
        await self._refuse(list(ends.values()))

    async def _refuse(self, ends: Sequence[tuple[TaskCommand, Failure]]) -> None:
        now = self._clock()
        reports = [Refused(command.key, (command.task_id,), failure, now, now) for command, failure in ends]
        if reports:
            await self._recorder.put(*(write for report in reports for write in writes_of(report)))
            await self._recorder.flush()
        for report in reports:
            self._told(report)


def is_gone(machine: FleetMachine, command: TaskCommand) -> bool:
    """The fleet does not know its repo, or no longer."""
    repo = machine.repo(command.key)
    return repo is None or repo.removed
