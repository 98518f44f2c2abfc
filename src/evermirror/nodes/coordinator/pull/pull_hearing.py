"""What workers report of projects, and what the store remembers of it, as events of the pull machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from evermirror.core.pull.events import Event, FailureExcused, TaskBegan, TaskEnded, TaskOpened
from evermirror.edge.store.outcomes import outcome_of, pushes_of
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Excused, Failed, Refused, Report, Started, Synced
from evermirror.model.pull import Project
from evermirror.model.push import Pushed, PushTo, TargetId
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord, TaskStatus

PROTOCOL_OF_PUSHES = 3  # the first whose workers know them
TOO_OLD = Failure(
    FailureKind.UNKNOWN, "its worker is too old to push", hint="Bring the worker to the coordinator's version"
)


def events_of(
    report: Report, is_project: Callable[[RepoKey], bool], told: tuple[PushTo, ...] = ()
) -> Iterator[Event]:
    """What the machine hears of a report that is in the store; ``told``: what its tasks were to push."""
    match report:
        case Started() if is_project(report.key):
            for task_id in report.task_ids:
                yield TaskBegan(report.key, task_id, report.at)
        case Synced() | Failed() | Refused() if is_project(report.key):
            outcome = outcome_of(report)
            for task_id in report.task_ids:
                yield TaskEnded(
                    report.key,
                    task_id,
                    outcome.status,
                    outcome.started_at,
                    outcome.ended_at,
                    failure=outcome.failure,
                    counted=report.counted if isinstance(report, Failed) else True,
                    pushes=report.pushes if isinstance(report, Synced) else (),
                    look_s=report.look_s if isinstance(report, Synced) else None,
                    refused=isinstance(report, Refused),
                    told=told,
                )
        case Excused():
            yield from (FailureExcused(key) for key in report.keys if is_project(key))
        case _:
            return


def understood(
    report: Report,
    project: Callable[[RepoKey], Project | None],
    asked: Callable[[tuple[TaskId, ...]], Mapping[TargetId, PushTo]],
    protocol: int,
) -> Report:
    """A worker's word about pushes, as far as it counts; ``asked``: what its tasks were told to push."""
    if not isinstance(report, Synced) or not (report.pushes or report.task_ids):
        return report
    found = project(report.key)
    known = frozenset(target.id for target in found.targets) if found is not None else frozenset()
    return replace(report, pushes=pushes_told(report, asked(report.task_ids), known, protocol))


def pushes_told(
    report: Synced, asked: Mapping[TargetId, PushTo], known: frozenset[TargetId], protocol: int
) -> tuple[Pushed, ...]:
    """The pushes of a report that count: to targets of its project. A worker that does not know pushes made
    none of those it was asked for; one that does may tell of fewer: it was asked again, and for others,
    while it was at it."""
    told = tuple(push for push in report.pushes if push.target in known)
    if protocol >= PROTOCOL_OF_PUSHES:
        return told
    silent = asked.keys() & known - {push.target for push in told}
    untold = (
        Pushed(target, None, failure=TOO_OLD, started_at=report.started_at, ended_at=report.ended_at)
        for target in sorted(silent)
    )
    return (*told, *untold)


def reopened(task: TaskRecord) -> Iterator[Event]:
    """A task that a stop left open, as the machine hears of it again."""
    yield TaskOpened(task.repo, task.id, task.trigger)
    if task.status is TaskStatus.RUNNING:
        yield TaskBegan(task.repo, task.id, task.started_at or task.scheduled_at)


def ended(task: TaskRecord) -> TaskEnded:
    """A task's end that a crash kept from its project, from what the store has of it."""
    result = task.result or {}
    ended_at = task.completed_at or task.updated_at
    return TaskEnded(
        task.repo,
        task.id,
        task.status,
        task.started_at or ended_at,
        ended_at,
        failure=task.failure,
        counted=result.get("counted") is not False,
        pushes=pushes_of(task.result),
        refused=task.result is None and task.failure is not None,
    )
