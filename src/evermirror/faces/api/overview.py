"""The figures of the whole house, their course over time, and the version."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from evermirror import __version__
from evermirror.core.watch.steps import step_of
from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.context import Api, ApiDep, CallerDep, problems
from evermirror.faces.api.overview_views import (
    CourseView,
    OverviewView,
    ShownOverview,
    course_point_view,
    overview_view,
)
from evermirror.faces.api.problems import Kind
from evermirror.model.access import Role
from evermirror.nodes.service import Overview, Running

_MAX_RUNNING_TOLD = 100  # a page shows no more
_MAX_ALERTS_TOLD = 10
_HOURS_MAX = 168
_HOUR_S = 3600.0

router = APIRouter(tags=["overview"])

HoursQuery = Annotated[int, Query(ge=1, le=_HOURS_MAX, description="So many, up to now; at most a week")]


class VersionView(BaseModel):
    """What runs here."""

    name: str
    version: str


@router.get("/api/overview", summary="Is everything fresh, and if not, what is wrong?", responses=problems())
async def get_overview(api: ApiDep, caller: CallerDep) -> OverviewView:
    """Figures as of `now`. Hosts, warnings, alerts and names of repos that fail are told to token holders,
    and to this machine's own user. `GET /api/events?overview=true` tells the same whenever it changed."""
    return overview_view(await shown_overview(api, reader=caller.may(Role.READER)), __version__)


@router.get(
    "/api/overview/course",
    summary="How fresh everything was over time",
    responses=problems(Kind.INVALID),
)
async def get_course(api: ApiDep, hours: HoursQuery = 24) -> CourseView:
    """Oldest first, at most 300 points; the last one is now. Points are noted every five minutes and kept
    for a week; where a step is longer than that, it tells the worst of its time. `polls`, `changes` and
    `received_bytes` are since the point before; null for the first after the coordinator started."""
    points = await api.service.course(hours)
    return CourseView(items=[course_point_view(point) for point in points], step_s=step_of(hours * _HOUR_S))


@router.get("/api/version", summary="What runs here", responses=problems())
async def get_version() -> VersionView:
    """Name and version."""
    return VersionView(name="evermirror", version=__version__)


async def shown_overview(api: Api, *, reader: bool) -> ShownOverview:
    """What a caller is shown: one with a token, or the public."""
    overview = await api.service.overview()
    running = overview.running[:_MAX_RUNNING_TOLD]
    if reader:
        alerts = api.alerts.standing(_MAX_ALERTS_TOLD) if api.alerts is not None else None
        return ShownOverview(overview, running, alerts)
    public = tuple([one for one in running if await _is_public(api, one)])
    return ShownOverview(_without_names(overview), public, None)


def _without_names(overview: Overview) -> Overview:
    """Of private repos and their hosts, and of files of the catalog."""
    failures = tuple(replace(one, sample=()) for one in overview.failures)
    return replace(overview, hosts=(), warnings=(), failures=failures)


async def _is_public(api: Api, running: Running) -> bool:
    try:
        return not (await api.service.find_repo(running.sync.key)).spec.private
    except (NotFound, InvalidUrl):  # a worker told it
        return False
