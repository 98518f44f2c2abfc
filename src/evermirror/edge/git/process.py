"""One child process in its own group, with bounded output, watched for silence, always ended and reaped.

    started ──(pipes closed and exited)──────────────────────────────▶ ended
       │
       └─(cancelled · silent too long · too slow · too much output)──▶ TERM to the group ─▶ KILL ─▶ ended

Children of git (git-remote-https, index-pack, ssh) are in the group and end with it. A child that outlives
*us*, after a kill -9, writes its next line of progress into a closed pipe and dies of that.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import IO, Protocol, cast

STDERR_TAIL_BYTES = 16_384  # the end is where git says what went wrong
TERM_GRACE_S = 2.0  # git removes its temporary files on TERM; it needs no longer
KILLED_S = 0.2  # a killed process is gone after a few milliseconds
LINGER_S = 10.0  # a grandchild that keeps a pipe open after git ended


class Stop(Enum):
    """Why we ended a process ourselves."""

    SILENT = "no progress"
    TOO_SLOW = "took too long"
    TOO_MUCH = "too much output"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one process; None is no bound."""

    stdout_bytes: int
    timeout_s: float | None = None
    silence_s: float | None = None
    memory_bytes: int | None = None  # of the process and of each of its children


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: ``returncode`` is negative for a signal; ``stop`` is set where we ended it."""

    returncode: int
    stdout: bytes
    stderr: bytes  # the tail
    stop: Stop | None


class Listener(Protocol):
    """Who is told what happens to a child. ``fd`` is 0, 1 or 2, as the child sees it."""

    def pipe_data_received(self, fd: int, data: bytes) -> None: ...
    def pipe_connection_lost(self, fd: int) -> None: ...
    def process_exited(self) -> None: ...
    def connection_lost(self) -> None:
        """It exited, and all of its pipes are closed."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class _Pipe(asyncio.Protocol):
    def __init__(self, child: Spawned, fd: int) -> None:
        self._child = child
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        self._child.listener.pipe_data_received(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.pipe_lost(self._fd)

    def pause_writing(self) -> None:
        self._child.listener.pause_writing()

    def resume_writing(self) -> None:
        self._child.listener.resume_writing()


class Spawned:
    """A running child and its pipes.

    Started by ``Popen`` and not by the event loop: that one is a vfork, which costs the same however large we
    are; uvloop's is a fork, which copies our page tables for each git."""

    def __init__(self, process: Popen[bytes], listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._loop = loop
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._open: set[int] = set()
        self.listener = listener
        self.gone: asyncio.Future[None] = loop.create_future()  # exited and all pipes closed
        self._exit_fd = os.pidfd_open(process.pid)
        loop.add_reader(self._exit_fd, self._exited)

    @classmethod
    async def start(
        cls,
        listener: Listener,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: IO[bytes] | int,
        stdout: int = PIPE,
        keep_fds: Sequence[int] = (),
        memory_bytes: int | None = None,
    ) -> Spawned:
        """Start ``argv`` as the leader of its own session and process group. ``stdout`` may be a file's
        descriptor: then the listener is not told of it. ``memory_bytes`` bounds the process and each of its
        children."""
        process = Popen(  # noqa: ASYNC220  # returns once the child has begun: under a millisecond
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=PIPE,
            bufsize=0,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pass_fds=tuple(keep_fds),
        )
        child = cls(process, listener)
        try:
            if memory_bytes is not None:
                bound_memory(process.pid, memory_bytes)
            await child._connect()
        except BaseException:
            try:
                await end_group(child)
            finally:  # the pipes that nobody connected yet; the others are closed by now
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream is not None:
                        stream.close()
            raise
        return child

    async def _connect(self) -> None:
        for fd, stream in ((1, self._process.stdout), (2, self._process.stderr), (0, self._process.stdin)):
            if stream is not None:
                connect = self._loop.connect_read_pipe if fd else self._loop.connect_write_pipe
                self._open.add(fd)
                self._pipes[fd], _ = await connect(lambda fd=fd: _Pipe(self, fd), stream)  # type: ignore[misc]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int:
        """Negative for a signal. Only once it is gone."""
        return self._process.returncode

    @property
    def stdin(self) -> asyncio.WriteTransport:
        return cast(asyncio.WriteTransport, self._pipes[0])

    @property
    def stdout(self) -> asyncio.ReadTransport:
        return cast(asyncio.ReadTransport, self._pipes[1])

    def reap(self) -> None:
        """Take note that the killed process is gone: the event loop may end before it could."""
        with suppress(TimeoutExpired):  # it waits for a disk; the event loop takes note of its end
            self._process.wait(KILLED_S)

    def close(self) -> None:
        """Close our ends of all pipes."""
        for pipe in self._pipes.values():
            pipe.close()

    def pipe_lost(self, fd: int) -> None:
        self._open.discard(fd)
        self.listener.pipe_connection_lost(fd)
        self._perhaps_gone()

    def _exited(self) -> None:
        self._loop.remove_reader(self._exit_fd)
        os.close(self._exit_fd)
        self._process.wait()  # it has exited: this reaps it and does not wait
        if 0 in self._pipes:
            self._pipes[0].close()
        self.listener.process_exited()
        self._perhaps_gone()

    def _perhaps_gone(self) -> None:
        if self._process.returncode is not None and not self._open and not self.gone.done():
            self.gone.set_result(None)
            self.listener.connection_lost()


class _Collector:
    """Gathers what a child says, within bounds."""

    def __init__(self, stdout_bytes: int, on_stderr: Callable[[bytes], None] | None) -> None:
        self._now = asyncio.get_running_loop().time
        self._stdout_bytes = stdout_bytes
        self._on_stderr = on_stderr
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.heard_at = self._now()
        self.exited_at: float | None = None
        self.too_much = False
        self.trouble: BaseException | None = None
        self.wake = asyncio.Event()  # something to look at before the next deadline

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.heard_at = self._now()
        if fd == 1:
            if len(self.stdout) + len(data) > self._stdout_bytes:
                self.too_much = True
                self.wake.set()
            else:
                self.stdout += data
            return
        self.stderr += data
        if len(self.stderr) > 2 * STDERR_TAIL_BYTES:
            del self.stderr[:-STDERR_TAIL_BYTES]
        if self._on_stderr is not None and self.trouble is None:
            try:
                self._on_stderr(data)
            except Exception as error:  # raised again by run_process, once the child has ended
                self.trouble = error
                self.wake.set()

    def pipe_connection_lost(self, fd: int) -> None:
        return

    def process_exited(self) -> None:
        self.exited_at = self._now()
        self.wake.set()

    def connection_lost(self) -> None:
        self.wake.set()

    def pause_writing(self) -> None:
        return

    def resume_writing(self) -> None:
        return


async def run_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    limits: Limits,
    stdin: bytes | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    keep_fds: Sequence[int] = (),
) -> Ended:
    """Run ``argv`` to its end. ``keep_fds`` are inherited: a lock is then held until the last child is gone.

    What ``on_stderr`` raises ends the process and is raised here."""
    heard = _Collector(limits.stdout_bytes, on_stderr)
    source = None if stdin is None else as_file(stdin)
    try:
        child = await Spawned.start(
            heard,
            argv,
            env=env,
            cwd=cwd,
            stdin=DEVNULL if source is None else source,
            keep_fds=keep_fds,
            memory_bytes=limits.memory_bytes,
        )
    finally:
        if source is not None:
            source.close()
    try:
        stop = await _watch(child, heard, limits)
    finally:
        await end_group(child)
    if heard.trouble is not None:
        raise heard.trouble
    return Ended(child.returncode, bytes(heard.stdout), bytes(heard.stderr[-STDERR_TAIL_BYTES:]), stop)


def as_file(data: bytes) -> IO[bytes]:
    """Input as a file in memory: no pipe to be fed, and nothing on a disk that may be full."""
    file = cast(IO[bytes], open(os.memfd_create("stdin"), "w+b", buffering=0))  # noqa: SIM115  # the caller closes it
    try:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


async def end_group(child: Spawned) -> None:
    """End the whole process group, and wait until it is reaped. Does nothing where it has ended by itself."""
    try:
        if not child.gone.done():
            _signal_group(child.pid, signal.SIGTERM)
            await asyncio.wait({child.gone}, timeout=TERM_GRACE_S)
    finally:  # also where we are cancelled a second time while waiting
        if not child.gone.done():
            _signal_group(child.pid, signal.SIGKILL)
            child.reap()
        child.close()
    if not child.gone.done():
        await asyncio.wait({child.gone}, timeout=LINGER_S)


async def _watch(child: Spawned, heard: _Collector, limits: Limits) -> Stop | None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not child.gone.done():
        heard.wake.clear()
        if heard.trouble is not None:
            return None
        if heard.too_much:
            return Stop.TOO_MUCH
        deadlines: list[tuple[float, Stop | None]] = []
        if heard.exited_at is not None:
            deadlines.append((heard.exited_at + LINGER_S, None))
        if limits.silence_s is not None:
            deadlines.append((heard.heard_at + limits.silence_s, Stop.SILENT))
        if limits.timeout_s is not None:
            deadlines.append((started + limits.timeout_s, Stop.TOO_SLOW))
        now = loop.time()
        passed = next((d for d in deadlines if d[0] <= now), None)
        if passed is not None:
            return passed[1]
        await _sleep(heard.wake, min((d[0] for d in deadlines), default=now + LINGER_S) - now)
    return None


async def _sleep(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return


def bound_memory(pid: int, memory_bytes: int) -> None:
    """Bound what a process that has just begun may allocate; its children inherit it. RLIMIT_DATA counts
    private writable memory only: packs, which git maps from their files, may be of any size. Set from here,
    since code of ours between fork and exec would cost the vfork."""
    with suppress(OSError, ValueError):  # it has ended; or we are bounded more tightly ourselves
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)  # start_new_session made the child its group's leader
    except (ProcessLookupError, PermissionError):
        return
