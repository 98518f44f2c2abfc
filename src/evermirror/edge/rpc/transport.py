"""What a connection between a worker and its coordinator promises, whatever carries it.

Rules (tests/contracts/test_fleet_links.py holds every transport to them)
- Frames arrive whole, once, and in the order in which they were sent, until the connection ends.
- ``send`` returns when the transport has taken the frame, not when the other side has read it. Transports
  buffer little: while the other side does not read, ``send`` waits; after ``send_s`` it gives up.
- After ``close`` the other side still receives what was sent before, then PeerGone. The closing side itself
  gets PeerGone at once from whatever waits or is called later.
- A side that ends without a word (killed, cut off) is PeerGone too; what it sent last may be lost.
- ``receive`` may be cancelled: no frame is lost by it. A cancelled ``send`` may or may not have been sent.
- One task receives; any number may send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from evermirror.model.access import NO_LIMITS, Role, TokenLimits
from evermirror.model.wire import Down, Up

SEND_S = 30.0  # a side that reads nothing for so long is as good as gone


class PeerGone(Exception):
    """The other side is no longer there; the message says how it went, as far as is known."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is at the other end: by its token, never by its word."""

    token_id: int
    name: str  # of the token
    role: Role
    trusted: bool
    operator: str = ""  # who runs it, as the token says
    limits: TokenLimits = NO_LIMITS


class Peer(Protocol):
    """The coordinator's end of one connection."""

    @property
    def identity(self) -> Identity: ...

    @property
    def address(self) -> str:
        """Where it comes from, for people to read."""
        ...

    async def receive(self) -> Up:
        """The next frame; raises PeerGone."""
        ...

    async def send(self, frame: Down) -> None:
        """Waits while the other side does not read; raises PeerGone."""
        ...

    async def close(self, reason: str) -> None:
        """Ends it; the reason is told to the other side where that is still possible. Any number of times."""
        ...


class Connection(Protocol):
    """The worker's end of one connection."""

    async def receive(self) -> Down:
        """The next frame; raises PeerGone."""
        ...

    async def send(self, frame: Up) -> None:
        """Waits while the other side does not read; raises PeerGone."""
        ...

    async def close(self) -> None:
        """Ends it. Any number of times."""
        ...


class Dialer(Protocol):
    """How a worker gets a connection."""

    async def dial(self) -> Connection:
        """Raises FailureError: NETWORK_TIMEOUT where nobody answers, AUTH_FAILED or PERMISSION_DENIED where
        trying again is of no use without a person (the token, or the certificate)."""
        ...


Accept = Callable[[Peer], Awaitable[None]]
"""What the coordinator does with a connection; the connection ends when this returns or raises."""

Authenticate = Callable[[str], Awaitable[Identity | None]]
"""Whose token this is; None where it is unknown or revoked."""
