"""On-demand syncs: ask for one, and see what became of it."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request

from evermirror.errors import NotFound, Unavailable
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import WRITE_PROBLEMS, Api, ApiDep, CallerDep, problems
from evermirror.faces.api.inputs import NO_PARAMS, TaskIn, task_id_in
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.pull_public import task_for
from evermirror.faces.api.via import via_of
from evermirror.faces.api.views import TaskSubmitted, TaskView, submitted_view, task_view
from evermirror.model.access import Role
from evermirror.model.refs import RefsDigest
from evermirror.model.task import TaskRecord, TaskStatus, Trigger
from evermirror.nodes.service import TaskParams

RETRY_S = 5  # for a coordinator that stops to be back

router = APIRouter(tags=["tasks"])


@router.post(
    "/api/tasks",
    summary="Sync a repo now",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT, Kind.INVALID_URL),
)
async def submit_task(
    asked: TaskIn, api: ApiDep, caller: CallerDep, request: Request
) -> TaskView | TaskSubmitted:
    """Without `wait` the answer is the new task's id and status. With it, the answer is the whole task once
    it has ended, or as it is when the time is over. A `min_commit` that upstream does not have is looked for
    again, ever less often, as long as `within` (or `wait`) lasts. A URL that is not in the catalog is added
    for a submitter or higher; for a reader it is 404."""
    caller.need(Role.READER)
    began = time.monotonic()
    params = asked.additional_params or NO_PARAMS
    task = await api.service.submit_task(
        asked.git_url,
        TaskParams(
            min_commit=params.min_commit.lower() if params.min_commit else None,
            within_s=params.wait if params.within is None else params.within,
            force=params.force,
            priority=params.class_,
        ),
        trigger=Trigger.API,
        actor=caller.name,
        may_add=caller.may(Role.SUBMITTER),
    )
    if params.wait <= 0:
        return submitted_view(task)
    task = await _ended(api, task, params.wait)
    left_s = max(0.0, params.wait - (time.monotonic() - began))
    return task_view(task, served=await _served(api, request, task, left_s))


@router.get(
    "/api/tasks/{task_id}", summary="What became of a task", responses=problems(Kind.NOT_FOUND, Kind.INVALID)
)
async def get_task(task_id: str, api: ApiDep, caller: CallerDep, request: Request) -> TaskView:
    """`progress` is a percentage of the whole while known, `phase` what is done now; `result` is there when
    the task has ended."""
    task = await _find(api, task_id)
    if not await _shown_to(api, caller, task):
        raise no_such_task(task_id)
    return task_view(task_for(task, caller), served=await _served(api, request, task, 0.0))


async def _ended(api: Api, task: TaskRecord, wait_s: float) -> TaskRecord:
    if task.status.ended or api.waiting >= api.settings.max_waiting:
        return task
    api.waiting += 1
    try:
        return await api.service.wait_task(task.id, wait_s)
    except Unavailable as stopping:
        raise ApiProblem(
            Kind.UNAVAILABLE, stopping.message, hint=stopping.hint, headers={"Retry-After": str(RETRY_S)}
        ) from None
    finally:
        api.waiting -= 1


async def _served(api: Api, request: Request, task: TaskRecord, within_s: float) -> bool | None:
    """Whether the aggregator that passed this on has what the sync brought: then so do clones from there."""
    via, digest = via_of(request.scope), (task.result or {}).get("digest")
    good = task.status in (TaskStatus.SUCCESS, TaskStatus.SKIPPED)
    if via is None or api.fleet is None or not good or not isinstance(digest, str):
        return None
    if await api.fleet.serves(via.node, task.repo, RefsDigest(digest), within_s):
        return True
    try:
        newest = (await api.service.find_repo(task.repo)).digest
    except NotFound:
        return False
    return newest is not None and await api.fleet.serves(via.node, task.repo, newest, 0.0)


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
