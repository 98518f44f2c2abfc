"""A small SQLite file that belongs to one process: opened alone, checked, moved aside where it is damaged.

Everything is done by one thread, which alone touches the connection.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog

from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import Failure, FailureError, FailureKind

log = structlog.get_logger(__name__)

T = TypeVar("T")

# SQLite's errors that come from the disk or from another process: the file may be whole, and a later try may
# succeed. Of a file that this program wrote alone, every other error means damage.
SQLITE_WEATHER = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
    "SQLITE_PERM",
    "SQLITE_FULL",
    "SQLITE_NOMEM",
    "SQLITE_PROTOCOL",
)
DAMAGED_KEPT = 3  # damaged files that are kept for people to look at; of more, the oldest are deleted
NEWER_MAX = 100  # versions ahead of ours that a newer program may have made; more is a damaged number
_NO_ROOM = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR")  # the disk takes no writes, whatever the reason


@dataclass(frozen=True, slots=True)
class Layout:
    """What is in the file: its tables, and what makes the next version of each older one. ``check`` reads
    everything as the program does: what it raises is damage."""

    version: int
    schema: str
    upgrades: Mapping[int, str] = field(default_factory=dict)
    synchronous: str = "NORMAL"
    check: Callable[[sqlite3.Connection], object] | None = None


class OwnFile:
    """Open it with ``await OwnFile.open(path, layout)``."""

    def __init__(self, path: Path, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._path = path
        self._connection = connection
        self._thread = thread  # of one worker: the connection never leaves it
        self.rebuilt = False  # it was damaged, and is empty now

    @classmethod
    async def open(cls, path: Path, layout: Layout, clock: Callable[[], float]) -> OwnFile:
        """Makes the file where it is missing. A damaged file is moved aside, with a warning."""
        thread = ThreadPoolExecutor(1, thread_name_prefix=path.stem)
        loop = asyncio.get_running_loop()
        try:
            connection, rebuilt = await loop.run_in_executor(thread, _open, path, layout, clock)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        file = cls(path, connection, thread)
        file.rebuilt = rebuilt
        return file

    async def run(self, do: Callable[..., T], *args: Any) -> T:
        """``do(connection, *args)`` in the file's thread; raises FailureError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, do, self._connection, *args)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as e:
            raise FailureError(_failure(e, self._path)) from None

    async def close(self) -> None:
        await self.run(sqlite3.Connection.close)
        self._thread.shutdown()


def in_one(connection: sqlite3.Connection, do: Callable[[], T]) -> T:
    """``do`` in one transaction: all of it, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = do()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def get_meta(connection: sqlite3.Connection, key: str) -> int | None:
    """A small number of the table ``meta``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def put_meta(connection: sqlite3.Connection, key: str, value: int) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _failure(error: Exception, path: Path) -> Failure:
    full = getattr(error, "sqlite_errorname", "").startswith(_NO_ROOM)
    kind = FailureKind.DISK_FULL if full else FailureKind.UNKNOWN
    hint = "Check the disk: it takes no writes" if full else "Restart the worker: it rebuilds the file"
    return Failure(kind, f"{path.name}: {error}", hint=hint)


def _open(path: Path, layout: Layout, clock: Callable[[], float]) -> tuple[sqlite3.Connection, bool]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _connect(path, layout), False
        except (EnvironmentUnfit, OSError, MemoryError):
            raise
        except Exception as e:  # a flipped byte comes up as any of them
            if getattr(e, "sqlite_errorname", "").startswith(SQLITE_WEATHER):
                raise
            aside = _move_aside(path, clock())
            log.warning("local_state_rebuilt", reason=f"{type(e).__name__}: {e}", kept=str(aside))
            return _connect(path, layout), True
    except sqlite3.Error as e:
        busy = getattr(e, "sqlite_errorname", "").startswith("SQLITE_BUSY")
        raise EnvironmentUnfit(
            f"the worker's file {path} cannot be opened: {e}",
            hint="Another evermirror uses this data folder: stop it, or choose another folder"
            if busy
            else "",
        ) from None
    except OSError as e:
        raise EnvironmentUnfit(
            f"the worker's file {path} cannot be opened: {e.strerror or e}",
            hint="Choose a data folder that this user can write to",
        ) from None


def _connect(path: Path, layout: Layout) -> sqlite3.Connection:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        formats = os.read(fd, 20)[18:]
    finally:
        os.close(fd)
    if any(number not in (1, 2) for number in formats):  # else SQLite takes it for a file that is read-only
        raise _Damaged("its header is of another format")
    connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={layout.synchronous}")
        _upgrade(connection, path, layout)
        # Reads every page once, which is what loading does next anyway: damage is found before it matters.
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise _Damaged(f"integrity_check: {found}")
        _check_tables(connection, layout)
        if layout.check is not None:
            layout.check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _upgrade(connection: sqlite3.Connection, path: Path, layout: Layout) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > layout.version + NEWER_MAX:
        raise _Damaged(f"it is of version {version}")
    if version > layout.version:
        raise EnvironmentUnfit(
            f"the worker's file {path} is of version {version}, and this program knows {layout.version}",
            hint="It was used by a newer evermirror: run that version, or move the file away",
        )
    if version == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {layout.schema} PRAGMA user_version={layout.version}; COMMIT;"
        )
        version = layout.version
    for old in range(version, layout.version):
        connection.executescript(
            f"BEGIN IMMEDIATE; {layout.upgrades[old]} PRAGMA user_version={old + 1}; COMMIT;"
        )


class _Damaged(Exception):
    """What is in the file is not what was written there."""


def _check_tables(connection: sqlite3.Connection, layout: Layout) -> None:
    """They are those of the layout; what is in them is of the columns' types, and its text can be read."""
    empty = sqlite3.connect(":memory:")
    try:
        empty.executescript(layout.schema)
        if (found := _shape(connection)) != _shape(empty):
            raise _Damaged("its tables are not those of this program")
    finally:
        empty.close()
    for (kind, table), columns in found.items():
        if kind != "table":
            continue
        other = [
            f"typeof({column}) NOT IN ('{_STORED[declared]}', 'null')"
            for column, declared, *_ in columns
            if declared in _STORED
        ]
        found_other = f"SELECT 1 FROM {table} WHERE {' OR '.join(other) or 'false'} LIMIT 1"  # noqa: S608
        if connection.execute(found_other).fetchone() is not None:
            raise _Damaged(f"{table} has a value of another type than its column")
        for _ in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - names of our own schema
            pass  # text that is no UTF-8 raises


_STORED = {"INTEGER": "integer", "REAL": "real", "TEXT": "text"}  # what a column of that type keeps
_Shape = dict[tuple[str, str], list[tuple[Any, ...]]]


def _shape(connection: sqlite3.Connection) -> _Shape:
    """Tables with their columns, indexes with their words. A table that was upgraded has other words."""
    parts = {
        "table": 'SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid',
        "index": "SELECT sql FROM sqlite_master WHERE name = ?",
    }
    made = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {(kind, name): connection.execute(parts[kind], (name,)).fetchall() for kind, name in made}


def _move_aside(path: Path, now: float) -> Path:
    """The log goes with it: a new file must not find it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(aside.with_name(aside.name + suffix))
    kept = [p for p in path.parent.glob(f"{path.name}.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
    for old in sorted(kept, key=lambda p: p.name)[:-DAMAGED_KEPT]:
        for suffix in ("", "-wal", "-shm"):
            old.with_name(old.name + suffix).unlink(missing_ok=True)
    return aside
