"""Hooks of forges: taken without a token, since their signature says who sent them.

Whoever cannot sign learns nothing: the refusal has the same words whether the repo is ours or not.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import unquote_plus

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from evermirror.core.hooks.body import UnreadableHook
from evermirror.errors import HookRefused, NotFound, Unavailable
from evermirror.faces.api.client import client_address
from evermirror.faces.api.context import Api, Responses, problems
from evermirror.faces.api.hook_door import busy
from evermirror.faces.api.inputs import CleanText
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.text import printable
from evermirror.model.forge import Forge
from evermirror.model.hook import HookAnswer, HookEnd
from evermirror.nodes.hook_service import HookService

_KEY_MAX = 2_100
_FORGES = {forge.value: forge for forge in Forge}


class _HookRoute(APIRoute):
    """Documented as every other, and taken without FastAPI's own layers, which cost as much as all the rest.
    What is not plain (another method, a strange query) goes through them, and is refused there."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain, repo = _asked_for(scope["query_string"])
        if not plain or scope["method"] != "POST":
            await super().handle(scope, receive, send)
            return
        answer = await take_hook(scope["path_params"]["forge"], Request(scope, receive), repo)
        await answer(scope, receive, send)


router = APIRouter(tags=["webhooks"], route_class=_HookRoute)

ForgePath = Annotated[str, Path(description="Whose hook it is", json_schema_extra={"enum": list(_FORGES)})]
RepoQuery = Annotated[
    CleanText | None,
    Query(max_length=_KEY_MAX, description="The repo's key, where the forge knows it under another name"),
]


class HookOut(BaseModel):
    """What became of a hook. `accepted`: the repo is looked at; `merged`: by a look that comes anyway, or the
    same hook was here before; `added`: it is in the catalog now; `ignored`: `reason` says why."""

    status: Literal["accepted", "merged", "added", "ignored", "pong"]
    repo: str | None = Field(None, description="The repo that it was taken to be about")
    reason: str | None = None


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "As the forge sends it; its headers say what it is, and that it is genuine",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {"payload": {"type": "string"}},
                    "required": ["payload"],
                }
            },
        },
    }
}
_PONG: Responses = {200: {"description": "The forge asked whether somebody is here", "model": HookOut}}
_REFUSALS = problems(
    Kind.MALFORMED, Kind.HOOK_REFUSED, Kind.NOT_FOUND, Kind.TIMEOUT, Kind.TOO_LARGE, Kind.INVALID
)


@router.post(
    "/api/webhooks/{forge}",
    summary="A forge tells that something happened",
    status_code=202,
    responses={**_REFUSALS, **_PONG},
    openapi_extra=_BODY,
    response_model=HookOut,
)
async def take_hook(forge: ForgePath, request: Request, repo: RepoQuery = None) -> Response:
    """Signed in the forge's own way with a secret of the settings; no token is needed. It is on the disk when
    this is answered; the look at the repo follows."""
    api: Api = request.app.state.api
    service = hooks_of(api)
    if forge not in _FORGES:
        raise NotFound(f"no hooks of {forge!r} are taken", hint=f"There are: {', '.join(_FORGES)}")
    async with api.hook_door.body_of(request) as body:
        try:
            answer = await service.received(_FORGES[forge], _headers(request), body, repo)
        except (HookRefused, UnreadableHook) as error:  # nobody knows who sent it
            address = client_address(request.scope)
            raise api.hook_door.refusal(address, forge, error.message, _refusal(error, forge)) from None
        except Unavailable as error:
            raise busy(error.message, error.hint) from None
    return Response(
        _out(answer).model_dump_json(),
        200 if answer.end is HookEnd.PONG else 202,
        media_type="application/json",
    )


def _asked_for(query: bytes) -> tuple[bool, str | None]:
    """Whether nothing can be wrong with it, and the repo that it names."""
    if not query:
        return True, None
    name, _, value = query.decode("latin-1").partition("=")
    repo = unquote_plus(value)
    return name == "repo" and "&" not in value and len(repo) <= _KEY_MAX and repo.isprintable(), repo


def hooks_of(api: Api) -> HookService:
    """What is asked about hooks; 404 at a server that takes none."""
    if api.hooks is None:
        raise NotFound("this server takes no hooks", hint="Ask its coordinator")
    return api.hooks


def _headers(request: Request) -> dict[str, str]:
    """Each once: the first."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found.setdefault(name.lower(), value)
    return found


def _refusal(error: HookRefused | UnreadableHook, forge: str) -> ApiProblem:
    if isinstance(error, UnreadableHook):
        return ApiProblem(Kind.MALFORMED, error.message, hint=error.hint)
    return ApiProblem(
        Kind.HOOK_REFUSED,
        "The hook is not signed with a secret that is set here",
        hint=f"The secret at the forge must be the one in webhooks.{forge}_secret or webhooks.secrets;"
        " signatures with a time are good for an hour",
    )


def _out(answer: HookAnswer) -> HookOut:
    return HookOut(
        status=answer.end.value,
        repo=printable(answer.repo) if answer.repo is not None else None,
        reason=printable(answer.reason) or None,
    )
