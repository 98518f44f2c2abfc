"""What happened: followed as it happens, or read back in pages."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from evermirror.core.events.schema import event_json
from evermirror.errors import NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.client import client_address
from evermirror.faces.api.context import Api, ApiDep, CallerDep, problems
from evermirror.faces.api.event_stream import MEDIA_TYPE, EventStream
from evermirror.faces.api.inputs import CleanText, LimitQuery
from evermirror.faces.api.overview import shown_overview
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.access import Role
from evermirror.model.event import EventId, EventType
from evermirror.nodes.event_service import EventFilter, EventService

_GLOBS_MAX = 50
_PUBLIC_GLOBS_MAX = 10  # of one who shows no token
_GLOB_CHARS_MAX = 300
_GLOBS_CHARS_MAX = 4_000
_ID_MAX = 2**63 - 1

router = APIRouter(tags=["events"])


class EventView(BaseModel):
    """One event; docs/events.md has the data of each type."""

    version: Literal[1] = Field(description="Another one where a field is removed or gets another meaning")
    id: int = Field(description="Grows; numbers between may never have been given")
    type: str = Field(examples=["refs.changed"])
    at: str
    repo: str | None
    worker: str | None
    data: dict[str, Any]


class GapView(BaseModel):
    """What came between is no longer kept."""

    after: int
    until: int


class EventsPage(BaseModel):
    """Oldest first."""

    items: list[EventView]
    next_after: int = Field(description="Ask on with `after`; the same as before: there is nothing new")
    gap: GapView | None = Field(description="Something after `after` is no longer kept: read the state anew")


AfterQuery = Annotated[
    int | None,
    Query(
        ge=0, le=_ID_MAX, description="What comes after this event; the header Last-Event-ID goes before it"
    ),
]
TypesQuery = Annotated[
    CleanText,
    Query(max_length=_GLOBS_CHARS_MAX, description="Globs, comma-separated; empty: all", examples=["repo.*"]),
]
ReposQuery = Annotated[
    CleanText,
    Query(max_length=_GLOBS_CHARS_MAX, description="Globs over keys, comma-separated; empty: all"),
]
WorkerQuery = Annotated[CleanText, Query(max_length=300, description="Only of the worker of this name")]
ProgressQuery = Annotated[
    bool,
    Query(description="Also how far syncs are, as events of type `progress` that have no id; needs a token"),
]
OverviewQuery = Annotated[
    bool,
    Query(
        description="Also GET /api/overview's answer, as events of type `overview` that have no id: at once, "
        "and when something changed"
    ),
]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=20)]

_CONTENT: dict[str, Any] = {
    MEDIA_TYPE: {"schema": {"type": "string", "description": "Server-sent events; docs/events.md"}},
    "application/json": {"schema": {"$ref": "#/components/schemas/EventsPage"}},
}


@router.get(
    "/api/events",
    summary="What happens, as it happens, or in pages",
    response_model=EventsPage,
    responses={
        **problems(Kind.NOT_FOUND, Kind.INVALID),
        200: {"description": "By Accept: `application/json` is a page, else a stream", "content": _CONTENT},
    },
)
async def get_events(
    request: Request,
    api: ApiDep,
    caller: CallerDep,
    after: AfterQuery = None,
    types: TypesQuery = "",
    repos: ReposQuery = "",
    worker: WorkerQuery = "",
    progress: ProgressQuery = False,
    overview: OverviewQuery = False,
    limit: LimitQuery = 100,
    last_event_id: LastEventId = None,
) -> Response:
    """A stream of server-sent events from now on, or from `after` or `Last-Event-ID` on; nothing is lost
    between two connections, unless it is so old that it is no longer kept: then an event of type `gap` says
    so. With `Accept: application/json` a page: what comes after `after`, or without it the newest.

    Without a token only events about public repos are told."""
    place = _place(after, last_event_id)
    which = _which(caller, types, repos, worker)
    service = events_of(api)
    if _wants_page(request):
        return await _page(service, which, place, limit)
    if progress and which.public_only:
        caller.need(Role.READER)
    room = api.event_door.enter(client_address(request.scope))
    followed = service.follow(which, place, progress=progress)
    board = _board(api, reader=not which.public_only) if overview else None
    return _Answer(EventStream(followed, api.event_door, room, request.state.identify, board))


def _board(api: Api, *, reader: bool) -> AsyncGenerator[bytes, None]:
    return api.overview_board.follow(lambda: shown_overview(api, reader=reader), reader=reader)


class _Answer(Response):
    """A stream, as FastAPI hands answers on."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._answer = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


async def _page(service: EventService, which: EventFilter, place: EventId | None, limit: int) -> Response:
    if place is None:
        latest = service.latest()
        items = await service.newest(which, limit)
        upto, gap = max(latest, items[-1].id if items else EventId(0)), None
    else:
        items, upto = await service.page(which, place, limit)
        gap = service.gap(place)
    shown = None if gap is None else {"after": gap.after, "until": gap.until}
    listed = ",".join(map(event_json, items))
    text = f'{{"items":[{listed}],"next_after":{upto},"gap":{json.dumps(shown)}}}'
    return Response(text.encode(), media_type="application/json")


def _wants_page(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "application/json" in accept and MEDIA_TYPE not in accept


def _place(after: int | None, last_event_id: str | None) -> EventId | None:
    """The header is newer: a client that comes back asks at the same address as at first."""
    told = (last_event_id or "").strip()
    if not told:
        return None if after is None else EventId(after)
    if not (told.isascii() and told.isdigit()) or int(told) > _ID_MAX:
        raise ApiProblem(
            Kind.INVALID,
            "Last-Event-ID holds no number of an event",
            hint="Leave it out to follow from now on",
        )
    return EventId(int(told))


def _which(caller: Caller, types: str, repos: str, worker: str) -> EventFilter:
    public_only = not caller.may(Role.READER)
    most = _PUBLIC_GLOBS_MAX if public_only else _GLOBS_MAX
    chosen = _globs("types", types, most)
    known = [type_.value for type_ in EventType]
    for glob in chosen:
        if not any(fnmatchcase(name, glob) for name in known):
            raise ApiProblem(
                Kind.INVALID, f"No event is of the type {glob!r}", hint=f"There are: {', '.join(known)}"
            )
    return EventFilter(chosen, _globs("repos", repos, most), worker, public_only=public_only)


def _globs(name: str, text: str, most: int) -> tuple[str, ...]:
    globs = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(globs) > most:
        hint = "" if most == _GLOBS_MAX else f"With a token it may be {_GLOBS_MAX}"
        raise ApiProblem(Kind.INVALID, f"{name} has more than {most} patterns", hint=hint)
    if any(len(glob) > _GLOB_CHARS_MAX for glob in globs):
        raise ApiProblem(Kind.INVALID, f"{name} has a pattern of more than {_GLOB_CHARS_MAX} characters")
    return globs


def events_of(api: Api) -> EventService:
    if api.events is None:
        raise NotFound("this server keeps no events", hint="Ask its coordinator")
    return api.events
