"""Tasks that are with somebody who will not end them: taken back, and not given out for ever."""

from __future__ import annotations

from evermirror.core.fleet.machine import FleetMachine
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.worker import Liveness
from evermirror.nodes.coordinator.tasks.task_book import TaskBook, TaskCommand

LOSSES_MAX = 5  # workers that may be lost while they do a task, before it is taken for the reason
CHECKED = 1_000  # tasks of which one look asks whether their worker may still speak of the repo: 2 ms


def take_back(book: TaskBook, machine: FleetMachine) -> None:
    """What those have who are silent, or whose word does not count any more, is done by others."""
    for worker in book.workers():
        record = machine.record(worker)
        if record is None or record.liveness is not Liveness.ALIVE:
            book.silent(worker)
    for task_id, key, worker in book.some_given(CHECKED):
        if not machine.speaks_for(key, worker):
            book.take_from(worker, (task_id,))


def lost_too_often(book: TaskBook) -> list[tuple[TaskCommand, Failure]]:
    """Those that wait and are not given out again, and why."""
    return [(command, _worn_out()) for command in book.waiting_commands() if is_worn_out(book, command)]


def is_worn_out(book: TaskBook, command: TaskCommand) -> bool:
    return book.losses(command.task_id) >= LOSSES_MAX


def _worn_out() -> Failure:
    return Failure(
        FailureKind.UNKNOWN,
        f"given up: {LOSSES_MAX} times the worker was lost while it did this",
        hint="Look at the logs of the workers that have the repo: memory and disk that git needs for it",
    )
