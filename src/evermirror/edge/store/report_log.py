"""Reports of a worker that its coordinator has not taken yet: numbered, and safe on the worker's disk.

    append ──▶ 4 5 6 7 8        forget(5): 4 and 5 were taken
               ─── ─────        read(5): 6 7 8
              first   last      renew(): a new generation, in which they are 1 2 3

Rules
- Numbers are 1, 2, 3, … without a hole within a ``generation``, a random number that is made with the file.
- What ``append`` returned from is on the disk, also after a power cut.
- A number may be told before its report is on the disk (a disk that takes no writes), but none above
  ``reserved``. Whoever opens the file after a process that just ended cannot know which were: the
  reserved ones are all used up then, as empty reports, so that no number ever means two reports.
- A full log empties the oldest *spare* reports: those that nobody waits for and that are told again anyway.
  They keep their numbers. Others are never dropped.
- A damaged file is moved aside; the new one is another generation.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from evermirror.edge.store.own_file import Layout, OwnFile, get_meta, in_one, put_meta
from evermirror.model.failure import FailureError

log = structlog.get_logger(__name__)

LOG_MAX = (
    100_000  # reports with a body: about 50 MB, what a busy worker does in a day without its coordinator
)
RESERVED = (
    512  # numbers that may be told ahead of the disk; so many empty reports cost one end without a word
)

_LAYOUT = Layout(
    version=1,
    schema="""
CREATE TABLE reports (
    seq INTEGER PRIMARY KEY,
    body BLOB,                -- NULL: empty
    spare INTEGER NOT NULL
);
CREATE INDEX spares ON reports (seq) WHERE spare;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
""",
    # Every commit is waited for: a number that was sent must not be given again after a power cut.
    synchronous="FULL",
)


@dataclass(frozen=True, slots=True)
class LoggedReport:
    """``spare``: it may be dropped where there are too many."""

    body: bytes
    spare: bool = False


@dataclass(frozen=True, slots=True)
class _Span:
    generation: int
    taken: int  # up to this number all were taken
    last: int
    reserved: int
    full: int  # with a body


class ReportLog:
    """Open it with ``await ReportLog.open(path)``. What raises FailureError changed nothing."""

    def __init__(self, file: OwnFile, span: _Span, *, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._span = span
        self.dropped = 0  # spare reports, since it was opened
        self.redial_s: float | None = None  # what the coordinator last said of pauses between two tries

    @classmethod
    async def open(
        cls, path: Path, *, limit: int = LOG_MAX, clock: Callable[[], float] = time.time
    ) -> ReportLog:
        """Makes the file where it is missing. A damaged file is moved aside, with a warning."""
        file = await OwnFile.open(path, _LAYOUT, clock)
        try:
            made = cls(file, await file.run(_begin), limit=limit)
            redial_ms = await file.run(get_meta, "redial_ms")
            made.redial_s = redial_ms / 1000 if redial_ms else None
            return made
        except BaseException:
            await file.close()
            raise

    async def close(self) -> None:
        """The next one who opens it knows that no number was told ahead."""
        try:
            await self._file.run(put_meta, "clean", 1)
        finally:
            await self._file.close()

    @property
    def generation(self) -> int:
        return self._span.generation

    @property
    def first(self) -> int:
        """The oldest number that was not taken; one more than ``last`` where there is none."""
        return self._span.taken + 1

    @property
    def last(self) -> int:
        return self._span.last

    @property
    def reserved(self) -> int:
        """No higher number may be told before it is on the disk."""
        return self._span.reserved

    async def keep_redial(self, seconds: float) -> None:
        """For the next starts; one that cannot be written is no trouble, as it is said with every welcome."""
        if seconds == (self.redial_s or 0.0):
            return
        self.redial_s = seconds or None
        try:
            await self._file.run(put_meta, "redial_ms", round(seconds * 1000))
        except FailureError as error:
            log.warning("not written down", what="the pause between two tries", reason=error.failure.message)

    async def append(self, reports: Sequence[LoggedReport]) -> int:
        """Numbers them from ``last + 1`` on; returns the new last when they are on the disk."""
        self._span, dropped = await self._file.run(_append, self._span, reports, self._limit)
        if dropped:
            self.dropped += dropped
            log.warning("report log is full: old failures dropped", dropped=dropped, in_all=self.dropped)
        return self.last

    async def read(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The next ones in order; an empty body is a report that means nothing any more."""
        return await self._file.run(_read, after, limit)

    async def forget(self, up_to: int) -> None:
        """All up to this number were taken. Above ``last``: these were told ahead, and are not appended."""
        if up_to > self._span.taken:
            self._span = await self._file.run(_forget, self._span, up_to)

    async def renew(self) -> None:
        """The two sides do not mean the same by a number any more: a new generation, from 1."""
        self._span = await self._file.run(_renew, self._span)


