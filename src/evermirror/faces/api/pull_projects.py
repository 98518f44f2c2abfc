"""Projects of pull mirroring: made, listed, configured, brought back to work, removed."""

from __future__ import annotations

from fastapi import APIRouter

from evermirror.faces.api.context import (
    WRITE_PROBLEMS,
    ApiDep,
    CallerDep,
    KeyPath,
    problems,
    pull_of,
    visible_project,
)
from evermirror.faces.api.inputs import SearchQuery
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import (
    AdoptIn,
    ConfigIn,
    PageLimitQuery,
    PageQuery,
    PriorityBatchIn,
    PriorityQuery,
    ProjectIn,
    SizeQuery,
    size_of,
)
from evermirror.faces.api.pull_paths import BASE, ONE, ProjectRoute
from evermirror.faces.api.pull_tasks import refuse_all_unknown
from evermirror.faces.api.pull_views import (
    PriorityUpdated,
    ProjectList,
    ProjectOut,
    ProjectRemoved,
    project_list,
    project_out,
)
from evermirror.faces.api.text import printable
from evermirror.model.access import Role
from evermirror.model.repo import Priority

router = APIRouter(tags=["pull"], route_class=ProjectRoute)

_READ = problems(Kind.NOT_FOUND, Kind.INVALID)
_ORDER = problems(Kind.NOT_FOUND, Kind.INVALID, Kind.CONFLICT)
_WRITE = problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT, Kind.INVALID_URL)


@router.post(BASE, summary="Create a project", status_code=201, responses=_WRITE)
async def create_project(asked: ProjectIn, api: ApiDep, caller: CallerDep) -> ProjectOut:
    """Due at once. 409 where the key or the source is there already."""
    caller.need(Role.OPERATOR)
    return project_out(await pull_of(api).create_project(asked.new(), actor=caller.name), caller)


@router.get(BASE, summary="List and search projects", responses=_READ)
async def list_projects(
    api: ApiDep,
    caller: CallerDep,
    search: SearchQuery = "",
    priority: PriorityQuery = None,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
    page: PageQuery = 1,
) -> ProjectList:
    """Those with a pull configuration, by name, fifty to a page; private ones for token holders only."""
    found = await pull_of(api).list_projects(
        search=search,
        priority=Priority(priority) if priority is not None else None,
        page=page,
        size=size_of(limit, size, 50),
        public=not caller.may(Role.READER),
    )
    return project_list(found, caller)


@router.post(f"{BASE}/batch-update-priority", summary="Set the class of many", responses=_WRITE)
async def batch_update_priority(asked: PriorityBatchIn, api: ApiDep, caller: CallerDep) -> PriorityUpdated:
    """Those that are known are changed, the others named in `not_found`; 404 where none is known."""
    caller.need(Role.OPERATOR)
    names = tuple(dict.fromkeys(asked.projects))
    done = await pull_of(api).set_priority(names, Priority(asked.priority), actor=caller.name)
    refuse_all_unknown(names, done.unknown)
    return PriorityUpdated(
        updated=done.updated, priority=asked.priority, not_found=[printable(name) for name in done.unknown]
    )


@router.get(f"{ONE}/config", summary="Configuration of a project", responses=_READ)
async def get_config(key: KeyPath, api: ApiDep, caller: CallerDep) -> ProjectOut:
    """And when it was and will be pulled, and how often it failed."""
    return project_out(await visible_project(api, caller, key, planned=True), caller)


@router.put(f"{ONE}/config", summary="Configure a project", responses=_WRITE)
async def put_config(key: KeyPath, asked: ConfigIn, api: ApiDep, caller: CallerDep) -> ProjectOut:
    """What is not given stays. It holds whatever the catalog says, until it is reset; any repo may be
    configured, and is then pulled at its interval."""
    caller.need(Role.OPERATOR)
    view = await visible_project(api, caller, key)
    changed = await pull_of(api).change_project(view.record.key, asked.change(), actor=caller.name)
    return project_out(changed, caller)


@router.delete(f"{ONE}/config", summary="Take back what was configured here", responses=_ORDER)
async def reset_config(key: KeyPath, api: ApiDep, caller: CallerDep) -> ProjectOut:
    """The catalog's word holds again, or the defaults."""
    caller.need(Role.OPERATOR)
    view = await visible_project(api, caller, key)
    return project_out(await pull_of(api).reset_project(view.record.key, actor=caller.name), caller)


@router.post(f"{ONE}/reset-failures", summary="Have a project pulled again", responses=_ORDER)
async def reset_failures(key: KeyPath, api: ApiDep, caller: CallerDep) -> ProjectOut:
    """Its failures and its targets' are forgotten; it is enabled, and due at once."""
    caller.need(Role.OPERATOR)
    view = await visible_project(api, caller, key)
    return project_out(await pull_of(api).reset_failures(view.record.key, actor=caller.name), caller)


@router.post(f"{ONE}/targets/adopt", summary="Overwrite what is at a target", responses=_WRITE)
async def adopt_target(
    key: KeyPath, api: ApiDep, caller: CallerDep, asked: AdoptIn | None = None
) -> ProjectOut:
    """Where a push is in conflict: the next one, due at once, may overwrite what is there. Without a `url`
    this is about all targets; the body may be left out."""
    caller.need(Role.OPERATOR)
    view = await visible_project(api, caller, key)
    url = asked.url if asked is not None else None
    return project_out(await pull_of(api).adopt_target(view.record.key, url, actor=caller.name), caller)


@router.get(ONE, summary="One project in full", responses=_READ)
async def get_project(key: KeyPath, api: ApiDep, caller: CallerDep) -> ProjectOut:
    """By project key, repo key or URL."""
    return project_out(await visible_project(api, caller, key, planned=True), caller)


@router.delete(ONE, summary="Remove a project", responses=_ORDER)
async def remove_project(key: KeyPath, api: ApiDep, caller: CallerDep) -> ProjectRemoved:
    """It is no longer mirrored, and its mirror goes to the trash; its targets stay as they are. 409 for one
    that the catalog names."""
    caller.need(Role.OPERATOR)
    view = await visible_project(api, caller, key)
    await pull_of(api).delete_project(view.record.key, actor=caller.name)
    return ProjectRemoved(project_key=printable(view.project.name))
