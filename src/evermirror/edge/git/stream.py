"""A child process that bytes flow through, both ways, no faster than the slower side takes them.

Nothing is gathered: where the reader is slow the child's pipe fills and it waits; where the child is slow so
does the sender. Whoever goes away, the process group is ended; also where nothing moves for too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE

from evermirror.core.fairness import Pace
from evermirror.edge.git.process import STDERR_TAIL_BYTES, Spawned, as_file, end_group

BUFFER_BYTES = 256 * 1024  # between child and reader, so that neither waits for each wake-up
PIPE_BYTES = 1024 * 1024  # the system's 64 KiB are filled in less than a wake-up's time
SMALL_BYTES = 64 * 1024  # less than this in a pipe is not worth a wake-up, in the midst of a large answer
REST_S = 0.002  # until there is more: a quarter of the pipe, at the speed of git
PACE_BYTES_S = 1_000  # a reader slower than this keeps a process for nothing: a modem takes 5,000
LOOK_S = 0.005  # between two looks at a file that grows


class StreamingChild:
    """Use ``open``, iterate ``output``, and always ``close``."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False  # the reader is behind
        self._resting = False  # for a moment, so that the pipe fills
        self._ended = False  # its stdout is closed
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._child: Spawned
        self._tasks: list[asyncio.Task[None]] = []
        self._moved_at = loop.time()
        self.stderr = bytearray()
        self.sent_bytes = 0
        self.trouble: Exception | None = None  # what the sender raised
        self.taking = Pace()  # of the reader
        self.sending = Pace()  # of the sender

    @classmethod
    async def open(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        body: AsyncIterator[bytes] | None,
        silence_s: float,
        memory_bytes: int | None = None,
    ) -> StreamingChild:
        """Start, and begin to pass ``body`` on."""
        loop = asyncio.get_running_loop()
        stream = cls()
        stream._child = await Spawned.start(
            stream, argv, env=env, cwd=cwd, stdin=PIPE, memory_bytes=memory_bytes
        )
        _widen(stream._child.stdout)
        if stream._buffered >= BUFFER_BYTES:
            stream._pause()
        stream._tasks = [loop.create_task(stream._feed(body)), loop.create_task(stream._watch(silence_s))]
        return stream

    async def output(self) -> AsyncIterator[bytes]:
        """What the child writes, as it comes, until it closes its end."""
        while True:
            while self._chunks:
                # All at once: git writes 8 KiB at a time, and each piece costs its way through every layer.
                chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                self._buffered = 0
                self.sent_bytes += len(chunk)
                self._moved_at = self._now()
                self.taking.begin(self._moved_at, len(chunk))
                yield chunk
                self.taking.end(self._now(), len(chunk))
            if self._ended:
                break
            self._readable.clear()
            if self._paused:
                self._paused = False
                if not self._resting:
                    self._child.stdout.resume_reading()
            await self._readable.wait()
        if self.trouble is not None:
            raise self.trouble

    async def wait(self) -> int:
        """The exit code, once the output has ended."""
        await asyncio.wait({self._child.gone})
        return self._child.returncode

    async def close(self) -> None:
        """End whatever still runs; nothing is left afterwards."""
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await end_group(self._child)

    async def _feed(self, body: AsyncIterator[bytes] | None) -> None:
        pipe = self._child.stdin
        try:
            if body is not None:
                async for chunk in self._timed(body):
                    await self._writable.wait()
                    if pipe.is_closing():
                        return  # it has heard enough, and answers
                    pipe.write(chunk)
                    self._moved_at = self._now()
        except Exception as error:  # the client went away, or sent too much: told to whoever reads our output
            self.trouble = error
            self._end_output()
        finally:
            pipe.close()

    async def _timed(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.sending.begin(self._now())
        async for chunk in body:
            self.sending.end(self._now(), len(chunk))
            yield chunk
            self.sending.begin(self._now())
        self.sending.end(self._now(), 0)

    def cut(self) -> None:
        """End the child now: its client is too slow while others wait. The reader is told when it comes."""
        self.trouble = TimeoutError("the client was too slow while others waited")
        self._end_output()
        self._tasks.append(asyncio.get_running_loop().create_task(end_group(self._child)))

    async def _watch(self, silence_s: float) -> None:
        """Ends it where nothing moves, or where a reader takes so little that it might as well not."""
        paced_at, paced_bytes = self._now(), 0
        while (left := self._moved_at + silence_s - self._now()) > 0:
            await asyncio.sleep(min(left, silence_s / 2))
            if not self._paused:  # it is the child that is slow
                paced_at, paced_bytes = self._now(), self.sent_bytes
            elif self._now() - paced_at >= silence_s:
                if self.sent_bytes - paced_bytes < PACE_BYTES_S * silence_s:
                    break
                paced_at, paced_bytes = self._now(), self.sent_bytes
        self.trouble = TimeoutError(f"nothing moved for {silence_s:g} s")
        self._end_output()
        await end_group(self._child)

    def _end_output(self) -> None:
        self._chunks.clear()
        self._ended = True
        self._readable.set()

    def _pause(self) -> None:
        self._paused = True
        if not self._resting:
            self._child.stdout.pause_reading()

    def _rested(self) -> None:
        self._resting = False
        if not self._paused and not self._ended:
            self._child.stdout.resume_reading()

    # Called for the child

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._moved_at = self._now()
        if fd == 2:
            self.stderr += data
            del self.stderr[:-STDERR_TAIL_BYTES]
            return
        if self._ended:
            return
        self._chunks.append(data)
        self._buffered += len(data)
        self._readable.set()
        if self._paused or not self._tasks:
            return
        if self._buffered >= BUFFER_BYTES:
            self._pause()
        elif self.sent_bytes > BUFFER_BYTES and len(data) < SMALL_BYTES and not self._resting:
            self._resting = True
            self._child.stdout.pause_reading()
            asyncio.get_running_loop().call_later(REST_S, self._rested)

    def pipe_connection_lost(self, fd: int) -> None:
        if fd == 0:
            self._writable.set()
        elif fd == 1:
            self._ended = True
            self._readable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def process_exited(self) -> None:
        return

    def connection_lost(self) -> None:
        self._ended = True
        self._readable.set()
        self._writable.set()


def _widen(pipe: asyncio.ReadTransport) -> None:
    with contextlib.suppress(OSError, ValueError):  # the bound of this user is reached; it has ended
        fcntl.fcntl(pipe.get_extra_info("pipe").fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class _Stderr:
    """Hears nothing but the end of what a child complains about."""

    def __init__(self) -> None:
        self.tail = bytearray()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.tail += data
        del self.tail[:-STDERR_TAIL_BYTES]

    def pipe_connection_lost(self, fd: int) -> None:
        return

    def process_exited(self) -> None:
        return

    def connection_lost(self) -> None:
        return

    def pause_writing(self) -> None:
        return

    def resume_writing(self) -> None:
        return


async def run_into(
    file: int,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: bytes,
    silence_s: float,
    grown: Callable[[int], None],
    memory_bytes: int | None = None,
) -> tuple[int, bytes]:
    """A child that writes into a file, past us: no byte costs us anything. ``grown`` is told its size.

    Gives the exit code and the tail of stderr; a file that does not grow for too long is a TimeoutError."""
    now = asyncio.get_running_loop().time
    heard = _Stderr()
    with as_file(stdin) as source:
        child = await Spawned.start(
            heard, argv, env=env, cwd=cwd, stdin=source, stdout=file, memory_bytes=memory_bytes
        )
    size, moved_at = 0, now()
    try:
        while not child.gone.done():
            await asyncio.wait({child.gone}, timeout=LOOK_S)
            if (written := os.fstat(file).st_size) != size:
                size, moved_at = written, now()
                grown(size)
            elif now() - moved_at > silence_s:
                raise TimeoutError(f"git wrote nothing for {silence_s:g} s")
    finally:
        await end_group(child)
    grown(os.fstat(file).st_size)
    return child.returncode, bytes(heard.tail)
