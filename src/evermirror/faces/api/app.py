"""The HTTP application: routes over the coordinator's service, inside the layers that guard them.

HeadAsGet → Observe → SecurityHeaders → CatchAll → PassedOn → RateLimit → Gate (who asks) → BodyLimit → routes
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from evermirror import __version__
from evermirror.faces.api import (
    catalog,
    fleet,
    git,
    git_urls,
    health,
    history,
    openapi,
    overview,
    problems,
    pull_errors,
    pull_progress,
    pull_projects,
    pull_strategy,
    pull_tasks,
    repos,
    tasks,
)
from evermirror.faces.api.auth import Auth, Caller, Gate
from evermirror.faces.api.context import Api, ApiSettings, GitApi, find_visible
from evermirror.faces.api.git_service import GitService
from evermirror.faces.api.limits import BodyLimit, HeadAsGet, RateLimit, SecurityHeaders
from evermirror.faces.api.metrics import Metrics, Observe
from evermirror.faces.api.problems import ApiProblem
from evermirror.faces.api.text import printable
from evermirror.faces.api.via import PassedOn, PassReader
from evermirror.faces.web import pages
from evermirror.nodes.pull_service import PullService
from evermirror.nodes.service import CatalogService, CoordinatorService, FleetService

_PULL = (pull_strategy, pull_progress, pull_projects, pull_tasks, pull_errors)
_PARTS = (tasks, git_urls, history, repos, catalog, fleet, *_PULL, overview, health, git, pages)

_MAX_NAMED = 10


def create_app(
    service: CoordinatorService,
    auth: Auth,
    settings: ApiSettings,
    metrics: Metrics,
    git_service: GitService | None = None,
    catalog_service: CatalogService | None = None,
    fleet_service: FleetService | None = None,
    read_pass: PassReader | None = None,
    pull_service: PullService | None = None,
) -> FastAPI:
    """Nothing starts here: the caller runs the application in its own server."""
    app = FastAPI(
        title="evermirror",
        version=__version__,
        docs_url=None,  # ours needs no other host: see faces/web
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(HeadAsGet),
            Middleware(Observe, metrics=metrics),
            Middleware(SecurityHeaders),
            Middleware(problems.CatchAll),
            Middleware(PassedOn, read=read_pass),
            Middleware(RateLimit, settings=settings.limits),
            Middleware(Gate, auth=auth),
            Middleware(BodyLimit, settings=settings.limits),
        ],
    )
    app.state.api = Api(service, settings, metrics, git_service, catalog_service, fleet_service, pull_service)
    app.state.git_api = GitApi(git_service, settings, _Aggregators(app.state.api).of)
    routers = [part.router for part in _PARTS]
    for router in routers:
        app.include_router(router)
    problems.install(app, [route for router in routers for route in router.routes])
    app.openapi = openapi.document(app)  # type: ignore[method-assign]
    return app


class _Aggregators:
    """Whom git clients are sent to where this node has no mirrors."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def of(self, key: str, caller: Caller) -> list[str] | None:
        try:
            await find_visible(self._api, caller, key)
        except ApiProblem:
            return None
        there = self._api.fleet.view().aggregators if self._api.fleet is not None else ()
        return [printable(one.name) for one in there if one.connected][:_MAX_NAMED]
