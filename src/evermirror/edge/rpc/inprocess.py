"""The transport within one process: the same frames as over gRPC, as they are, over two bounded ways."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Generic, TypeVar

import structlog

from evermirror.edge.rpc.transport import SEND_S, Accept, Connection, Identity, PeerGone
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.wire import Down, Up

FRAMES_WAITING = 16  # a way; about what fits into the window of a gRPC stream
STOP_S = 5.0  # how long an accepted connection may take to notice that it was closed

log = structlog.get_logger(__name__)

T = TypeVar("T")
Sent = TypeVar("Sent")
Got = TypeVar("Got")


class _Way(Generic[T]):
    """One direction. Its writer may end it (the rest is still read), its reader refuse it (nothing is)."""

    def __init__(self, frames_max: int) -> None:
        self._frames: deque[T] = deque()
        self._frames_max = frames_max
        self._over: str | None = None
        self._changed = asyncio.Condition()

    async def put(self, frame: T) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._over is not None or self._has_room())
            if self._over is not None:
                raise PeerGone(self._over)
            self._frames.append(frame)
            self._changed.notify_all()

    async def get(self) -> T:
        async with self._changed:
            await self._changed.wait_for(lambda: self._over is not None or bool(self._frames))
            if not self._frames:
                raise PeerGone(self._over)
            frame = self._frames.popleft()
            self._changed.notify_all()
            return frame

    async def end(self, why: str, *, keep: bool) -> None:
        async with self._changed:
            if not keep:
                self._frames.clear()
            if self._over is None:
                self._over = why
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._frames) < self._frames_max


class _End(Generic[Sent, Got]):
    """What both ends of a pair are."""

    def __init__(self, outward: _Way[Sent], inward: _Way[Got], send_s: float) -> None:
        self._outward = outward
        self._inward = inward
        self._send_s = send_s

    async def receive(self) -> Got:
        return await self._inward.get()

    async def send(self, frame: Sent) -> None:
        try:
            async with asyncio.timeout(self._send_s):
                await self._outward.put(frame)
        except TimeoutError:
            why = f"the other side has read nothing for {self._send_s:g} s"
            await self._end(why)
            raise PeerGone(why) from None

    async def _end(self, why: str) -> None:
        await self._outward.end(why, keep=True)
        await self._inward.end(why, keep=False)


class InProcessPeer(_End[Down, Up]):
    """The coordinator's end."""

    def __init__(self, identity: Identity, outward: _Way[Down], inward: _Way[Up], send_s: float) -> None:
        super().__init__(outward, inward, send_s)
        self.identity = identity
        self.address = "in-process"

    async def close(self, reason: str) -> None:
        await self._end(reason)


class InProcessConnection(_End[Up, Down]):
    """The worker's end."""

    async def close(self) -> None:
        await self._end("the worker closed the connection")


def pair(
    identity: Identity, *, frames_waiting: int = FRAMES_WAITING, send_s: float = SEND_S
) -> tuple[InProcessPeer, InProcessConnection]:
    """Both ends of a connection, the coordinator's first."""
    up: _Way[Up] = _Way(frames_waiting)
    down: _Way[Down] = _Way(frames_waiting)
    return InProcessPeer(identity, down, up, send_s), InProcessConnection(up, down, send_s)


class InProcessServer:
    """Accepts connections from this process, as GrpcServer does from others; ``async with`` is its life."""

    def __init__(
        self, accept: Accept, *, frames_waiting: int = FRAMES_WAITING, send_s: float = SEND_S
    ) -> None:
        self._accept = accept
        self._frames_waiting = frames_waiting
        self._send_s = send_s
        self._open: dict[asyncio.Task[None], InProcessPeer] = {}
        self._stopped = True

    async def __aenter__(self) -> InProcessServer:
        self._stopped = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        for peer in self._open.values():
            await peer.close("the coordinator stops")
        tasks = list(self._open)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def dialer(self, identity: Identity) -> InProcessDialer:
        """For the worker with this identity."""
        return InProcessDialer(self, identity)

    def connect(self, identity: Identity) -> Connection:
        """A connection that was accepted; raises FailureError once stopped."""
        if self._stopped:
            raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "the coordinator is not running"))
        peer, connection = pair(identity, frames_waiting=self._frames_waiting, send_s=self._send_s)
        task = asyncio.create_task(self._serve(peer), name=f"peer {identity.name}")
        self._open[task] = peer
        task.add_done_callback(lambda done: self._open.pop(done, None))
        return connection

    async def _serve(self, peer: InProcessPeer) -> None:
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


class InProcessDialer:
    """Dials the coordinator in this process."""

    def __init__(self, server: InProcessServer, identity: Identity) -> None:
        self._server = server
        self._identity = identity

    async def dial(self) -> Connection:
        return self._server.connect(self._identity)
