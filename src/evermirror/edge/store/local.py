"""What a worker remembers of its repos, in one small SQLite file of its own.

The mirrors on disk are the truth; this file only saves polls after a restart. So a damaged one is moved aside
and rebuilt empty, and ``synchronous=NORMAL`` is enough: killing the process loses nothing that was saved, a
power cut at most the last seconds. One process at a time has the file open.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import structlog

from evermirror.errors import EnvironmentUnfit
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.kept import GuardMemory, GuardReason
from evermirror.model.memory import RepoMemory
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey

log = structlog.get_logger(__name__)

T = TypeVar("T")

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE repos (
    key TEXT PRIMARY KEY,
    fast REAL NOT NULL, middle REAL NOT NULL, slow REAL NOT NULL,
    as_of REAL NOT NULL,
    last_push_at REAL NOT NULL,
    last_poll_at REAL NOT NULL,
    verified_at REAL NOT NULL,
    digest BLOB,              -- 32 bytes
    mark BLOB,
    failures INTEGER NOT NULL,
    failure_kind TEXT,
    not_before REAL NOT NULL,
    guard TEXT                -- JSON; of a change that is held back
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

_UPGRADES = {1: "ALTER TABLE repos ADD COLUMN guard TEXT;"}  # what makes the next version of each
_SAVE = "INSERT OR REPLACE INTO repos VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")


class LocalState:
    """Open it with ``await LocalState.open(path)``; ``generation`` counts the starts."""

    def __init__(self, path: Path, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._path = path
        self._connection = connection
        self._thread = thread  # of one worker: the connection never leaves it
        self.generation = 0
        self.rebuilt = False  # the file was damaged: everything is to be learnt again from the disk

    @classmethod
    async def open(cls, path: Path, *, clock: Callable[[], float] = time.time) -> LocalState:
        """Makes the file where it is missing. A damaged file is moved aside, with a warning."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="local-state")
        loop = asyncio.get_running_loop()
        try:
            connection, rebuilt = await loop.run_in_executor(thread, _open, path, clock)
            state = cls(path, connection, thread)
            state.rebuilt = rebuilt
            state.generation = await state._run(_next_generation)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return state

    async def close(self) -> None:
        await self._run(sqlite3.Connection.close)
        self._thread.shutdown()

    async def load(self) -> list[RepoMemory]:
        """Every row, in the order of keys."""
        return await self._run(_load)

    async def save(self, batch: Sequence[RepoMemory]) -> None:
        """Adds or replaces, in one transaction."""
        await self._run(_save, batch)

    async def forget(self, keys: Iterable[RepoKey]) -> None:
        await self._run(_forget, list(keys))

    async def get_meta(self, key: str) -> int | None:
        """A small number kept beside the rows, such as the version of the mirrors' layout."""
        return await self._run(_get_meta, key)

    async def put_meta(self, key: str, value: int) -> None:
        await self._run(_put_meta, key, value)

    async def _run(self, do: Callable[..., T], *args: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, do, self._connection, *args)
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as e:
            raise FailureError(_failure(e, self._path)) from None


def _failure(error: sqlite3.Error, path: Path) -> Failure:
    full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
    kind = FailureKind.DISK_FULL if full else FailureKind.UNKNOWN
    return Failure(
        kind, f"{path.name}: {error}", hint="" if full else "Restart the worker: it rebuilds the file"
    )


def _open(path: Path, clock: Callable[[], float]) -> tuple[sqlite3.Connection, bool]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            return _connect(path), False
        except sqlite3.DatabaseError as e:
            if not getattr(e, "sqlite_errorname", "").startswith(_DAMAGED):
                raise
            aside = _move_aside(path, clock())
            log.warning("local_state_rebuilt", reason=str(e), kept=str(aside))
            return _connect(path), True
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


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise EnvironmentUnfit(
                f"the worker's file {path} is of version {version}, and this program knows {SCHEMA_VERSION}",
                hint="It was used by a newer evermirror: run that version, or move the file away",
            )
        if version == 0:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;"
            )
            version = SCHEMA_VERSION
        for old in range(version, SCHEMA_VERSION):
            connection.executescript(
                f"BEGIN IMMEDIATE; {_UPGRADES[old]} PRAGMA user_version={old + 1}; COMMIT;"
            )
        # Reads every page once, which is what loading does next anyway: damage is found before it matters.
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise _damage("quick_check found damage")
    except BaseException:
        connection.close()
        raise
    return connection


def _damage(message: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorname = "SQLITE_CORRUPT"
    return error


def _move_aside(path: Path, now: float) -> Path:
    """The log goes with it: a new file must not find it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(aside.with_name(aside.name + suffix))
    return aside


def _next_generation(connection: sqlite3.Connection) -> int:
    generation = (_get_meta(connection, "generation") or 0) + 1
    _put_meta(connection, "generation", generation)
    return generation


def _get_meta(connection: sqlite3.Connection, key: str) -> int | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def _put_meta(connection: sqlite3.Connection, key: str, value: int) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _load(connection: sqlite3.Connection) -> list[RepoMemory]:
    return [_out(row) for row in connection.execute("SELECT * FROM repos ORDER BY key")]


def _save(connection: sqlite3.Connection, batch: Sequence[RepoMemory]) -> None:
    _many(connection, _SAVE, [_in(memory) for memory in batch])


def _forget(connection: sqlite3.Connection, keys: list[RepoKey]) -> None:
    _many(connection, "DELETE FROM repos WHERE key = ?", [(key,) for key in keys])


def _many(connection: sqlite3.Connection, statement: str, params: list[tuple[Any, ...]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(statement, params)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_KINDS = {kind.value: kind for kind in FailureKind}


def _in(m: RepoMemory) -> tuple[Any, ...]:
    return (
        m.key,
        *m.activity.counts,
        m.activity.as_of,
        m.activity.last_push_at,
        m.last_poll_at,
        m.verified_at,
        None if m.digest is None else bytes.fromhex(m.digest),
        m.mark,
        m.failures,
        None if m.failure_kind is None else m.failure_kind.value,
        m.not_before,
        None if m.guard is None else _guard_in(m.guard),
    )


def _out(row: tuple[Any, ...]) -> RepoMemory:
    return RepoMemory(
        RepoKey(row[0]),
        Activity((row[1], row[2], row[3]), row[4], row[5]),
        row[6],
        row[7],
        None if row[8] is None else RefsDigest(row[8].hex()),
        row[9],
        row[10],
        None if row[11] is None else _KINDS[row[11]],
        row[12],
        None if row[13] is None else _guard_out(row[13]),
    )


def _guard_in(guard: GuardMemory) -> str:
    return json.dumps([guard.reason.value, guard.since, guard.sightings, guard.digest, guard.lost])


def _guard_out(text: str) -> GuardMemory:
    reason, since, sightings, digest, lost = json.loads(text)
    return GuardMemory(GuardReason(reason), since, sightings, RefsDigest(digest), lost)
