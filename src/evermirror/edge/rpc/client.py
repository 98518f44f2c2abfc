"""The worker's side over gRPC: dials the coordinator, verified by its CA, and shows its token only then."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
from grpc import aio

from evermirror.edge.rpc.convert import down_of_bytes, up_to_bytes
from evermirror.edge.rpc.join import NotListening
from evermirror.edge.rpc.limits import ADMITTED, METHOD, RpcLimits, client_options
from evermirror.edge.rpc.stream import Stream
from evermirror.edge.rpc.transport import Connection, PeerGone
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.wire import Down, Up

_Call = aio.StreamStreamCall[bytes, bytes]

_KINDS = {
    grpc.StatusCode.UNAUTHENTICATED: FailureKind.AUTH_FAILED,
    grpc.StatusCode.PERMISSION_DENIED: FailureKind.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: FailureKind.RATE_LIMITED,
    grpc.StatusCode.UNAVAILABLE: FailureKind.NETWORK_TIMEOUT,
    grpc.StatusCode.DEADLINE_EXCEEDED: FailureKind.NETWORK_TIMEOUT,
    grpc.StatusCode.CANCELLED: FailureKind.NETWORK_TIMEOUT,
}
_HINTS = {
    FailureKind.AUTH_FAILED: "Make a token with `evermirror token create --role worker`",
    FailureKind.PERMISSION_DENIED: "Make a token with `evermirror token create --role worker`",
}
# gRPC tells these apart in words only.
_CERTIFICATE_WORDS = (
    "CERTIFICATE_VERIFY_FAILED",
    "is not in peer certificate",
    "Hostname Verification Check",
)
_CERTIFICATE_HINT = "Join again with a token of this coordinator, under a name that its certificate has"


class GrpcConnection:
    """The worker's end of one stream, and the channel that carries nothing else."""

    def __init__(self, channel: aio.Channel, call: _Call, limits: RpcLimits) -> None:
        self._channel = channel
        self._call = call
        self._limits = limits
        self._closing: asyncio.Task[None] | None = None
        self._stream: Stream[Up, Down] = Stream(
            read=self._read,
            write=self._write,
            abort=call.cancel,
            decode=down_of_bytes,
            encode=up_to_bytes,
            send_s=limits.send_s,
        )

    async def receive(self) -> Down:
        return await self._stream.receive()

    async def send(self, frame: Up) -> None:
        await self._stream.send(frame)

    async def close(self) -> None:
        """What was sent gets some time to arrive."""
        self._stream.end("the connection was closed here")
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close connection")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with contextlib.suppress(TimeoutError, grpc.RpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(self._limits.close_s):
                if await self._stream.flushed(self._limits.close_s):
                    await self._call.done_writing()
                    await self._call.code()
        self._call.cancel()
        self._stream.drop()
        await self._channel.close()

    async def _read(self) -> bytes:
        try:
            raw = await self._call.read()
        except grpc.RpcError as e:
            raise PeerGone(_words(e)) from None
        if not isinstance(raw, bytes):
            raise PeerGone("the coordinator closed the connection")
        return raw

    async def _write(self, raw: bytes) -> None:
        try:
            await self._call.write(raw)
        except grpc.RpcError as e:
            raise PeerGone(_words(e)) from None
        except asyncio.InvalidStateError:
            raise PeerGone("the connection ended") from None


class GrpcDialer:
    """Dials one coordinator. ``ca_pem`` None: by the public CAs. ``plaintext``: shows the token to all."""

    def __init__(
        self,
        address: str,
        token: str,
        *,
        ca_pem: bytes | None = None,
        server_name: str = "",
        plaintext: bool = False,
        limits: RpcLimits | None = None,
    ) -> None:
        self._address = address
        self._token = token
        self._ca_pem = ca_pem
        self._server_name = server_name
        self._plaintext = plaintext
        self._limits = limits or RpcLimits()

    async def dial(self) -> Connection:
        channel = self._channel()
        try:
            async with asyncio.timeout(self._limits.dial_s):
                call = await self._call(channel)
        except TimeoutError:
            await channel.close()
            message = f"{self._address} did not answer within {self._limits.dial_s:g} s"
            raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, message)) from None
        except BaseException:
            await channel.close()
            raise
        return GrpcConnection(channel, call, self._limits)

    def _channel(self) -> aio.Channel:
        options = client_options(self._limits, self._server_name)
        if self._plaintext:
            return aio.insecure_channel(self._address, options=options)
        credentials = grpc.ssl_channel_credentials(root_certificates=self._ca_pem)
        return aio.secure_channel(self._address, credentials, options=options)

    async def _call(self, channel: aio.Channel) -> _Call:
        """A stream that was let in: the coordinator answers with metadata once it accepted the token."""
        method: aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(METHOD)
        call = method(metadata=(("authorization", f"Bearer {self._token}"),), wait_for_ready=False)
        if any(key == ADMITTED for key, _ in await call.initial_metadata()):
            return call
        code, words = await call.code(), await call.details()
        failure = _failure(self._address, code, words or "")
        raise (NotListening if code is grpc.StatusCode.UNAVAILABLE else FailureError)(failure)


def _failure(address: str, code: grpc.StatusCode, words: str) -> Failure:
    if any(known in words for known in _CERTIFICATE_WORDS):
        message = f"{address} shows a certificate that cannot be trusted"
        return Failure(FailureKind.AUTH_FAILED, message, hint=_CERTIFICATE_HINT, stderr=words)
    kind = _KINDS.get(code, FailureKind.UNKNOWN)
    return Failure(kind, f"{address}: {words or code.name.lower()}", hint=_HINTS.get(kind, ""))


def _words(error: grpc.RpcError) -> str:
    if isinstance(error, aio.AioRpcError):
        return error.details() or error.code().name.lower()
    return "the connection ended"
