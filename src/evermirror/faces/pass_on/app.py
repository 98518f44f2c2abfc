"""The application that passes users' requests on to the coordinator.

HeadAsGet → SecurityHeaders → CatchAll → RateLimit → Doorman → BodyLimit → PassOn ─┬─ a read ──▶ Reads (kept)
                                                  (Host header, no loops)          └─ the rest ─▶ streamed

Who asks is the coordinator's business: it gets the caller's token, and the caller's address with our pass.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from urllib.parse import quote

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evermirror.faces.api import problems
from evermirror.faces.api.auth import Auth, asked_of, is_hook
from evermirror.faces.api.client import client_address
from evermirror.faces.api.hook_door import HookDoor
from evermirror.faces.api.limits import HEAD, BodyLimit, HeadAsGet, LimitSettings, RateLimit, SecurityHeaders
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.text import iso
from evermirror.faces.api.via import FOR, VIA
from evermirror.faces.pass_on.headers import ACCEPT_LANGUAGE, AUTHORIZATION, asked, value_of
from evermirror.faces.pass_on.kept import Answer, Kept, Key
from evermirror.faces.pass_on.reads import Reads
from evermirror.faces.pass_on.room import Room
from evermirror.faces.pass_on.upstream import AnswerLost, Asked, CoordinatorAway, Opened, Upstream
from evermirror.faces.web import pages

AWAY_RETRY_S = 10
_EXACT = frozenset({"/", "/docs", "/openapi.json", "/favicon.ico"})
_BELOW = ("/api/", "/static/", "/problems/")
_EVENTS = "/api/events"
_PRINTABLE = frozenset(range(0x21, 0x7F))


@dataclass(frozen=True, slots=True)
class PassOnSettings:
    """What may take long (writes, waits) leaves room for reads, which are quick; what lasts as long as its
    client likes (event streams) for both."""

    limits: LimitSettings = field(default_factory=LimitSettings)
    reads: int = 200
    reads_per_client: int = 50
    waiting: int = 500
    waiting_per_client: int = 50
    followers: int = 500
    followers_per_client: int = 50
    hooks: int = 500
    hooks_per_client: int = 250  # a whole GitLab is one
    silence_s: float = 300.0  # a client that takes nothing for this long is left


def create_pass_on(
    upstream: Upstream,
    auth: Auth,
    settings: PassOnSettings | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """Nothing starts here. Of ``auth`` the check of the Host header is used, and who holds a token at an
    address that asks too often."""
    settings = settings or PassOnSettings()
    app: ASGIApp = BodyLimit(PassOn(upstream, settings, clock), settings.limits)
    app = RateLimit(Doorman(app, auth), auth, settings.limits)
    return OnlyHttp(HeadAsGet(SecurityHeaders(problems.CatchAll(app))))


class OnlyHttp:
    """Nothing is upgraded to another protocol."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})


class Doorman:
    """Refuses what is not to be passed on at all."""

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if VIA in headers or FOR in headers:
            raise ApiProblem(
                Kind.NOT_AGGREGATOR,
                "The request was passed on by an aggregator, and this is one",
                hint="aggregator.coordinator_url must name the coordinator itself",
            )
        _check_path(scope["path"])
        if "authorization" not in headers and not is_hook(scope["method"], scope["path"]):
            self._auth.check_host(asked_of(scope))
        await self._app(scope, receive, send)


def _check_path(path: str) -> None:
    """Only the coordinator's public face; and no path that a proxy on the way would lead elsewhere."""
    public = path in _EXACT or path.startswith(_BELOW)
    if not public or any(part in (".", "..") for part in path.replace("\\", "/").split("/")):
        raise ApiProblem(Kind.NOT_FOUND, "No such address", hint="GET /docs lists what there is")


