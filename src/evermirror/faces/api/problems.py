"""Errors as RFC 9457 problem documents: what is wrong, and what to do next.

Everything that is refused goes through here, so that a client sees one shape: ``type`` names the problem for
programs, ``detail`` says it to a person, ``hint`` says what to do. git clients get these two as
plain text. An unexpected exception becomes a 500 whose ``id`` is in the log; nothing of its inside is told.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from enum import Enum

import structlog
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evermirror.errors import (
    BadAnswer,
    Conflict,
    EnvironmentUnfit,
    EvermirrorError,
    InvalidUrl,
    NotFound,
    Unavailable,
    UsageError,
)
from evermirror.faces.api.text import printable
from evermirror.model.failure import FailureError

MEDIA_TYPE = "application/problem+json"
NO_CACHE = {
    "Expires": "Fri, 01 Jan 1980 00:00:00 GMT",
    "Pragma": "no-cache",
    "Cache-Control": "no-cache, max-age=0, must-revalidate",
}  # of answers to git
_MAX_ERRORS_TOLD = 20  # of one request; a body can hold thousands of wrong things
STOPPED_RETRY_S = 5
_MAX_TEXT = 500  # characters of one told text; input may be quoted in it

_log = structlog.get_logger("evermirror.api")


class Kind(Enum):
    """Every problem we tell: its name in ``type``, its status, its title."""

    MALFORMED = ("malformed-request", 400, "The request cannot be read")
    UNAUTHORIZED = ("token-needed", 401, "A valid token is needed")
    FORBIDDEN = ("role-too-low", 403, "This token may not do that")
    WRONG_HOST = ("wrong-host", 403, "The Host header does not name this server")
    CROSS_SITE = ("cross-site", 403, "A web page of another site may not write here")
    NOT_AGGREGATOR = ("not-an-aggregator", 403, "Only an aggregator passes requests on")
    HOOK_REFUSED = ("hook-refused", 403, "The hook is not signed as it should be")
    NOT_FOUND = ("not-found", 404, "There is no such thing")
    METHOD = ("method-not-allowed", 405, "This address does not take that method")
    TIMEOUT = ("request-timeout", 408, "The request body came too slowly")
    CONFLICT = ("conflict", 409, "The request contradicts what is there")
    TOO_LARGE = ("body-too-large", 413, "The request body is too large")
    MEDIA_TYPE = ("unsupported-media-type", 415, "The body must be JSON")
    INVALID_URL = ("invalid-url", 422, "The repository URL is refused")
    INVALID = ("invalid-input", 422, "The input cannot be used")
    TOO_MANY = ("too-many-requests", 429, "Too many requests")
    INTERNAL = ("internal-error", 500, "Something went wrong here")
    BAD_ANSWER = ("bad-answer", 502, "A worker gave an answer that cannot be used")
    UNCERTAIN = ("uncertain", 502, "It is not known whether this was done")
    UNAVAILABLE = ("unavailable", 503, "Not available now")

    def __init__(self, slug: str, status: int, title: str) -> None:
        self.slug = slug
        self.status = status
        self.title = title

    @property
    def uri(self) -> str:
        return f"/problems/{self.slug}"


class ProblemItem(BaseModel):
    """One wrong thing in the input."""

    where: str
    what: str


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = Field(description="Names the problem for programs; open it to read more")
    title: str
    status: int
    detail: str = Field(description="What is wrong with this request")
    hint: str | None = Field(None, description="What to do next")
    errors: list[ProblemItem] | None = Field(None, description="Every wrong thing in the input")
    id: str | None = Field(None, description="Of an internal error: find it in the server's log")


class ApiProblem(HTTPException):
    """Raise it anywhere below the HTTP layer; it becomes a problem document."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        hint: str = "",
        errors: Sequence[ProblemItem] = (),
        headers: Mapping[str, str] | None = None,
        occurrence: str = "",
    ) -> None:
        super().__init__(kind.status, detail, headers=dict(headers or {}))
        self.kind = kind
        self.problem = Problem(
            type=kind.uri,
            title=kind.title,
            status=kind.status,
            detail=_told(detail),
            hint=_told(hint) or None,
            errors=list(errors) or None,
            id=occurrence or None,
        )

    def response(self) -> Response:
        return _Told(self)


class _Told(Response):
    """A problem document; plain text for git clients, which show that to their users and nothing else."""

    def __init__(self, told: ApiProblem) -> None:
        body = json.dumps(told.problem.model_dump(exclude_none=True), ensure_ascii=False).encode()
        super().__init__(body, told.kind.status, headers=told.headers, media_type=MEDIA_TYPE)
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/git/"):
            await super().__call__(scope, receive, send)
            return
        told = self._told
        lines = filter(None, (told.problem.detail, told.problem.hint))
        text = "".join(f"{line}.\n" for line in lines)
        plain = PlainTextResponse(text, told.kind.status, headers={**NO_CACHE, **(told.headers or {})})
        await plain(scope, receive, send)


