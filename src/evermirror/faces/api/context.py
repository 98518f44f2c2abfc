"""What every route gets: the service behind the API, and who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.event_door import EventDoor
from evermirror.faces.api.git_service import GitService
from evermirror.faces.api.hook_door import HookDoor
from evermirror.faces.api.inputs import is_clean
from evermirror.faces.api.limits import LimitSettings
from evermirror.faces.api.metrics import Metrics
from evermirror.faces.api.overview_board import OverviewBoard
from evermirror.faces.api.problems import MEDIA_TYPE, ApiProblem, Kind
from evermirror.model.access import Role
from evermirror.model.repo import RepoRecord
from evermirror.nodes.alert_service import AlertService
from evermirror.nodes.bulk_service import BulkService
from evermirror.nodes.discovery_service import DiscoveryService
from evermirror.nodes.event_service import EventService
from evermirror.nodes.hook_service import HookService
from evermirror.nodes.pull_service import ProjectView, PullService
from evermirror.nodes.service import CatalogService, CoordinatorService, FleetService


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Bounds of the API; who may do what is in AuthSettings."""

    limits: LimitSettings = field(default_factory=LimitSettings)
    max_waiting: int = (
        1_000  # callers that wait for a task at once; more are answered at once, as if wait were 0
    )
    git_silence_s: float = 300.0  # a git client that takes nothing for this long is left


@dataclass(frozen=True, slots=True)
class GitApi:
    """What the routes for git clients need: also at a node that has no other part of the API. Without a
    ``git``, ``aggregators`` names those that are there; None for a repo that the caller is not to know of.
    ``hides_repos``: see Auth."""

    git: GitService | None
    settings: ApiSettings
    hides_repos: Callable[[], Awaitable[bool]]
    aggregators: Callable[[str, Caller], Awaitable[list[str] | None]] | None = None


@dataclass(slots=True)
class Api:
    """The one object behind all routes; ``waiting`` counts the callers that wait for a task."""

    service: CoordinatorService
    settings: ApiSettings
    metrics: Metrics
    git: GitService | None
    catalog: CatalogService | None = None
    fleet: FleetService | None = None
    pull: PullService | None = None
    alerts: AlertService | None = None
    discoveries: DiscoveryService | None = None
    hooks: HookService | None = None
    events: EventService | None = None
    bulk: BulkService | None = None
    event_door: EventDoor = field(default_factory=EventDoor)
    hook_door: HookDoor = field(default_factory=HookDoor)
    overview_board: OverviewBoard = field(default_factory=OverviewBoard)
    waiting: int = 0


# Not awaited, but async: others would each be run in a thread, which costs more than the whole request.
async def _api_of(request: Request) -> Api:
    api = request.app.state.api
    assert isinstance(api, Api)  # noqa: S101 - create_app put it there
    return api


async def _git_api_of(request: Request) -> GitApi:
    api = request.app.state.git_api
    assert isinstance(api, GitApi)  # noqa: S101 - whoever made the application put it there
    return api


async def _caller_of(request: Request) -> Caller:
    caller = request.state.caller
    assert isinstance(caller, Caller)  # noqa: S101 - the gate put it there
    return caller


ApiDep = Annotated[Api, Depends(_api_of)]
GitApiDep = Annotated[GitApi, Depends(_git_api_of)]
CallerDep = Annotated[Caller, Depends(_caller_of)]
KeyPath = Annotated[
    str,
    Path(
        description="Key or URL of a repo, plain or percent-encoded, with or without .git", max_length=2_100
    ),
]

Responses = dict[int | str, dict[str, Any]]


def problems(*kinds: Kind) -> Responses:
    """The documented refusals of a route; 401, 403, 429 and 503 (no database) are possible everywhere."""
    told = {Kind.UNAUTHORIZED, Kind.FORBIDDEN, Kind.TOO_MANY, Kind.UNAVAILABLE, *kinds}
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {k.status: {"description": k.title, "content": {MEDIA_TYPE: schema}} for k in Kind if k in told}


WRITE_PROBLEMS = (Kind.MALFORMED, Kind.TIMEOUT, Kind.TOO_LARGE, Kind.MEDIA_TYPE, Kind.INVALID)


async def find_visible(api: Api, caller: Caller, key_or_url: str) -> RepoRecord:
    """The repo, or 404: also where it is private and the caller is the public, in the same words."""
    try:
        record = await api.service.find_repo(key_or_url)
    except (NotFound, InvalidUrl):
        raise no_such_repo(key_or_url) from None
    if not shown_to(caller, record):
        raise no_such_repo(key_or_url)
    return record


def shown_to(caller: Caller, record: RepoRecord) -> bool:
    """Private repos are shown to token holders only."""
    return not record.spec.private or caller.may(Role.READER)


def no_such_repo(key_or_url: str) -> ApiProblem:
    """The 404 of an unknown repo."""
    return ApiProblem(
        Kind.NOT_FOUND,
        f"{key_or_url!r} is not in the catalog",
        hint="Add it by POST /api/git_urls, or look for it by GET /api/git_urls?search=",
    )


def pull_of(api: Api) -> PullService:
    """What is asked about pull mirroring; 404 at a server that leads none."""
    if api.pull is None:
        raise NotFound("this server does no pull mirroring", hint="Ask its coordinator")
    return api.pull


async def visible_project(api: Api, caller: Caller, name: str, *, planned: bool = False) -> ProjectView:
    """The project, or 404: also where it is private and the caller is the public, in the same words.
    ``planned``: with the times that its worker alone may know."""
    if not is_clean(name):
        raise no_such_project(name)
    try:
        view = await pull_of(api).find_project(name, planned=planned)
    except (NotFound, InvalidUrl):
        raise no_such_project(name) from None
    if not shown_to(caller, view.record):
        raise no_such_project(name)
    return view


def no_such_project(name: str) -> ApiProblem:
    """The 404 of an unknown project."""
    return ApiProblem(
        Kind.NOT_FOUND,
        f"There is no project {name!r}",
        hint="Create it by POST /api/pull/projects, or look for it by GET /api/pull/projects?search=",
    )
