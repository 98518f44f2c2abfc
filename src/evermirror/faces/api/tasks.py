"""On-demand syncs: ask for one, and see what became of it."""

from __future__ import annotations

from fastapi import APIRouter

from evermirror.errors import NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import WRITE_PROBLEMS, Api, ApiDep, CallerDep, problems
from evermirror.faces.api.inputs import NO_PARAMS, TaskIn, task_id_in
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.pull_public import task_for
from evermirror.faces.api.views import TaskSubmitted, TaskView, submitted_view, task_view
from evermirror.model.access import Role
from evermirror.model.task import TaskRecord, Trigger
from evermirror.nodes.service import TaskParams

router = APIRouter(tags=["tasks"])


@router.post(
    "/api/tasks",
    summary="Sync a repo now",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT, Kind.INVALID_URL),
)
async def submit_task(asked: TaskIn, api: ApiDep, caller: CallerDep) -> TaskView | TaskSubmitted:
    """Without `wait` the answer is the new task's id and status. With it, the answer is the whole task once
    it has ended, or as it is when the time is over. A URL that is not in the catalog is added for a submitter
    or higher; for a reader it is 404."""
    caller.need(Role.READER)
    params = asked.additional_params or NO_PARAMS
    task = await api.service.submit_task(
        asked.git_url,
        TaskParams(
            min_commit=params.min_commit.lower() if params.min_commit else None,
            force=params.force,
            priority=params.class_,
        ),
        trigger=Trigger.API,
        actor=caller.name,
        may_add=caller.may(Role.SUBMITTER),
    )
    if params.wait <= 0:
        return submitted_view(task)
    return task_view(await _ended(api, task, params.wait))


@router.get(
    "/api/tasks/{task_id}", summary="What became of a task", responses=problems(Kind.NOT_FOUND, Kind.INVALID)
)
async def get_task(task_id: str, api: ApiDep, caller: CallerDep) -> TaskView:
    """`progress` is a percentage while known; `result` is there when the task has ended."""
    task = await _find(api, task_id)
    if not await _shown_to(api, caller, task):
        raise no_such_task(task_id)
    return task_view(task_for(task, caller))


async def _ended(api: Api, task: TaskRecord, wait_s: float) -> TaskRecord:
    if task.status.ended or api.waiting >= api.settings.max_waiting:
        return task
    api.waiting += 1
    try:
        return await api.service.wait_task(task.id, wait_s)
    finally:
        api.waiting -= 1


async def _find(api: Api, task_id: str) -> TaskRecord:
    number = task_id_in(task_id)
    if number is None:
        raise no_such_task(task_id)
    try:
        return await api.service.get_task(number)
    except NotFound:
        raise no_such_task(task_id) from None


async def _shown_to(api: Api, caller: Caller, task: TaskRecord) -> bool:
    if caller.may(Role.READER):
        return True
    try:
        return not (await api.service.find_repo(task.repo)).spec.private
    except NotFound:  # removed since: nobody knows any more whether it was private
        return False


def no_such_task(task_id: str) -> ApiProblem:
    """The 404 of an unknown task."""
    return ApiProblem(Kind.NOT_FOUND, f"There is no task {task_id!r}", hint="POST /api/tasks gives an id")