def _begin(connection: sqlite3.Connection) -> _Span:
    return in_one(connection, lambda: _take_up(connection))


def _take_up(connection: sqlite3.Connection) -> _Span:
    generation = get_meta(connection, "generation")
    if generation is None:
        return _write(connection, _Span(_random(), 0, 0, RESERVED, 0))
    taken, reserved = get_meta(connection, "taken") or 0, get_meta(connection, "reserved") or 0
    last, full = connection.execute("SELECT coalesce(max(seq), 0), count(body) FROM reports").fetchone()
    last = max(last, taken)
    if not get_meta(connection, "clean"):
        empty = [(seq, None, 0) for seq in range(last + 1, reserved + 1)]
        connection.executemany("INSERT INTO reports VALUES (?,?,?)", empty)
        last = max(last, reserved)
    return _write(connection, _Span(generation, taken, last, last + RESERVED, full))


def _write(connection: sqlite3.Connection, span: _Span) -> _Span:
    for key, value in (
        ("generation", span.generation),
        ("taken", span.taken),
        ("reserved", span.reserved),
        ("clean", 0),
    ):
        put_meta(connection, key, value)
    return span


def _append(
    connection: sqlite3.Connection, span: _Span, reports: Sequence[LoggedReport], limit: int
) -> tuple[_Span, int]:
    def work() -> tuple[_Span, int]:
        rows = [(seq, r.body, r.spare) for seq, r in enumerate(reports, span.last + 1)]
        connection.executemany("INSERT INTO reports VALUES (?,?,?)", rows)
        last, reserved, full = span.last + len(rows), span.reserved, span.full + len(rows)
        dropped = _empty_spares(connection, full - limit + limit // 10) if full > limit else 0
        if reserved < last + RESERVED // 2:
            reserved = last + RESERVED
            put_meta(connection, "reserved", reserved)
        return _Span(span.generation, span.taken, last, reserved, full - dropped), dropped

    return in_one(connection, work)


def _empty_spares(connection: sqlite3.Connection, wanted: int) -> int:
    """A tenth more than is needed, so that not every append does it again."""
    done = connection.execute(
        "UPDATE reports SET body = NULL, spare = 0"
        " WHERE seq IN (SELECT seq FROM reports WHERE spare ORDER BY seq LIMIT ?)",
        (wanted,),
    )
    return done.rowcount


def _read(connection: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, bytes]]:
    rows = connection.execute(
        "SELECT seq, CAST(coalesce(body, x'') AS BLOB) FROM reports WHERE seq > ? ORDER BY seq LIMIT ?",
        (after, limit),
    )
    return [(seq, bytes(body)) for seq, body in rows]


def _forget(connection: sqlite3.Connection, span: _Span, up_to: int) -> _Span:
    def work() -> _Span:
        last = max(span.last, up_to)
        gone = connection.execute("SELECT count(body) FROM reports WHERE seq <= ?", (up_to,)).fetchone()[0]
        connection.execute("DELETE FROM reports WHERE seq <= ?", (up_to,))
        reserved = span.reserved if span.reserved >= last + RESERVED // 2 else last + RESERVED
        return _write(connection, _Span(span.generation, up_to, last, reserved, span.full - gone))

    return in_one(connection, work)


def _renew(connection: sqlite3.Connection, span: _Span) -> _Span:
    def work() -> _Span:
        kept = connection.execute("SELECT body, spare FROM reports WHERE body IS NOT NULL ORDER BY seq")
        rows = [(seq, *row) for seq, row in enumerate(kept.fetchall(), 1)]
        connection.execute("DELETE FROM reports")
        connection.executemany("INSERT INTO reports VALUES (?,?,?)", rows)
        return _write(connection, _Span(_random(), 0, len(rows), len(rows) + RESERVED, len(rows)))

    return in_one(connection, work)


def _random() -> int:
    return secrets.randbits(63) or 1
