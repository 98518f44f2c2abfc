"""Is the process alive, does it work, and how much: for probes and Prometheus."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from evermirror.faces.api.context import ApiDep, CallerDep, problems
from evermirror.faces.api.metrics import CONTENT_TYPE
from evermirror.model.access import Role

router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadyView(BaseModel):
    """Whether work goes on."""

    ready: bool
    reason: str


@router.get("/healthz", summary="Alive?")
async def healthz() -> HealthView:
    """200 while the process answers at all."""
    return HealthView()


@router.get(
    "/readyz", summary="Working?", responses={503: {"model": ReadyView, "description": "Not yet, or no more"}}
)
async def readyz(api: ApiDep) -> ReadyView:
    """200 once the catalog is loaded and work goes on, else 503; `reason` says why."""
    ready, reason = api.service.ready()
    view = ReadyView(ready=ready, reason=reason)
    if ready:
        return view
    return JSONResponse(view.model_dump(), 503)  # type: ignore[return-value]  # FastAPI passes a Response through


class _MetricsResponse(Response):
    media_type = CONTENT_TYPE


@router.get(
    "/metrics",
    summary="For Prometheus",
    response_class=_MetricsResponse,
    response_model=None,
    responses=problems(),
)
async def metrics(api: ApiDep, caller: CallerDep) -> Response:
    """Text exposition format. Figures of alerts and credentials are told to token holders, and to this
    machine's own user."""
    api.metrics.show(await api.service.overview())
    return _MetricsResponse(api.metrics.render(inside=caller.may(Role.READER)))
