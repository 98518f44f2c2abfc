"""A child process that bytes flow through, both ways, no faster than the slower side takes them.

Nothing is gathered: where the reader is slow the child's pipe fills and it waits; where the child is slow so
does the sender. Whoever goes away, the process group is ended; also where nothing moves for too long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE

from evermirror.edge.git.process import STDERR_TAIL_BYTES, Spawned, end_group

BUFFER_BYTES = (
    256 * 1024
)  # between child and reader: a few pipe-fulls, so that neither waits for each wake-up


class StreamingChild:
    """Use ``open``, iterate ``output``, and always ``close``."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
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

    @classmethod
    async def open(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        body: AsyncIterator[bytes] | None,
        silence_s: float,
    ) -> StreamingChild:
        """Start, and begin to pass ``body`` on."""
        loop = asyncio.get_running_loop()
        stream = cls()
        stream._child = await Spawned.start(stream, argv, env=env, cwd=cwd, stdin=PIPE)
        if stream._buffered >= BUFFER_BYTES:
            stream._pause()
        stream._tasks = [loop.create_task(stream._feed(body)), loop.create_task(stream._watch(silence_s))]
        return stream

    async def output(self) -> AsyncIterator[bytes]:
        """What the child writes, as it comes, until it closes its end."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered -= len(chunk)
                self.sent_bytes += len(chunk)
                self._moved_at = self._now()
                yield chunk
            if self._ended:
                break
            self._readable.clear()
            if self._paused:
                self._paused = False
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
                async for chunk in body:
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

    async def _watch(self, silence_s: float) -> None:
        while (left := self._moved_at + silence_s - self._now()) > 0:  # noqa: ASYNC110  # one wake-up a silence
            await asyncio.sleep(left)
        self.trouble = TimeoutError(f"nothing moved for {silence_s:g} s")
        self._end_output()
        await end_group(self._child)

    def _end_output(self) -> None:
        self._chunks.clear()
        self._ended = True
        self._readable.set()

    def _pause(self) -> None:
        self._paused = True
        self._child.stdout.pause_reading()

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
        if self._buffered >= BUFFER_BYTES and not self._paused and self._tasks:
            self._pause()

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
