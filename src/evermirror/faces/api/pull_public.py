"""What the public is told of targets: how many there are, and by its kind what went wrong there.

A public source is often pushed on to a server of somebody's own. Its address is nobody else's business, nor
is what it says, or what was put there. Token holders are told everything.
"""

from __future__ import annotations

from dataclasses import replace

from evermirror.faces.api.auth import Caller
from evermirror.model.access import Role
from evermirror.model.failure import Failure
from evermirror.model.pull import Project
from evermirror.model.task import TaskRecord

UNTOLD = "a target could not be served"


def project_for(project: Project, caller: Caller) -> Project:
    """A project as this caller may see it."""
    if caller.may(Role.READER):
        return project
    failure, paused = project.last_failure, project.paused
    theirs = [target.last_failure.message for target in project.targets if target.last_failure is not None]
    if failure is not None and (_is_of_target(failure) or failure.message in theirs):
        paused = f"{UNTOLD}: {failure.kind.value}" if paused else ""
        failure = _in_short(failure)
    return replace(project, targets=(), catalog=(), last_failure=failure, paused=paused)


def task_for(task: TaskRecord, caller: Caller) -> TaskRecord:
    """A task as this caller may see it. A sync that told of pushes has its failure from one of them."""
    if caller.may(Role.READER):
        return task
    failure, result = task.failure, task.result
    if failure is not None and (_is_of_target(failure) or (result or {}).get("pushes")):
        failure = _in_short(failure)
    if result is not None:
        result = {name: value for name, value in result.items() if name != "pushes"}
    return replace(task, failure=failure, result=result)


def _is_of_target(failure: Failure) -> bool:
    return "target_url" in failure.context


def _in_short(failure: Failure) -> Failure:
    return Failure(failure.kind, UNTOLD)
