"""The coordinator's side over gRPC: lets workers in by their token, and hands each stream on as a Peer.

  worker ─▶ TLS ─▶ token (auth.py) ─▶ initial metadata: it is in ─▶ accept(peer), in a task of its own
                     │ no                                             │ returns, raises, or peer was closed
                     ▼                                                ▼
             UNAUTHENTICATED …                    what was sent goes out, then the status with the reason
gRPC cancels the handler of a stream that was cut; ``accept`` is not cancelled by that, but gets PeerGone.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, cast
from urllib.parse import unquote

import grpc
import structlog
from grpc import aio

from evermirror.edge.rpc.auth import Denied, Gate, Metadata
from evermirror.edge.rpc.certificates import server_credentials
from evermirror.edge.rpc.convert import down_to_bytes, up_of_bytes
from evermirror.edge.rpc.health import WATCHERS_MAX, Health
from evermirror.edge.rpc.limits import ADMITTED, SERVICE, RpcLimits, server_options
from evermirror.edge.rpc.pki import TlsFiles
from evermirror.edge.rpc.stream import Stream
from evermirror.edge.rpc.transport import Accept, Authenticate, Identity, PeerGone
from evermirror.errors import EnvironmentUnfit, UsageError
from evermirror.model.host import as_address
from evermirror.model.wire import PROTOCOL, Down, Up

REASON_CHARS_MAX = 300  # it travels in a header

log = structlog.get_logger(__name__)

_Context = aio.ServicerContext[bytes, bytes]


class GrpcPeer:
    """The coordinator's end of one stream."""

    def __init__(self, identity: Identity, context: _Context, limits: RpcLimits) -> None:
        self.identity = identity
        self.address = _address_of(context.peer())
        self._context = context
        self._stream: Stream[Down, Up] = Stream(
            read=self._read,
            write=self._write,
            abort=lambda: None,  # the handler sees that it is over
            decode=up_of_bytes,
            encode=down_to_bytes,
            send_s=limits.send_s,
        )

    async def receive(self) -> Up:
        return await self._stream.receive()

    async def send(self, frame: Down) -> None:
        await self._stream.send(frame)

    async def close(self, reason: str) -> None:
        self._stream.end(reason)

    def lost(self) -> None:
        """The stream is cut."""
        self._stream.end("the worker is gone")
        self._stream.drop()

    async def ended(self) -> None:
        """Waits for the end, whoever brings it about."""
        await self._stream.ended()

    async def finish(self, timeout_s: float) -> str:
        """What was taken for sending goes out, unless the worker does not read; then why it ended."""
        await self._stream.flushed(timeout_s)
        self._stream.drop()
        return self._stream.over or ""

    async def _read(self) -> bytes:
        try:
            raw = await self._context.read()
        except aio.BaseError:
            raise PeerGone("the worker is gone") from None
        if not isinstance(raw, bytes):
            raise PeerGone("the worker closed the connection")
        return raw

    async def _write(self, raw: bytes) -> None:
        try:
            await self._context.write(raw)
        except aio.BaseError:
            raise PeerGone("the worker is gone") from None


class GrpcServer:
    """``async with GrpcServer(…) as server``: listens from its start to its end."""

    def __init__(
        self,
        listen: str,
        *,
        tls: TlsFiles | None,
        authenticate: Authenticate,
        accept: Accept,
        plaintext_allowed: bool = False,
        limits: RpcLimits | None = None,
    ) -> None:
        self._listen = listen
        self._tls = tls
        self._authenticate = authenticate
        self._accept = accept
        self._limits = limits or RpcLimits()
        if tls is None and not plaintext_allowed and not is_loopback(listen):
            raise UsageError(
                f"gRPC on {listen} without TLS would send tokens in the clear",
                hint="Give certificates, let one be made, or listen on 127.0.0.1",
            )
        self._open: dict[asyncio.Task[None], GrpcPeer] = {}
        self.port = 0

    async def __aenter__(self) -> GrpcServer:
        self._gate = Gate(self._authenticate, self._limits)
        self._health = Health()
        self._server = aio.server(
            options=server_options(self._limits),
            maximum_concurrent_rpcs=self._limits.connections_max + WATCHERS_MAX,
        )
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Connect": grpc.stream_stream_rpc_method_handler(self._connect)
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, methods), self._health.handler())
        )
        self.port = self._bind()
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._health.tell(serving=False)
        stopping = asyncio.ensure_future(self._server.stop(self._limits.stop_s))
        for peer in list(self._open.values()):
            await peer.close("the coordinator stops")
        tasks = list(self._open)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._limits.stop_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await stopping

    async def tell_serving(self, serving: bool = True) -> None:
        """What the health service answers from now on; at first it is not serving."""
        await self._health.tell(serving=serving)

    async def close_token(self, token_id: int, reason: str) -> None:
        """Ends every connection of a token: it was revoked."""
        for peer in list(self._open.values()):
            if peer.identity.token_id == token_id:
                await peer.close(reason)

    def connected(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def _bind(self) -> int:
        try:
            if self._tls is None:
                return self._server.add_insecure_port(self._listen)
            return self._server.add_secure_port(self._listen, server_credentials(self._tls))
        except RuntimeError:
            raise EnvironmentUnfit(
                f"gRPC cannot listen on {self._listen}", hint="Is the port taken? See server.grpc_listen"
            ) from None

    async def _connect(self, _: object, context: _Context) -> None:
        try:
            identity = await self._gate.enter(cast(Metadata, context.invocation_metadata() or ()))
        except Denied as denied:
            log.info("refused a connection", address=_address_of(context.peer()), reason=denied.reason)
            await context.abort(denied.code, denied.reason)
        # gRPC cannot end a call whose client does not read: its place is free when it is really over.
        context.add_done_callback(cast(Any, lambda _: self._gate.leave(identity)))
        await context.send_initial_metadata(((ADMITTED, str(PROTOCOL)),))
        peer = GrpcPeer(identity, context, self._limits)
        task = asyncio.create_task(self._run(peer), name=f"peer {identity.name}")
        self._open[task] = peer
        task.add_done_callback(lambda done: self._open.pop(done, None))
        try:
            await peer.ended()
            reason = await peer.finish(self._limits.close_s)
        except asyncio.CancelledError:
            peer.lost()
            raise
        context.set_code(grpc.StatusCode.UNAVAILABLE)
        context.set_details(reason[:REASON_CHARS_MAX])

    async def _run(self, peer: GrpcPeer) -> None:
        reason = "the coordinator ended the connection"
        try:
            await self._accept(peer)
        except PeerGone:
            pass
        except Exception:
            log.exception("connection failed", worker=peer.identity.name)
            reason = "the coordinator failed"
        finally:
            await peer.close(reason)


def is_loopback(listen: str) -> bool:
    """Whether ``host:port`` can be reached from this machine only."""
    host = listen.rpartition(":")[0].removeprefix("[").removesuffix("]")
    address = as_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address_of(peer: str) -> str:
    """``ipv4:127.0.0.1:4711`` as people write it."""
    with contextlib.suppress(ValueError):
        kind, rest = peer.split(":", 1)
        if kind in ("ipv4", "ipv6"):
            return unquote(rest)
    return peer
