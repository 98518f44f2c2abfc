"""An HTTP server that lives as long as a block of code, on a socket that is bound already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import uvicorn

STOP_S = 3  # whole seconds that open requests are given at a stop; event streams never end by themselves


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the node decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    app: Any, sock: socket.socket, *, tls_cert: Path | None = None, tls_key: Path | None = None
) -> AsyncIterator[None]:
    """Serves ``app`` (ASGI) until the block is left; open requests are then given a moment."""
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=STOP_S,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[sock]), name="http")
    try:
        yield
    finally:
        server.should_exit = True
        await task
