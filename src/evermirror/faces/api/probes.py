"""The HTTP face of a node that serves nothing to people: is it alive, does it work."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def probes_app(ready: Callable[[], tuple[bool, str]]) -> Starlette:
    """``/healthz`` answers while the process does; ``/readyz`` is 200 while work goes on, else 503."""

    async def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> JSONResponse:
        good, reason = ready()
        return JSONResponse({"ready": good, "reason": reason}, 200 if good else 503)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])
