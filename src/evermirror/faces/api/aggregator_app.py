"""The HTTP face of an aggregator: git for what it has collected, probes, metrics; the rest is passed on.

/healthz, /readyz ─▶ probes     /git/…, /metrics, /api/aggregator ─▶ here     everything else ─▶ ``rest``
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from evermirror import __version__
from evermirror.faces.api import aggregator_state, git, problems
from evermirror.faces.api.aggregator_state import AggregatorSources, aggregator_router
from evermirror.faces.api.auth import Auth, Gate
from evermirror.faces.api.context import ApiSettings, GitApi
from evermirror.faces.api.git_service import GitService
from evermirror.faces.api.limits import BodyLimit, GitLimit, HeadAsGet, RateLimit, SecurityHeaders
from evermirror.faces.api.metrics import CONTENT_TYPE
from evermirror.faces.api.probes import probes_app


def create_aggregator_app(
    git_service: GitService,
    auth: Auth,
    settings: ApiSettings,
    registry: CollectorRegistry,
    ready: Callable[[], tuple[bool, str]],
    rest: ASGIApp,
    state: AggregatorSources,
) -> ASGIApp:
    """Nothing starts here. ``rest`` guards itself: only what is answered here passes our gate."""
    app = FastAPI(
        title="evermirror aggregator",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(HeadAsGet),
            Middleware(SecurityHeaders),
            Middleware(problems.CatchAll),
            Middleware(RateLimit, auth=auth, settings=settings.limits),
            Middleware(Gate, auth=auth),
            Middleware(GitLimit, settings=settings.limits),
            Middleware(BodyLimit, settings=settings.limits),
        ],
    )
    app.state.git_api = GitApi(git_service, settings, auth.hides_repos)
    routers = (_metrics_router(registry), aggregator_router(state), git.router)
    routes = [route for router in routers for route in router.routes]
    app.router.routes += routes  # as they are: include_router would make each anew
    problems.install(app, routes)
    return _Front(probes_app(ready), app, rest)


def _metrics_router(registry: CollectorRegistry) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE)

    return router


class _Front:
    """By the first part of the path."""

    def __init__(self, probes: ASGIApp, own: ASGIApp, rest: ASGIApp) -> None:
        self._probes = probes
        self._own = own
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path in ("/healthz", "/readyz"):
            await self._probes(scope, receive, send)
        elif path.startswith("/git/") or path in ("/metrics", aggregator_state.PATH):
            await self._own(scope, receive, send)
        else:
            await self._rest(scope, receive, send)
