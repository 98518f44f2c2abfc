"""The client of a request: its address, also behind proxies that the operator trusts.

Whoever needs the address asks ``client_address``; the server has put it into the scope by then.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from evermirror.model.client_address import TrustedProxies

_FORWARDED_FOR = "x-forwarded-for"
# Any of these says that somebody asks for somebody else.
_FORWARDING = (
    _FORWARDED_FOR,
    "forwarded",
    "via",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
)


def client_address(scope: Scope) -> str | None:
    """Where the request of this ASGI scope comes from; None where that is not known."""
    client = scope.get("client")
    return client[0] if client else None


def is_forwarded(headers: Headers) -> bool:
    """Whether a proxy has passed the request on, trusted or not: it is then nobody's on this machine."""
    return any(name in headers for name in _FORWARDING)


class BehindProxies:
    """Puts the client's address in place of a trusted proxy's. Others' X-Forwarded-For is not read."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            peer = client_address(scope)
            client = self._proxies.client_of(peer, Headers(scope=scope).getlist(_FORWARDED_FOR))
            if client != peer:
                scope = {**scope, "client": (client, 0) if client is not None else None}
        await self._app(scope, receive, send)