def of_error(error: EvermirrorError) -> ApiProblem:
    """Our own errors, raised by the service, as a client sees them."""
    match error:
        case InvalidUrl():
            kind = Kind.INVALID_URL
        case UsageError():
            kind = Kind.INVALID
        case NotFound():
            kind = Kind.NOT_FOUND
        case Conflict():
            kind = Kind.CONFLICT
        case BadAnswer():
            kind = Kind.BAD_ANSWER
        case EnvironmentUnfit() | Unavailable():
            kind = Kind.UNAVAILABLE
        case _:
            return unexpected(error)
    return ApiProblem(kind, error.message, hint=error.hint)


def of_failure(error: FailureError) -> ApiProblem:
    """Something that is needed, such as the database, does not do its part."""
    return ApiProblem(Kind.UNAVAILABLE, error.failure.message, hint=error.failure.hint or "Try again later")


def of_any(error: Exception) -> ApiProblem:
    """Whatever was raised outside of the routes, as it would be told inside."""
    match error:
        case ApiProblem():
            return error
        case EvermirrorError():
            return of_error(error)
        case FailureError():
            return of_failure(error)
        case _:
            return unexpected(error)


def unexpected(error: BaseException) -> ApiProblem:
    """Logs a bug under an id and tells only that id."""
    occurrence = secrets.token_hex(8)
    _log.error("unexpected error in the API", id=occurrence, exc_info=error)
    return ApiProblem(
        Kind.INTERNAL,
        "An unexpected error; it was logged",
        hint=f"Look for {occurrence} in the server's log",
        occurrence=occurrence,
    )


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Makes every refusal, FastAPI's and ours, a problem document; ``routes`` tell the methods there are."""

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, EvermirrorError)  # noqa: S101 - registered for this class
        return of_error(error).response()

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)  # noqa: S101 - registered for this class
        return _of_http(routes, request, error).response()

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
        return _of_validation(request, error).response()

    async def on_failure(request: Request, error: Exception) -> Response:
        assert isinstance(error, FailureError)  # noqa: S101 - registered for this class
        return of_failure(error).response()

    app.add_exception_handler(EvermirrorError, on_error)
    app.add_exception_handler(FailureError, on_failure)
    app.add_exception_handler(StarletteHTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)


def _of_http(routes: Sequence[BaseRoute], request: Request, error: StarletteHTTPException) -> ApiProblem:
    if isinstance(error, ApiProblem):
        return error
    match error.status_code:
        case 404:
            return ApiProblem(Kind.NOT_FOUND, "No such address", hint="GET /docs lists what there is")
        case 405:
            allowed = ", ".join(sorted(_methods_of(routes, request.scope)))
            return ApiProblem(
                Kind.METHOD, f"{request.method} is not possible here", hint=f"Allowed: {allowed}",
                headers={"Allow": allowed},
            )  # fmt: skip
        case status if 400 <= status < 500:
            return ApiProblem(Kind.MALFORMED, "The body is not readable JSON", hint="Send JSON in UTF-8")
        case _:
            return unexpected(error)


def _methods_of(routes: Sequence[BaseRoute], scope: Scope) -> set[str]:
    found: set[str] = set()
    for route in routes:
        match, _ = route.matches(scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    if "GET" in found:
        found.add("HEAD")
    return found


def _of_validation(request: Request, error: RequestValidationError) -> ApiProblem:
    told = error.errors()
    if any(e["type"] == "json_invalid" for e in told):
        where = next((e["loc"][-1] for e in told if e["type"] == "json_invalid"), "?")
        what = next((str(e.get("ctx", {}).get("error", "")) for e in told), "")
        return ApiProblem(Kind.MALFORMED, f"The body is not JSON: {what} at character {where}")
    at_body = any(tuple(e["loc"]) == ("body",) and e["type"] != "missing" for e in told)
    if at_body and "json" not in request.headers.get("content-type", "").lower():
        return ApiProblem(
            Kind.MEDIA_TYPE, "The body's Content-Type is not JSON", hint="Send Content-Type: application/json"
        )
    items = [
        ProblemItem(where=_told(".".join(str(p) for p in e["loc"])), what=_told(str(e["msg"])))
        for e in told[:_MAX_ERRORS_TOLD]
    ]
    detail = "; ".join(f"{i.where}: {i.what}" for i in items[:3])
    return ApiProblem(Kind.INVALID, detail, hint="GET /docs shows the expected input", errors=items)


def _told(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


class CatchAll:
    """Turns what nobody handled into an answer: what is known into its own, the rest into a 500 with an id. A
    response already begun is cut off instead. Who still waits at a stop is told to come again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            refusal = of_any(error)
            if begun:
                raise
            await refusal.response()(scope, receive, send)
        except asyncio.CancelledError:
            if begun:
                raise
            await _stopped().response()(scope, receive, send)  # the task ends with it, as it was told to


def _stopped() -> ApiProblem:
    return ApiProblem(
        Kind.UNAVAILABLE,
        "This server is being stopped, and did not come to the end of this",
        hint=f"Ask again in {STOPPED_RETRY_S} s; it may have been done or not",
        headers={"Retry-After": str(STOPPED_RETRY_S), "Connection": "close"},
    )
