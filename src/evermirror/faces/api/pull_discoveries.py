"""Discovery: groups at forges whose projects are mirrored, as they come, are renamed and go.

Nothing of this is public: it names servers, groups and credentials.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse

from evermirror.errors import NotFound
from evermirror.faces.api.context import WRITE_PROBLEMS, Api, ApiDep, CallerDep, problems
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_discovery_inputs import (
    DiscoveryChangeIn,
    DiscoveryIn,
    RunIn,
    discovery_id_in,
)
from evermirror.faces.api.pull_discovery_views import (
    BoundList,
    DiscoveryList,
    DiscoveryOut,
    DiscoveryRemoved,
    PreviewOut,
    StateText,
    bound_list,
    discovery_out,
    preview_out,
)
from evermirror.faces.api.pull_inputs import PageLimitQuery, PageQuery, SizeQuery, size_of
from evermirror.faces.api.text import printable
from evermirror.model.access import Role
from evermirror.model.discovery import BoundState, DiscoveryId
from evermirror.nodes.discovery_service import DiscoveryService

BASE = "/api/pull/discoveries"
_PAGE = 50

router = APIRouter(tags=["pull"])

IdPath = Annotated[str, Path(description="The number of a discovery", max_length=100)]
StateQuery = Annotated[StateText | None, Query(description="Only those")]

_READ = problems(Kind.NOT_FOUND, Kind.INVALID)
_ORDER = problems(Kind.NOT_FOUND, Kind.INVALID, Kind.CONFLICT)
_WRITE = problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT, Kind.INVALID_URL)


@router.post(
    BASE,
    summary="Follow a group",
    status_code=201,
    response_model=DiscoveryOut,
    responses={202: {"model": PreviewOut, "description": "A dry run has begun"}, **_WRITE},
)
async def create_discovery(asked: DiscoveryIn, api: ApiDep, caller: CallerDep) -> DiscoveryOut | JSONResponse:
    """Its projects are mirrored from now on; the first run starts at once. With `dry_run` nothing is
    changed anywhere: 202, and `GET …/previews/{id}` has what would be done. 409 where it is followed
    already."""
    caller.need(Role.OPERATOR)
    service = discoveries_of(api)
    if not asked.dry_run:
        return discovery_out(await service.create(asked.spec(), actor=caller.name))
    preview = preview_out(await service.preview(asked.spec(), actor=caller.name))
    return JSONResponse(preview.model_dump(mode="json"), status_code=202)


@router.get(BASE, summary="Groups that are followed", responses=_READ)
async def list_discoveries(api: ApiDep, caller: CallerDep) -> DiscoveryList:
    """With their runs, and how many projects each has."""
    caller.need(Role.READER)
    found = await discoveries_of(api).discoveries()
    return DiscoveryList(items=[discovery_out(view) for view in found], total=len(found))


@router.get(f"{BASE}/previews/{{preview_id}}", summary="What a dry run found", responses=_READ)
async def get_preview(
    preview_id: Annotated[str, Path(max_length=100)], api: ApiDep, caller: CallerDep
) -> PreviewOut:
    """Kept for an hour."""
    caller.need(Role.READER)
    return preview_out(await discoveries_of(api).preview_of(printable(preview_id)))


@router.get(f"{BASE}/{{discovery_id}}", summary="One of them", responses=_READ)
async def get_discovery(discovery_id: IdPath, api: ApiDep, caller: CallerDep) -> DiscoveryOut:
    """With the run under way, for who waits for it."""
    caller.need(Role.READER)
    return discovery_out(await discoveries_of(api).discovery(_id(discovery_id)))


@router.get(f"{BASE}/{{discovery_id}}/projects", summary="What was found", responses=_READ)
async def list_found(
    discovery_id: IdPath,
    api: ApiDep,
    caller: CallerDep,
    state: StateQuery = None,
    page: PageQuery = 1,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
) -> BoundList:
    """By path: what stands for each here, and of those that were refused why."""
    caller.need(Role.READER)
    found = await discoveries_of(api).found(
        _id(discovery_id),
        state=BoundState(state) if state is not None else None,
        page=page,
        size=size_of(limit, size, _PAGE),
    )
    return bound_list(found)


@router.post(f"{BASE}/{{discovery_id}}/run", summary="Look at a group now", responses=_WRITE)
async def run_discovery(
    discovery_id: IdPath, api: ApiDep, caller: CallerDep, asked: RunIn | None = None
) -> DiscoveryOut:
    """At once; one under way is answered. `accept`: removals that wait for a person are carried out."""
    caller.need(Role.OPERATOR)
    accept = asked.accept if asked is not None else False
    view = await discoveries_of(api).run(_id(discovery_id), accept=accept, actor=caller.name)
    return discovery_out(view)


@router.put(f"{BASE}/{{discovery_id}}", summary="Change what is followed", responses=_WRITE)
async def change_discovery(
    discovery_id: IdPath, asked: DiscoveryChangeIn, api: ApiDep, caller: CallerDep
) -> DiscoveryOut:
    """What is not given stays. A run under way begins anew. What was made stays as it is."""
    caller.need(Role.OPERATOR)
    service, number = discoveries_of(api), _id(discovery_id)
    known = (await service.discovery(number)).discovery
    enabled = asked.is_enabled(known.enabled)
    return discovery_out(await service.change(number, asked.over(known.spec), enabled, actor=caller.name))


@router.delete(f"{BASE}/{{discovery_id}}", summary="Follow a group no longer", responses=_ORDER)
async def remove_discovery(discovery_id: IdPath, api: ApiDep, caller: CallerDep) -> DiscoveryRemoved:
    """The projects that it made stay as they are, here and at the target."""
    caller.need(Role.OPERATOR)
    number = _id(discovery_id)
    await discoveries_of(api).remove(number, actor=caller.name)
    return DiscoveryRemoved(id=number)


def discoveries_of(api: Api) -> DiscoveryService:
    """404 at a server that leads none."""
    if api.discoveries is None:
        raise NotFound("this server does no pull mirroring", hint="Ask its coordinator")
    return api.discoveries


def _id(text: str) -> DiscoveryId:
    return DiscoveryId(discovery_id_in(text))
