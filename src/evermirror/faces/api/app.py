"""The HTTP application: routes over the coordinator's service, inside the layers that guard them.

HeadAsGet → Observe → SecurityHeaders → CatchAll → PassedOn → RateLimit → Gate (who asks) → GitLimit →
BodyLimit → routes
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from evermirror import __version__
from evermirror.faces.api import (
    alerts,
    bulk,
    catalog,
    event_hooks,
    events,
    fleet,
    git,
    git_urls,
    health,
    history,
    hook_registrations,
    hooks,
    me,
    openapi,
    overview,
    problems,
    pull_discoveries,
    pull_errors,
    pull_progress,
    pull_projects,
    pull_report,
    pull_strategy,
    pull_tasks,
    repos,
    tasks,
    webhooks,
)
from evermirror.faces.api.auth import Auth, Caller, Gate
from evermirror.faces.api.context import Api, ApiSettings, GitApi, find_visible
from evermirror.faces.api.git_service import GitService
from evermirror.faces.api.limits import BodyLimit, GitLimit, HeadAsGet, RateLimit, SecurityHeaders
from evermirror.faces.api.metrics import Metrics, Observe
from evermirror.faces.api.problems import ApiProblem
from evermirror.faces.api.text import printable
from evermirror.faces.api.via import PassedOn, PassReader
from evermirror.faces.web import pages
from evermirror.nodes.alert_service import AlertService
from evermirror.nodes.bulk_service import BulkService
from evermirror.nodes.discovery_service import DiscoveryService
from evermirror.nodes.event_service import EventService
from evermirror.nodes.hook_service import HookService
from evermirror.nodes.pull_service import PullService
from evermirror.nodes.service import CatalogService, CoordinatorService, FleetService

_PULL = (
    pull_strategy,
    pull_progress,
    pull_report,
    pull_projects,
    pull_tasks,
    pull_discoveries,
    pull_errors,
)
_PARTS = (
    webhooks,
    hook_registrations,
    hooks,
    tasks,
    git_urls,
    bulk,
    history,
    repos,
    catalog,
    fleet,
    *_PULL,
    alerts,
    events,
    event_hooks,
    overview,
    me,
    health,
    git,
    pages,
)

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
    alert_service: AlertService | None = None,
    discovery_service: DiscoveryService | None = None,
    hook_service: HookService | None = None,
    event_service: EventService | None = None,
    bulk_service: BulkService | None = None,
) -> FastAPI:
    """Nothing starts here: the caller runs the application in its own server."""
    app = FastAPI(
        title="evermirror",
        version=__version__,
        docs_url=None,  # ours needs no other host: see faces/web
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # each request would ask for it
        middleware=[
            Middleware(HeadAsGet),
            Middleware(Observe, metrics=metrics),
            Middleware(SecurityHeaders),
            Middleware(problems.CatchAll),
            Middleware(PassedOn, read=read_pass),
            Middleware(RateLimit, auth=auth, settings=settings.limits),
            Middleware(Gate, auth=auth),
            Middleware(GitLimit, settings=settings.limits),
            Middleware(BodyLimit, settings=settings.limits),
        ],
    )
    app.state.api = Api(
        service,
        settings,
        metrics,
        git_service,
        catalog_service,
        fleet_service,
        pull_service,
        alert_service,
        discovery_service,
        hook_service,
        event_service,
        bulk=bulk_service,
    )
    app.state.git_api = GitApi(git_service, settings, auth.hides_repos, _Aggregators(app.state.api).of)
    routes = [route for part in _PARTS for route in part.router.routes]
    app.router.routes += routes  # as they are: include_router would make each anew, at the first request
    problems.install(app, routes)
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
