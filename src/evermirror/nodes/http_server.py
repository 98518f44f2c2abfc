"""An HTTP server that lives as long as a block of code, on a socket that is bound already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server as UvicornServer

from evermirror.config import Config
from evermirror.core.fairness import FairShare
from evermirror.edge.net.accept import Acceptor, open_files_max
from evermirror.faces.api.client import BehindProxies
from evermirror.faces.api.context import ApiSettings
from evermirror.faces.api.limits import LimitSettings
from evermirror.model.client_address import TrustedProxies, client_network

STOP_S = 3  # whole seconds that open requests are given at a stop; event streams never end by themselves
HEAD_BYTES_MAX = 64 * 1024  # request line and headers; browsers stay below 16 KiB
HEAD_S = 30.0  # for them to arrive; a connection that never asks anything is closed too
# A connection whose other end takes nothing for this long is cut by the system, with what waits to be sent.
UNTAKEN_S = 600
CONNECTIONS = 4_000  # as server.connections
CONNECTIONS_PER_ADDRESS = 1_000
FRAMING_MAX = 8  # bytes around each byte of a body: chunks of a single byte have 5


class _BoundedHttp(HttpToolsProtocol):
    """uvicorn keeps a request's head, however long, until it is complete, and waits for it for ever."""

    _beside = 0  # bytes of this request that are no body
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._beside += len(data)
        super().data_received(data)
        if self._beside > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_time()
        self._beside = 0
        self._late = self.loop.call_later(HEAD_S, self.transport.close)

    def on_headers_complete(self) -> None:
        self._in_time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside -= (1 + FRAMING_MAX) * len(body)
        super().on_body(body)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(UvicornServer):
    """uvicorn with bounded connections, and no signal handlers of its own: the node decides when to stop."""

    def __init__(self, config: UvicornConfig, room: FairShare, proxies: TrustedProxies) -> None:
        super().__init__(config)
        self._room = room
        self._proxies = proxies

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        listening = Acceptor(
            sockets or [], self._connection, tls=self.config.ssl, room=self._room, client_of=self._client_of
        )
        self.servers = [listening]  # type: ignore[list-item]  # closed and waited for, no more

    def _client_of(self, address: str) -> str | None:
        """A trusted proxy connects for all of its clients: their requests are bounded, by X-Forwarded-For."""
        return None if self._proxies.trusts(address) else client_network(address)

    def _connection(self) -> _BoundedHttp:
        return _BoundedHttp(self.config, self.server_state, self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    app: Any,
    sock: socket.socket,
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    trusted_proxies: Sequence[str] = (),
    connections: int = CONNECTIONS,
    connections_per_address: int = CONNECTIONS_PER_ADDRESS,
) -> AsyncIterator[None]:
    """Serves ``app`` (ASGI) until the block is left; open requests are then given a moment.

    Half of the open files that we may have are left to git, the database and other nodes."""
    proxies = TrustedProxies.parse(trusted_proxies)
    if trusted_proxies:
        app = BehindProxies(app, proxies)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_S * 1000)
        # Connections inherit it. asyncio sets it only where the socket names its protocol; without it, each
        # answer on a kept-alive connection waits 40 ms for the client's delayed acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = _Server(
        UvicornConfig(
            app,
            http=_BoundedHttp,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # it would believe whoever asks from this machine: see BehindProxies
            timeout_graceful_shutdown=STOP_S,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
        ),
        FairShare(min(connections, open_files_max() // 2), connections_per_address),
        proxies,
    )
    task = asyncio.create_task(server.serve(sockets=[sock]), name="http")
    try:
        yield
    finally:
        server.should_exit = True
        await task


def serving_as_set(
    config: Config, app: Any, sock: socket.socket
) -> contextlib.AbstractAsyncContextManager[None]:
    """As ``serving``, with the settings of a node."""
    server = config.server
    return serving(
        app,
        sock,
        tls_cert=server.tls_cert,
        tls_key=server.tls_key,
        trusted_proxies=server.trusted_proxies,
        connections=server.connections,
        connections_per_address=server.connections_per_address,
    )


def api_settings(config: Config) -> ApiSettings:
    """Bounds of the API, as the settings have them."""
    limits = LimitSettings(git_requests_per_client=config.serve.requests_per_client)
    return ApiSettings(limits=limits, git_silence_s=config.serve.silence)


def url_of(config: Config, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "https" if config.server.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
