"""Collects writes and hands them to the store in batches: many results, one transaction.

Rules:
- What ``put`` accepted is written in that order, once, unless the process dies before the flush.
- A full queue makes ``put`` wait: a slow database slows the engine down instead of filling the memory.
- A database in trouble is tried again with growing pauses, and ``healthy`` says so. So is one whose tables
  are not as they should be.
- A write that the database refuses for what is in it (a number that is too large) is set aside with an error
  in the log; everything else of its batch is written. Its report counts as taken: sent again, it would be
  refused again, and hold up all that its worker has to say.

    put ──> queue ──(flush_s passed, or batch full, or flush asked)──> store.apply ──> written
                                                       │ trouble: pause, the same batch again
                                                       │ refused: each half by itself, down to one write
                                                       ▼
                                                   set aside
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Protocol, Self

import structlog

from evermirror.core.fleet.decisions import DropCopies, PutCopies
from evermirror.edge.store.failures import is_refusal, told_shortly
from evermirror.edge.store.writes import Decided, Entry, ProjectSaved, Write
from evermirror.model.failure import Failure, FailureError, FailureKind

log = structlog.get_logger(__name__)

FLUSH_S = 0.2  # how old a result may become before it is written: short for people, long enough for a batch
BATCH = 1000  # writes of a transaction, roughly: tens of milliseconds, during which other writers wait
CAPACITY = 20_000  # writes waiting at most: some MB, about a second of the fastest engine
BACKOFF_S = (0.2, 10.0)  # first and longest pause after trouble
CLOSE_S = 60.0  # how long closing goes on trying a database in trouble
LOG_EVERY_S = 1.0  # between two lines about writes that were set aside: many may come at once


class Sink(Protocol):
    """Where batches go: a ``Store``."""

    async def apply(self, batch: list[Entry]) -> None: ...


class Recorder:
    """Used as ``async with``: leaving it writes everything that was put."""

    def __init__(
        self,
        store: Sink,
        *,
        flush_s: float = FLUSH_S,
        batch: int = BATCH,
        capacity: int = CAPACITY,
        backoff_s: tuple[float, float] = BACKOFF_S,
        close_s: float = CLOSE_S,
    ) -> None:
        self._store = store
        self._flush_s = flush_s
        self._batch = batch
        self._capacity = capacity
        self._backoff_s = backoff_s
        self._close_s = close_s
        self._queue: deque[Entry] = deque()
        self._waiting = 0  # writes in the queue
        self._accepted = 0  # entries ever put
        self._written = 0  # entries ever written
        self._wanted = 0  # flush at least up to this many
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self._trouble: Failure | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._stopped = False
        self._bug: Exception | None = None
        self._set_aside = 0
        self._logged_at = float("-inf")

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="recorder")
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def healthy(self) -> bool:
        """Whether the last attempt to write succeeded, and the recorder runs."""
        return self._trouble is None and self._bug is None

    @property
    def trouble(self) -> Failure | None:
        """What is wrong with the database now."""
        return self._trouble

    @property
    def waiting(self) -> int:
        """Writes accepted and not on the disk yet."""
        return self._waiting

    @property
    def set_aside(self) -> int:
        """Writes that the database refused, since the start."""
        return self._set_aside

    def warnings(self) -> tuple[str, ...]:
        """For the overview."""
        if not self._set_aside:
            return ()
        return (f"the database refused {self._set_aside} writes since the start: see the log for each kind",)

    async def put(self, *entries: Entry) -> None:
        """Accepts entries; waits while the queue is full."""
        if self._closing:
            raise RuntimeError("the recorder is closed")
        if self._waiting >= self._capacity:
            async with self._moved:
                await self._moved.wait_for(lambda: self._waiting < self._capacity or self._stopped)
        self._raise_if_stopped()
        self._accept(*entries)

    def _accept(self, *entries: Entry) -> None:
        self._queue.extend(entries)
        self._accepted += len(entries)
        self._waiting += sum(map(_size, entries))
        if self._queue:
            self._wake.set()

    def put_soon(self, entry: Entry) -> None:
        """Accepts an entry that may be missed: one too many is dropped instead of waited for."""
        if self._closing or self._stopped or self._waiting >= self._capacity:
            return
        self._accept(entry)

    async def flush(self) -> None:
        """Returns when everything put so far is on the disk."""
        target = self._accepted
        self._wanted = max(self._wanted, target)
        self._wake.set()
        async with self._moved:
            await self._moved.wait_for(lambda: self._written >= target or self._stopped)
        if self._written < target:
            self._raise_if_stopped()

    async def close(self) -> None:
        """Writes what was accepted. Raises when the database stays in trouble for ``close_s``."""
        if self._task is None or self._closing:
            return
        self._closing = True
        try:
            async with asyncio.timeout(self._close_s):
                await self.flush()
        except TimeoutError:
            why = self._trouble.message if self._trouble is not None else "the database is too slow"
            message = f"{self._waiting} results were not written: {why}"
            raise FailureError(Failure(FailureKind.UNKNOWN, message)) from None
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                await self._gather()
                self._wake.clear()
                while self._queue:
                    await self._write_batch()
        except Exception as e:  # a bug: kept, so that everybody who still puts or flushes meets it
            self._bug = e
            log.error("recorder_stopped", waiting=self._waiting, exc_info=True)
        finally:
            self._stopped = True
            async with self._moved:
                self._moved.notify_all()

    async def _gather(self) -> None:
        """Lets a batch gather; ends early when it is full or a flush is asked."""
        try:
            async with asyncio.timeout(self._flush_s):
                while self._wanted <= self._written and self._waiting < self._batch:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return

    async def _write_batch(self) -> None:
        batch = self._next_batch()
        await self._write(batch)
        for _ in batch:
            self._queue.popleft()
        self._written += len(batch)
        self._waiting -= sum(map(_size, batch))
        async with self._moved:
            self._moved.notify_all()

    async def _write(self, batch: list[Entry]) -> None:
        """All but what the database refuses."""
        refusal = await self._refusal(batch)
        if refusal is None:
            return
        parts = _parts(batch)
        if not parts:
            self._put_aside(batch[0], refusal)
        for part in parts:
            await self._write(part)

    async def _refusal(self, batch: list[Entry]) -> Exception | None:
        """Why it is refused as a whole; None once it is written."""
        pause_s, longest_s = self._backoff_s
        while True:
            try:
                await self._store.apply(batch)
                break
            except FailureError as e:
                self._in_trouble(e.failure)
            except Exception as e:
                if is_refusal(e):
                    return e
                self._in_trouble(Failure(FailureKind.UNKNOWN, f"the database's tables: {told_shortly(e)}"))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        if self._trouble is not None:
            log.info("database_well_again", waiting=self._waiting)
            self._trouble = None
        return None

    def _in_trouble(self, failure: Failure) -> None:
        if self._trouble is None:
            log.warning("database_in_trouble", reason=failure.message, waiting=self._waiting)
        self._trouble = failure

    def _put_aside(self, entry: Entry, why: Exception) -> None:
        self._set_aside += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            kind, reason = _kind(entry), told_shortly(why)
            log.error("write_set_aside", write=kind, reason=reason, so_far=self._set_aside, exc_info=why)

    def _next_batch(self) -> list[Entry]:
        """From the front of the queue, where it stays until it is written. A decision is never split."""
        batch: list[Entry] = []
        size = 0
        for entry in self._queue:
            if size >= self._batch:
                break
            batch.append(entry)
            size += _size(entry)
        return batch

    def _raise_if_stopped(self) -> None:
        if self._bug is not None:
            raise self._bug
        if self._stopped:
            raise RuntimeError("the recorder is closed")


def _parts(batch: list[Entry]) -> list[list[Entry]]:
    """What can be written apart, in the same order; nothing where it is a single write."""
    if len(batch) > 1:
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]
    match batch[0]:
        case Decided(fleet, others) if fleet and others:
            return [[Decided(fleet)], list(others)]
        case Decided(fleet, ()) if len(fleet) > 1:
            return [[Decided((write,)) for write in fleet]]
        case Decided((), others) if others:
            return [list(others)]
        case _:
            return []


def _kind(entry: Entry) -> str:
    write = entry.fleet[0] if isinstance(entry, Decided) and entry.fleet else entry
    return type(write).__name__


def _size(entry: Entry) -> int:
    """Rows that it touches."""
    if not isinstance(entry, Decided):
        return _rows(entry)
    size = sum(map(_rows, entry.others))
    for write in entry.fleet:
        match write:
            case PutCopies(rows=rows):
                size += len(rows)
            case DropCopies(copies=copies):
                size += len(copies)
            case _:
                size += 1
    return max(1, size)


def _rows(write: Write) -> int:
    return 1 + len(write.project.targets) if isinstance(write, ProjectSaved) else 1