class PassOn:
    """The last of the layers: asks the coordinator, or memory."""

    def __init__(self, upstream: Upstream, settings: PassOnSettings, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._settings = settings
        self._clock = clock
        self._kept = Kept(clock)
        self._reads = Reads(upstream, self._kept, clock)
        self._quick = Room(settings.reads, settings.reads_per_client)
        self._waiting = Room(settings.waiting, settings.waiting_per_client)
        self._followers = Room(settings.followers, settings.followers_per_client)
        self._hooks = Room(settings.hooks, settings.hooks_per_client)
        self._hook_door = HookDoor(clock)
        self._own_pages = _own_pages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = asked_in(scope)
        if scope["method"] == "GET" and not _waits(scope):
            await self._read(request, scope, receive, send)
        elif is_hook(scope["method"], scope["path"]):
            await self._hook(request, scope, receive, send)
        else:
            await self._stream(request, scope, receive, send)

    # Reads

    async def _read(self, request: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        key = key_of(request)
        with self._quick.entered(request.client):
            try:
                answer = await self._reads.get(key, request)
            except CoordinatorAway as away:
                await self._while_away(key, away, scope)(scope, receive, send)
                return
            if isinstance(answer, Answer):
                await self._from_memory(answer, scope)(scope, receive, send)
            else:
                await _unless_left(self._sent(answer, send), _left(receive))

    def _from_memory(self, answer: Answer, scope: Scope, *extra: tuple[bytes, bytes]) -> Response:
        tag = value_of(answer.headers, b"etag").decode("latin-1")
        same = bool(tag) and tag in Headers(scope=scope).get("if-none-match", "")
        response = Response(b"" if same else answer.body, 304 if same else 200)
        kept = answer.headers if not same else [p for p in answer.headers if p[0] != b"content-type"]
        length = [] if same else [(b"content-length", str(len(answer.body)).encode())]
        age = str(max(0, int(self._clock() - answer.at))).encode()
        response.raw_headers = [*kept, *length, (b"age", age), *extra]
        return response

    def _while_away(self, key: Key, away: CoordinatorAway, scope: Scope) -> ASGIApp:
        """The last answer, marked as what it is; a page of our own; or the plain truth."""
        if (last := self._kept.stale(key)) is not None:
            return self._from_memory(last, scope, (b"x-evermirror-stale", iso(last.utc).encode()))
        if not scope["path"].startswith("/api/") and scope["path"] != "/openapi.json":
            return self._own_pages
        return _away(away).response()

    # Writes, waits, event streams

    async def _stream(self, request: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        body = RequestBody(receive) if not request.reads and _has_body(scope) else None
        changes = not request.reads
        room = self._followers if scope["path"] == _EVENTS else self._waiting
        with room.entered(request.client):
            if changes:
                self._kept.wrote()
            try:
                await _unless_left(self._passed(request, body, changes, send), _left(receive, body))
            finally:
                if changes:
                    self._kept.wrote()

    async def _hook(self, request: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        """Whoever sends slowly takes no place: the body comes first. What a hook leads to is seen once it is
        done, as after a poll: readers' answers stay kept."""
        async with self._hook_door.body_of(Request(scope, receive)) as whole:
            body = RequestBody(_again(whole, receive)) if _has_body(scope) else None
            with self._hooks.entered(request.client):
                await _unless_left(self._passed(request, body, False, send), _left(receive, body))

    async def _passed(self, request: Asked, body: RequestBody | None, changes: bool, send: Send) -> None:
        try:
            opened = await self._upstream.ask(request, body.chunks() if body is not None else None)
        except AnswerLost as lost:
            raise (_away(lost) if request.reads else _uncertain(lost)) from None
        except CoordinatorAway as away:
            raise _away(away, written=not request.reads) from None
        if opened.status == 401 and (token := key_of(request).token):
            self._kept.refused(token)
        if changes:
            self._kept.wrote()  # what is asked for once this answer is seen must show it
        await self._sent(opened, send)

    async def _sent(self, opened: Opened, send: Send) -> None:
        """As it comes. An answer that breaks off breaks the connection off too, so that nobody takes it for
        whole."""
        silence_s = self._settings.silence_s
        try:
            await send(
                {"type": "http.response.start", "status": opened.status, "headers": list(opened.headers)}
            )
            async for part in opened.body:
                async with asyncio.timeout(silence_s):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except (TimeoutError, CoordinatorAway):
            return
        finally:
            await opened.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class RequestBody:
    """What the client sends, as it comes; the layers around have bounded it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise asyncio.CancelledError  # the client left before it had said everything
            if part := message.get("body", b""):
                yield part
            if not message.get("more_body", False):
                self.ended.set()
                return


def _again(whole: bytes, receive: Receive) -> Receive:
    """A body that was read already, once more; then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": whole, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


def asked_in(scope: Scope) -> Asked:
    """A request as it is passed on."""
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    query = scope.get("query_string", b"")
    target: bytes = path + b"?" + query if query else path
    if not _PRINTABLE.issuperset(target):
        raise ApiProblem(Kind.MALFORMED, "The address has bytes that must be percent-encoded")
    method = "HEAD" if scope.get(HEAD) and scope["path"] == _EVENTS else scope["method"]  # it has no end
    return Asked(method, target, asked(scope["headers"]), client_address(scope))


def key_of(request: Asked) -> Key:
    """Languages make a difference to pages only."""
    authorization = value_of(request.headers, AUTHORIZATION)
    token = hashlib.sha256(authorization).digest() if authorization else b""
    page = not request.target.startswith(b"/api/")
    return Key(request.target, value_of(request.headers, ACCEPT_LANGUAGE) if page else b"", token)


def _waits(scope: Scope) -> bool:
    events = scope["path"] == _EVENTS or "text/event-stream" in Headers(scope=scope).get("accept", "")
    query: bytes = scope.get("query_string", b"")
    return events or any(part.startswith(b"wait=") for part in query.split(b"&"))


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _left(receive: Receive, body: RequestBody | None = None) -> None:
    """Only one may read from the connection: the body first, then the watch for the client's leaving."""
    if body is not None:
        await body.ended.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_left(work: Coroutine[None, None, None], left: Coroutine[None, None, None]) -> None:
    """Ends ``work`` where the client leaves before it is done."""
    doing, leaving = asyncio.create_task(work), asyncio.create_task(left)
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done() and not doing.cancelled():
            doing.result()
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


def _own_pages() -> ASGIApp:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.routes += pages.router.routes
    problems.install(app, pages.router.routes)
    return app


def _away(away: CoordinatorAway, *, written: bool = False) -> ApiProblem:
    then = "; nothing was changed" if written else ""
    return ApiProblem(
        Kind.UNAVAILABLE,
        f"The coordinator is away: {away}{then}",
        hint=f"Try again in {AWAY_RETRY_S} s. Mirrors are still served: git clone and fetch work",
        headers={"Retry-After": str(AWAY_RETRY_S)},
    )


def _uncertain(lost: AnswerLost) -> ApiProblem:
    return ApiProblem(
        Kind.UNCERTAIN,
        f"This was passed on to the coordinator, and no answer came: {lost}",
        hint="It may have been done or not: look before you ask again. Mirrors are still served",
    )
