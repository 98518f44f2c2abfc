"""Requests that an aggregator passes on to the coordinator: whose they are is believed of an aggregator only.

    X-Evermirror-Via: the aggregator's pass          X-Evermirror-For: the client's address

Whoever comes by an aggregator is never taken for this machine's own user, wherever the aggregator runs. A
pass that is not good is refused, not overlooked: without it the request would count as the aggregator's own.
Without the second header the aggregator asks for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from evermirror.edge.relay.seal import SealInvalid
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.access import Role
from evermirror.model.client_address import is_address, is_loopback
from evermirror.model.relay import NodeId, Pass

VIA = "x-evermirror-via"
FOR = "x-evermirror-for"
UNKNOWN = "unknown"  # a client without an address

_READ_MAX = 100  # passes remembered as good: each aggregator has one or two
_REMEMBERED_S = 60.0

PassReader = Callable[[str], Pass]
"""Raises SealInvalid."""


@dataclass(frozen=True, slots=True)
class Via:
    """Through whom a request came; ``own``: that aggregator asks for itself."""

    node: NodeId
    own: bool


def via_of(scope: Scope) -> Via | None:
    found = scope.get("state", {}).get("via")
    return found if isinstance(found, Via) else None


class PassedOn:
    """Puts a ``Via`` into the scope, and the client's address in place of the aggregator's."""

    def __init__(
        self, app: ASGIApp, read: PassReader | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._read = read
        self._clock = clock
        self._good: dict[str, tuple[NodeId, float]] = {}  # until when

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if VIA not in headers and FOR not in headers:
            await self._app(scope, receive, send)
            return
        try:
            passed = self._passed(scope, headers)
        except SealInvalid as invalid:
            await _refusal(invalid.message).response()(scope, receive, send)
            return
        await self._app(passed, receive, send)

    def _passed(self, scope: Scope, headers: Headers) -> Scope:
        node = self._node(headers.get(VIA, ""))
        address = headers.get(FOR)
        if address is not None and address != UNKNOWN and not is_address(address):
            raise SealInvalid(f"{FOR} is no address")
        state = {**scope.get("state", {}), "via": Via(node, own=address is None)}
        passed = {**scope, "state": state}
        # Of a client on the aggregator's own machine we know best where that machine is.
        if address is not None and not is_loopback(address):
            passed["client"] = (address, 0) if address != UNKNOWN else None
        return passed

    def _node(self, sealed: str) -> NodeId:
        node, until = self._good.get(sealed, (None, 0.0))
        if node is not None and self._clock() < until:
            return node
        self._good.pop(sealed, None)
        if self._read is None:
            raise SealInvalid("nobody passes requests on to this server")
        bearer = self._read(sealed)
        if bearer.role is not Role.AGGREGATOR:
            raise SealInvalid("the pass is not an aggregator's")
        if len(self._good) >= _READ_MAX:
            del self._good[next(iter(self._good))]
        self._good[sealed] = (bearer.node, self._clock() + _REMEMBERED_S)
        return bearer.node


def _refusal(why: str) -> ApiProblem:
    return ApiProblem(
        Kind.NOT_AGGREGATOR,
        f"The request says that an aggregator passed it on, but {why}",
        hint="Leave these headers out; an aggregator gets a new pass when it connects",
        headers={VIA: "refused"},
    )
