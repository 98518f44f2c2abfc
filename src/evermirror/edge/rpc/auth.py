"""Who may open a stream: the bearer of a live token with a node's role. Asked before anything else is read.

The token is compared where tokens are kept (edge/store/tokens.py), by its hash and in constant time; here it
is only taken out of the metadata. Nothing that is told or logged repeats it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import structlog

from evermirror.edge.rpc.limits import RpcLimits
from evermirror.edge.rpc.transport import Authenticate, Identity

_BEARER = re.compile(r"[Bb]earer +(?P<token>[\x21-\x7e]{1,512})")
Metadata = Sequence[tuple[str, str | bytes]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Denied(Exception):
    """It may not, for this reason."""

    code: grpc.StatusCode
    reason: str


class Gate:
    """Lets streams in, so many of each token and so many in all; whoever was let in must leave again."""

    def __init__(self, authenticate: Authenticate, limits: RpcLimits) -> None:
        self._authenticate = authenticate
        self._limits = limits
        self._inside: Counter[int] = Counter()
        self._asking = asyncio.Semaphore(limits.authenticating_max)

    async def enter(self, metadata: Metadata) -> Identity:
        """Raises Denied."""
        token = bearer_token(metadata)
        if token is None:
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, "a token is needed: authorization: Bearer TOKEN")
        identity = await self._ask(token)
        if identity is None:
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, "the token is unknown or revoked")
        if not identity.role.of_node:
            reason = f"the token's role is {identity.role.value}; a worker's is needed"
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, reason)
        if self._inside[identity.token_id] >= self._limits.streams_per_token:
            raise Denied(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many connections with this token")
        if self._inside.total() >= self._limits.connections_max:
            raise Denied(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many connections")
        self._inside[identity.token_id] += 1
        return identity

    def leave(self, identity: Identity) -> None:
        self._inside[identity.token_id] -= 1
        if not self._inside[identity.token_id]:
            del self._inside[identity.token_id]

    async def _ask(self, token: str) -> Identity | None:
        try:
            async with asyncio.timeout(self._limits.authenticate_s), self._asking:
                return await self._authenticate(token)
        except Exception as e:  # the database's weather; the worker tries again
            log.warning("a token could not be checked", error=type(e).__name__)
            raise Denied(grpc.StatusCode.UNAVAILABLE, "the token cannot be checked now") from None


def bearer_token(metadata: Metadata) -> str | None:
    """The token, where there is exactly one."""
    told = [value for key, value in metadata if key == "authorization"]
    if len(told) != 1 or not isinstance(told[0], str):
        return None
    found = _BEARER.fullmatch(told[0])
    return found["token"] if found else None
