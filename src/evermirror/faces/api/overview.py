"""The figures of the whole house, and its version."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from pydantic import BaseModel

from evermirror import __version__
from evermirror.errors import NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import Api, ApiDep, CallerDep, problems
from evermirror.faces.api.overview_views import OverviewView, overview_view
from evermirror.model.access import Role
from evermirror.model.messages import RunningSync

_MAX_RUNNING_TOLD = 100  # a page shows no more

router = APIRouter(tags=["overview"])


class VersionView(BaseModel):
    """What runs here."""

    name: str
    version: str


@router.get("/api/overview", summary="Is everything fresh, and if not, what is wrong?", responses=problems())
async def get_overview(api: ApiDep, caller: CallerDep) -> OverviewView:
    """Figures as of `now`. Hosts and warnings are told to token holders, and to this machine's own user."""
    overview = await api.service.overview()
    if not caller.may(Role.READER):  # names of private repos' hosts, paths of catalog files
        overview = replace(overview, hosts=(), warnings=())
    running = [r for r in overview.running[:_MAX_RUNNING_TOLD] if await _shown(api, caller, r)]
    return overview_view(overview, tuple(running), __version__)


@router.get("/api/version", summary="What runs here", responses=problems())
async def get_version() -> VersionView:
    """Name and version."""
    return VersionView(name="evermirror", version=__version__)


async def _shown(api: Api, caller: Caller, sync: RunningSync) -> bool:
    if caller.may(Role.READER):
        return True
    try:
        return not (await api.service.find_repo(sync.key)).spec.private
    except NotFound:
        return False
