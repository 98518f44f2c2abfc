"""gRPC's standard health service (grpc.health.v1): says SERVING once it is told to; needs no token.

The messages are those of grpcio-health-checking; its servicer is not used, because it holds its lock while it
writes to a watcher: one that never reads would block every later change of the state. Nor does it bound the
number of watchers.
"""

from __future__ import annotations

import asyncio

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_health.v1 import health_pb2

from evermirror.edge.rpc.limits import SERVICE

WATCHERS_MAX = 32  # anybody may watch: they must not take the workers' places

_NAMES = frozenset({"", SERVICE})
_Context = aio.ServicerContext[bytes, bytes]


class Health:
    """The state of the server as a whole, which is that of its one service."""

    def __init__(self) -> None:
        self._serving = False
        self._changed = asyncio.Condition()
        self._watchers = 0

    def handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)

    async def tell(self, *, serving: bool) -> None:
        async with self._changed:
            self._serving = serving
            self._changed.notify_all()

    async def _check(self, raw: bytes, context: _Context) -> bytes:
        if await self._asked(raw, context) not in _NAMES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return self._answer()

    async def _watch(self, raw: bytes, context: _Context) -> None:
        asked = await self._asked(raw, context)
        if self._watchers >= WATCHERS_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watchers")
        self._watchers += 1
        try:
            if asked not in _NAMES:
                unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
                await context.write(health_pb2.HealthCheckResponse(status=unknown).SerializeToString())
                return
            while True:
                told = self._serving
                await context.write(self._answer())
                async with self._changed:
                    while self._serving == told:
                        await self._changed.wait()
        finally:
            self._watchers -= 1

    async def _asked(self, raw: bytes, context: _Context) -> str:
        try:
            service: str = health_pb2.HealthCheckRequest.FromString(raw).service
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
        return service

    def _answer(self) -> bytes:
        states = health_pb2.HealthCheckResponse
        status = states.SERVING if self._serving else states.NOT_SERVING
        raw: bytes = states(status=status).SerializeToString()
        return raw
