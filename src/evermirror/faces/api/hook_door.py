"""What senders of hooks may take of us: bytes in memory, and wrong signatures from one address.

Bodies are counted as they come, by how large they have become: small ones may take the whole room, those that
are large only while half of it is free. What one address has on its way is bounded by itself. So a few who
send much, and slowly, keep nobody else out. Wrong ones are told to slow down; genuine ones never are, whoever
else sends from their address: behind a proxy everybody does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from starlette.requests import ClientDisconnect, Request

from evermirror.faces.api.auth import too_many
from evermirror.faces.api.buckets import Buckets, Rate
from evermirror.faces.api.client import client_address
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.client_address import client_network, is_loopback

log = structlog.get_logger(__name__)

RETRY_S = 5
_ROOM_BYTES = 64_000_000  # one of the largest, or thousands of the usual 10 to 50 kB
_SMALL_BYTES = 128_000
_USUAL_BYTES = 1_000_000
# One repo's secret that is out of date at a busy forge is no reason to answer all its hooks.
_WRONG = Rate(per_s=2.0, burst=100.0)
_WRONG_LOOPBACK = Rate(per_s=50.0, burst=1_000.0)  # a proxy: everybody's wrong ones come from there
_LOGGED = Rate(per_s=1 / 60, burst=3.0)  # lines about one address


class HookDoor:
    """One for all forges."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, room_bytes: int = _ROOM_BYTES) -> None:
        self._wrong = Buckets(_WRONG, clock)
        self._wrong_loopback = Buckets(_WRONG_LOOPBACK, clock)
        self._logged = Buckets(_LOGGED, clock)
        self._room_bytes = room_bytes
        self._share_bytes = max(room_bytes // 4, _USUAL_BYTES)
        self._on_their_way: Counter[str] = Counter()  # bytes of bodies that are not whole, by address
        self.held_bytes = 0

    def refusal(self, address: str | None, forge: str, reason: str, why: ApiProblem) -> ApiProblem:
        """What a hook that is not genuine is answered: ``why``, or 429 where its address sends many.
        ``reason`` is for the log alone."""
        if self._logged.take(client_network(address)) <= 0:
            log.warning("hook refused", address=address, forge=forge, reason=reason)
        buckets = self._wrong_loopback if is_loopback(address) else self._wrong
        wait_s = buckets.take(client_network(address))
        if wait_s > 0:
            return too_many(wait_s, "Too many hooks from this address were not signed as they should be")
        return why

    @asynccontextmanager
    async def body_of(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, counted until this is left. The layers around bound its size and its time."""
        address = client_address(request.scope)
        parts: list[bytes] = []
        held = 0
        try:
            try:
                async for part in request.stream():
                    held += len(part)
                    self.held_bytes += len(part)
                    self._on_their_way[client_network(address)] += len(part)
                    self._check_room(held)
                    self._check_share(address, held)
                    parts.append(part)
            finally:
                self._arrived(client_network(address), held)
            yield b"".join(parts)
        except ClientDisconnect:
            raise ApiProblem(Kind.MALFORMED, "The body was not sent to its end") from None
        finally:
            self.held_bytes -= held

    def _check_share(self, address: str | None, held: int) -> None:
        """One body alone is always within it."""
        theirs = self._on_their_way[client_network(address)]
        if theirs > self._share_bytes and theirs > held and not is_loopback(address):
            raise busy("Too many hooks come from this address at the same time")

    def _arrived(self, name: str, held: int) -> None:
        self._on_their_way[name] -= held
        if not self._on_their_way[name]:
            del self._on_their_way[name]

    def _check_room(self, held: int) -> None:
        if held <= _SMALL_BYTES:
            room = self._room_bytes
        elif held <= _USUAL_BYTES:
            room = self._room_bytes * 3 // 4
        else:
            room = self._room_bytes // 2
        if self.held_bytes > room:
            raise busy("Too many hooks come at the same time")


def busy(detail: str, hint: str = "") -> ApiProblem:
    """A 503 that says when to come again."""
    return ApiProblem(
        Kind.UNAVAILABLE,
        detail,
        hint=hint or f"Send it again in {RETRY_S} s; what it tells is also found by polling",
        headers={"Retry-After": str(RETRY_S)},
    )
