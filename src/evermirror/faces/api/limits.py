"""What one client may take: requests per second and at a time, bytes and time of a body; and headers that
bind browsers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evermirror.core.fairness import FairShare
from evermirror.faces.api.auth import LOCAL, PUBLIC, Auth, asked_of, is_hook, too_many
from evermirror.faces.api.buckets import Buckets, Rate
from evermirror.faces.api.client import client_address
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.client_address import client_network, is_loopback

_UNLIMITED = frozenset({"/healthz", "/readyz"})  # a busy server must not look dead

HEAD = "evermirror.head"  # in a scope: nobody reads the body; one that would not end need not begin

_DRAIN_BYTES = 20_000_000  # of a refused body read and thrown away; whoever sends more is cut off
_DRAIN_S = 5.0
_RETRY_S = 5.0  # a git client that finds no room now may come again then

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
    """The most a request body may take; of each ``window_s`` that we wait for it, at least so many bytes."""

    max_bytes: int
    timeout_s: float
    window_s: float = float("inf")
    window_bytes: int = 0


_REQUESTS = Rate(per_s=50.0, burst=200.0)  # a page asks every 2 s, a CI job a few times
_LOOPBACK_REQUESTS = Rate(per_s=5_000.0, burst=10_000.0)
_BODY = BodyRule(max_bytes=1_000_000, timeout_s=30.0)
# A negotiation names a line of 50 bytes per ref wanted; it is streamed to git, not kept.
# At 1 kB/s or more, where a modem sends 4: whoever is slower only means to keep a request open.
_GIT_BODY = BodyRule(max_bytes=64_000_000, timeout_s=600.0, window_s=20.0, window_bytes=20_000)
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
    git_requests: int = 1_000  # of git clients under way, and …
    git_requests_per_client: int = 64  # … of one of them

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


def limited_by(scope: Scope) -> str:
    """Whom the bounds for one git client are about: an address (of IPv6 the /64), and there each token for
    itself. Machines that share a token are bounded no tighter than machines without one."""
    caller = scope.get("state", {}).get("caller", PUBLIC)
    network = client_network(client_address(scope))
    return network if caller in (PUBLIC, LOCAL) else f"token {caller.name} at {network}"


class GitLimit:
    """Refuses git clients that ask for too much at the same time, before anything of a body is read."""

    def __init__(self, app: ASGIApp, settings: LimitSettings) -> None:
        self._app = app
        self._share = FairShare(settings.git_requests, settings.git_requests_per_client)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/git/"):
            await self._app(scope, receive, send)
            return
        client = limited_by(scope)
        if not self._share.take(client):
            await self._refusal(client).response()(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._share.give_back(client)

    def _refusal(self, client: str) -> ApiProblem:
        if self._share.is_at_own_limit(client):
            return too_many(_RETRY_S, "Too many git requests at the same time from this address or token")
        return ApiProblem(
            Kind.UNAVAILABLE,
            "Too many git clients at the same time",
            hint=f"Try again in {_RETRY_S:g} s",
            headers={"Retry-After": f"{_RETRY_S:.0f}"},
        )


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
    now = asyncio.get_running_loop().time
    deadline = now() + rule.timeout_s
    seen = 0
    ended = False
    window_bytes, window_s = 0, 0.0  # of the time that we wait for the client, not the client for us

    async def counted() -> Message:
        nonlocal seen, ended, window_bytes, window_s
        if ended:  # what comes now is only the news that the client left: no limit on that
            return await receive()
        began = now()
        try:
            async with asyncio.timeout_at(min(deadline, began + rule.window_s - window_s)):
                message = await receive()
        except TimeoutError:
            raise _too_slow(rule, late=now() >= deadline) from None
        ended = message["type"] != "http.request" or not message.get("more_body", False)
        size = len(message.get("body", b""))
        seen += size
        window_bytes, window_s = window_bytes + size, window_s + now() - began
        if window_bytes >= rule.window_bytes:
            window_bytes, window_s = 0, 0.0
        if seen > rule.max_bytes:
            if not ended:
                await _drain(receive)
            raise _too_large(rule)
        return message

    return counted


def _too_slow(rule: BodyRule, *, late: bool) -> ApiProblem:
    if late:
        return ApiProblem(Kind.TIMEOUT, f"The body took longer than {rule.timeout_s:g} s")
    return ApiProblem(
        Kind.TIMEOUT, f"Less than {rule.window_bytes} bytes of the body came in {rule.window_s:g} s"
    )


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
