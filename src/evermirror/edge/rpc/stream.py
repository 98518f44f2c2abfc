"""One gRPC stream, seen from either side: frames in order, waits that are bounded, an end that is told once.

gRPC allows one read and one write under way at a time, and loses or breaks the stream when one of them is
cancelled. So each runs in a task of its own, which outlives a caller that stops waiting: the next caller goes
on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from evermirror.edge.rpc.convert_values import FrameInvalid
from evermirror.edge.rpc.transport import PeerGone

Sent = TypeVar("Sent")
Got = TypeVar("Got")
T = TypeVar("T")


class Stream(Generic[Sent, Got]):
    """``read`` and ``write`` move raw frames and raise PeerGone; ``abort`` ends the call at once."""

    def __init__(
        self,
        *,
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        abort: Callable[[], object],
        decode: Callable[[bytes], Got],
        encode: Callable[[Sent], bytes],
        send_s: float,
    ) -> None:
        self._read = read
        self._write = write
        self._abort = abort
        self._decode = decode
        self._encode = encode
        self._send_s = send_s
        self._over: str | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Future[bytes] | None = None
        self._read_waiter: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._send_lock = asyncio.Lock()

    @property
    def over(self) -> str | None:
        """Why it ended; None while it lives."""
        return self._over

    async def receive(self) -> Got:
        raw = await self._next()
        try:
            return self._decode(raw)
        except FrameInvalid as e:
            why = f"the other side broke the contract: {e}"
            self.end(why)
            self._abort()
            raise PeerGone(why) from None

    async def _next(self) -> bytes:
        self._check()
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(lambda _: self._wake_reader())
        if not self._reading.done():
            self._read_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._read_waiter
            finally:
                self._read_waiter = None
            self._check()
        reading, self._reading = self._reading, None
        return self._outcome(reading)

    async def send(self, frame: Sent) -> None:
        raw = self._encode(frame)
        async with self._send_lock:
            await self._finish_write()
            self._check()
            self._writing = asyncio.ensure_future(self._write(raw))
            await self._finish_write()

    async def _finish_write(self) -> None:
        """Waits for the write under way: the caller's own, or that of one who was cancelled."""
        writing = self._writing
        if writing is None:
            return
        if not writing.done():
            await asyncio.wait(
                (writing, self._ended), timeout=self._send_s, return_when=asyncio.FIRST_COMPLETED
            )
        self._check()
        if not writing.done():
            why = f"the other side has read nothing for {self._send_s:g} s"
            self.end(why)
            self._abort()
            raise PeerGone(why)
        self._writing = None
        self._outcome(writing)

    async def ended(self) -> None:
        await asyncio.shield(self._ended)

    async def flushed(self, timeout_s: float) -> bool:
        """Whether no write is under way any more."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,), timeout=timeout_s)
        return self._writing is None or self._writing.done()

    def end(self, why: str) -> None:
        """From now on PeerGone, also for those that wait; the first reason is the one that is told."""
        if self._over is None:
            self._over = why
            self._ended.set_result(None)
            self._wake_reader()

    def drop(self) -> None:
        """Nothing is under way any more: for after the call's own end."""
        self.end("the connection ended")
        for task in (self._reading, self._writing):
            if task is not None and not task.done():
                task.cancel()
            elif task is not None and not task.cancelled():
                task.exception()  # seen, though nobody asks any more

    def _wake_reader(self) -> None:
        if self._read_waiter is not None and not self._read_waiter.done():
            self._read_waiter.set_result(None)

    def _check(self) -> None:
        if self._over is not None:
            raise PeerGone(self._over)

    def _outcome(self, task: asyncio.Future[T]) -> T:
        if task.cancelled():
            self.end("the connection was cancelled")
        elif isinstance(error := task.exception(), PeerGone):
            self.end(str(error))
        self._check()
        return task.result()
