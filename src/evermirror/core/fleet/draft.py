"""A decision being made: what changed is noted once, and told at the end.

Copies are noted by key and worker and read when the decision is complete, so that several steps about one
copy are one write. Commands for a worker are gathered into few messages: assignments first, then nudges,
then releases; the rules of handover.py never want it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import UNWANTED, CopyState, Reason
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import (
    Action,
    Assign,
    Assignment,
    Command,
    CopyRow,
    Decision,
    DropCopies,
    Nudge,
    PutCopies,
    PutWorker,
    Release,
    Send,
    Write,
)
from evermirror.core.fleet.table import FleetTable
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId

T = TypeVar("T")

OUTBOX_SPARE = 8  # room left in an outbox for commands that come singly
COMMAND_ITEMS = 500  # repos named in one command: a message of some 30 kB


class PlannedRows(Sequence[CopyRow]):
    """Very many rows of a first placement, made one by one as they are read."""

    def __init__(
        self,
        table: FleetTable,
        rows: NDArray[np.int32],
        workers: NDArray[np.uint16],
        ranks: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        since_s: float,
    ) -> None:
        self._key_of = table.key_of  # a row keeps its key for as long as it has copies
        self._rows, self._workers, self._ranks, self._reasons = rows, workers, ranks, reasons
        self._since_s = since_s

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, i: int) -> CopyRow: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[CopyRow]: ...
    def __getitem__(self, i: int | slice) -> CopyRow | Sequence[CopyRow]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        return CopyRow(
            self._key_of(int(self._rows[i])),
            WorkerId(int(self._workers[i])),
            int(self._ranks[i]),
            CopyState.PLANNED,
            Reason(int(self._reasons[i])),
            self._since_s,
        )

    def __iter__(self) -> Iterator[CopyRow]:
        return (self[i] for i in range(len(self)))


class _Mail:
    """What goes to one worker."""

    __slots__ = ("assign", "delete", "nudge", "stop")

    def __init__(self) -> None:
        self.assign: dict[RepoKey, Assignment] = {}
        self.nudge: dict[RepoKey, None] = {}
        self.stop: dict[RepoKey, None] = {}
        self.delete: dict[RepoKey, int] = {}  # the digest that is covered; 0: whatever it is

    @property
    def messages(self) -> int:
        """As how many it will go, at most."""
        items = len(self.assign) + len(self.nudge) + len(self.stop) + len(self.delete)
        return items // COMMAND_ITEMS + 4

    def commands(self) -> Iterator[Command]:
        left = len(self.assign)
        for items in _chunks(list(self.assign.values())):
            left -= len(items)
            yield Assign(items, more=left > 0)
        for keys in _chunks(list(self.nudge)):
            yield Nudge(keys)
        for keys in _chunks(list(self.stop)):
            yield Release(keys, delete=False)
        for pairs in _chunks(list(self.delete.items())):
            yield Release(tuple(k for k, _ in pairs), delete=True, digests=tuple(d for _, d in pairs))


class Draft:
    """Filled by the parts of the machine, closed once by the machine itself."""

    def __init__(self, table: FleetTable, crew: Crew) -> None:
        self._table = table
        self._crew = crew
        # By key, as a row that is forgotten may go to another repo within the same decision.
        self._copies: dict[tuple[RepoKey, int], None] = {}
        self._planned: list[PutCopies] = []
        self._workers: dict[WorkerId, Member] = {}
        self._writes: list[Write] = []
        self._actions: list[Action] = []
        self._mail: dict[WorkerId, _Mail] = {}
        self.touched: dict[int, None] = {}  # rows to settle before the decision is complete

    # Writes

    def copy_changed(self, row: int, worker: int) -> None:
        self._copies[self._table.key_of(row), worker] = None

    def planned(self, rows: PlannedRows) -> None:
        self._planned.append(PutCopies(rows))

    def worker_changed(self, member: Member) -> None:
        self._workers[member.id] = member

    def write(self, write: Write) -> None:
        self._writes.append(write)

    # Actions

    def takes_for(self, member: Member) -> bool:
        """Something may be sent to it: it is there, and its outbox has room for what is gathered too."""
        if not member.ready:
            return False
        mail = self._mail.get(member.id)
        return member.outbox.room > (OUTBOX_SPARE if mail is None else OUTBOX_SPARE + mail.messages)

    def act(self, action: Action) -> None:
        self._actions.append(action)

    def assign(self, worker: WorkerId, item: Assignment) -> None:
        self._mail_to(worker).assign[item.key] = item

    def stop(self, worker: WorkerId, key: RepoKey) -> None:
        self._mail_to(worker).stop[key] = None

    def delete(self, worker: WorkerId, key: RepoKey, digest: int) -> None:
        self._mail_to(worker).delete[key] = digest

    def nudge(self, worker: WorkerId, key: RepoKey) -> None:
        self._mail_to(worker).nudge[key] = None

    def send(self, member: Member, command: Command) -> None:
        """Now, ahead of what is gathered."""
        self._actions.append(Send(member.id, member.session, member.outbox.put(command), command))

    def close(self) -> Decision:
        for worker, mail in self._mail.items():
            member = self._crew[worker]
            for command in mail.commands():
                self.send(member, command)
        return Decision(tuple(self._all_writes()), tuple(self._actions))

    def salvaged(self) -> Decision:
        """After a bug: as much as can be told of what has changed."""
        try:
            return self.close()
        except Exception:  # the same bug, met again
            return Decision(tuple(self._writes), tuple(self._actions))

    def _all_writes(self) -> Iterator[Write]:
        for member in self._workers.values():
            yield PutWorker(member.record)
        yield from self._planned
        put, dropped = self._copy_rows()
        if dropped:
            yield DropCopies(tuple(dropped))
        if put:
            yield PutCopies(tuple(put))
        yield from self._writes

    def _copy_rows(self) -> tuple[list[CopyRow], list[tuple[RepoKey, WorkerId]]]:
        table = self._table
        put, dropped = [], []
        for key, worker in self._copies:
            row = table.row_of(key)
            c = table.find_copy(row, worker) if row >= 0 else -1
            if c < 0:
                dropped.append((key, WorkerId(worker)))
                continue
            rank = int(table.c_rank[c])
            put.append(
                CopyRow(
                    key,
                    WorkerId(worker),
                    None if rank == UNWANTED else rank,
                    CopyState(int(table.c_state[c])),
                    Reason(int(table.c_reason[c])),
                    float(table.c_since[c]),
                )
            )
        return put, dropped

    def _mail_to(self, worker: WorkerId) -> _Mail:
        mail = self._mail.get(worker)
        if mail is None:
            mail = self._mail[worker] = _Mail()
        return mail


def _chunks(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(items), COMMAND_ITEMS):
        yield tuple(items[start : start + COMMAND_ITEMS])
