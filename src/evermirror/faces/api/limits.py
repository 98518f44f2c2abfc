"""What one client may take: requests per second, bytes and time of a body; and headers that bind browsers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evermirror.faces.api.auth import Auth, asked_of, is_hook, too_many
from evermirror.faces.api.buckets import Buckets, Rate
from evermirror.faces.api.client import client_address
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.client_address import client_network, is_loopback

_UNLIMITED = frozenset({"/healthz", "/readyz"})  # a busy server must not look dead

HEAD = "evermirror.head"  # in a scope: nobody reads the body; one that would not end need not begin

_DRAIN_BYTES = 20_000_000  # of a refused body read and thrown away; whoever sends more is cut off
_DRAIN_S = 5.0

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_ADDED = [
    (name.encode(), value.encode())
    for name, value in {**SECURITY_HEADERS, "cache-control": "no-store"}.items()
]  # where an answer has none of that name


@dataclass(frozen=True, slots=True)
class BodyRule:
    """The most a request body may take."""

    max_bytes: int
    timeout_s: float


_REQUESTS = Rate(per_s=50.0, burst=200.0)  # a page asks every 2 s, a CI job a few times
_LOOPBACK_REQUESTS = Rate(per_s=5_000.0, burst=10_000.0)
_BODY = BodyRule(max_bytes=1_000_000, timeout_s=30.0)
# A negotiation names a line of 50 bytes per ref wanted; it is streamed to git, not kept.
_GIT_BODY = BodyRule(max_bytes=64_000_000, timeout_s=600.0)
# A whole GitLab sends from one address, and a forge that is told to slow down switches its hooks off.
_HOOKS = Rate(per_s=1_000.0, burst=5_000.0)
_HOOK_BODY = BodyRule(max_bytes=25_000_000, timeout_s=30.0)  # GitHub's own bound


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Loopback is generous: it is the user's own tools, or a proxy that limits for itself."""

    requests: Rate = _REQUESTS
    loopback_requests: Rate = _LOOPBACK_REQUESTS
    body: BodyRule = _BODY
    git_body: BodyRule = _GIT_BODY
    hooks: Rate = _HOOKS
    hook_body: BodyRule = _HOOK_BODY

    def body_of(self, scope: Scope) -> BodyRule:
        if is_hook(scope["method"], scope["path"]):
            return self.hook_body
        return self.git_body if scope["path"].startswith("/git/") else self.body


class RateLimit:
    """Answers 429 to a client that asks too often. Hooks are counted apart: they take nothing from users.

    Once an address has used up its requests, each good token from there has as many of its own: whoever
    shares the address with a flood goes on."""

    def __init__(
        self, app: ASGIApp, auth: Auth, settings: LimitSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._auth = auth
        self._holders = Buckets(settings.requests, clock)
        self._remote = Buckets(settings.requests, clock)
        self._loopback = Buckets(settings.loopback_requests, clock)
        self._hooks = Buckets(settings.hooks, clock)
        self._loopback_hooks = Buckets(settings.loopback_requests, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _UNLIMITED:
            address = client_address(scope)
            wait_s = self._buckets(scope, is_loopback(address)).take(client_network(address))
            if wait_s > 0 and (refusal := await self._refusal(scope, wait_s)) is not None:
                await refusal.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, wait_s: float) -> ApiProblem | None:
        """Of a request from an address that has none left."""
        try:
            holder = await self._auth.token_holder(asked_of(scope))
        except ApiProblem as problem:
            return problem
        if holder is None:
            return too_many(wait_s, "Too many requests from this address")
        wait_s = self._holders.take(holder)
        return too_many(wait_s, "Too many requests with this token") if wait_s > 0 else None

    def _buckets(self, scope: Scope, loopback: bool) -> Buckets:
        if is_hook(scope["method"], scope["path"]):
            return self._loopback_hooks if loopback else self._hooks
        return self._loopback if loopback else self._remote


class BodyLimit:
    """Answers 413 to a body too large (counted, whatever Content-Length says), 408 to one too slow."""

    def __init__(self, app: ASGIApp, settings: LimitSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rule = self._settings.body_of(scope)
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > rule.max_bytes):
            await _drain(receive)
            await _too_large(rule).response()(scope, receive, send)
            return
        await self._app(scope, _counted(receive, rule), send)


def _counted(receive: Receive, rule: BodyRule) -> Receive:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + rule.timeout_s
    seen = 0
    ended = False

    async def counted() -> Message:
        nonlocal seen, ended
        if ended:  # what comes now is only the news that the client left: no limit on that
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise ApiProblem(Kind.TIMEOUT, f"The body took longer than {rule.timeout_s:g} s") from None
        ended = message["type"] != "http.request" or not message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > rule.max_bytes:
            if not ended:
                await _drain(receive)
            raise _too_large(rule)
        return message

    return counted


async def _drain(receive: Receive) -> None:
    """Reads on for a while: a client that is cut off while it still sends never sees the answer."""
    left_bytes = _DRAIN_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while left_bytes > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                left_bytes -= len(message.get("body", b""))


def _too_large(rule: BodyRule) -> ApiProblem:
    # What is still to come after the draining is not read, so the connection cannot be used again.
    return ApiProblem(
        Kind.TOO_LARGE, f"The body is larger than {rule.max_bytes} bytes", headers={"Connection": "close"}
    )


class SecurityHeaders:
    """On every answer, also on errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", ())
                names = {name for name, _ in given}
                message["headers"] = [*given, *(header for header in _ADDED if header[0] not in names)]
            await send(message)

        await self._app(scope, receive, secured)


class HeadAsGet:
    """HEAD is answered as GET without its body, on every address that takes GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET", HEAD: True}, receive, bodiless)
