"""One worker's connection at the coordinator: what is for it is made ready and sent in order, by a task that
lives as long as there is something."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from evermirror.edge.rpc.transport import Peer, PeerGone
from evermirror.model.failure import FailureError
from evermirror.model.wire import Down
from evermirror.model.worker import WorkerId

log = structlog.get_logger(__name__)

SENDING_MAX = 2048  # frames on their way to one worker; twice what may be unacknowledged

Make = Callable[[], Awaitable[Down | None]]


@dataclass(frozen=True, slots=True)
class Connected:
    """Who is at the other end; whether it is trusted, and whose it is, by its token."""

    name: str
    trusted: bool
    operator: str
    protocol: int  # that it speaks


@dataclass(slots=True)
class Session:
    """What is to be sent is made at the last moment, so that it tells the newest.

    Whoever has nothing to be told, and that is nearly everybody nearly always, has no queue and no task: they
    would be 5 kB for each of thousands of connections."""

    number: int
    peer: Peer
    worker: WorkerId | None = None
    heard_at: float = 0.0  # monotonic
    boot: int = 0
    name: str = ""
    version: str = ""
    protocol: int = 0
    has_pass: bool = False  # was given one, and gets the next
    _waiting: deque[Make] | None = field(default=None, init=False)
    _sending: asyncio.Task[None] | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)  # nothing is sent any more

    @property
    def about(self) -> Connected:
        identity = self.peer.identity
        return Connected(self.name, identity.trusted, identity.operator, self.protocol)

    @property
    def waiting(self) -> int:
        """Frames that nobody has begun to send."""
        return len(self._waiting) if self._waiting is not None else 0

    def put(self, make: Make) -> bool:
        """Whether there was room for one more frame."""
        if self._over:
            return True  # whoever listens is about to notice
        if self.waiting >= SENDING_MAX:
            return False
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(make)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name="to a worker")
        return True

    async def sent(self) -> None:
        """Until all is sent, or nothing is any more."""
        if self._sending is not None:
            await asyncio.wait((self._sending,))

    async def stop(self) -> None:
        self._over = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        """Until it cannot: then the connection ends, which whoever listens notices."""
        try:
            while self._waiting:
                await self._send_next(self._waiting)
            self._waiting = self._sending = None
            return
        except PeerGone:
            pass
        except FailureError as error:
            await self.peer.close(error.failure.message)
        except Exception:
            log.exception("a command could not be sent", peer=self.peer.address)
            await self.peer.close("the coordinator failed")
        self._over, self._waiting = True, None

    async def _send_next(self, waiting: deque[Make]) -> None:
        """Apart, so that nothing of a frame is kept while the next one is waited for: it may be large."""
        frame = await waiting.popleft()()
        if frame is not None:
            await self.peer.send(frame)
