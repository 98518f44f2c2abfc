"""Backups of a SQLite database: made while it is used, put back while it is not.

A backup is one file, whole and readable by its owner alone from the moment it has its name. Putting one back
changes nothing before the copy was checked; what was there before is moved aside, with its log, and stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from evermirror.edge.store.changes import MICROSECONDS
from evermirror.edge.store.events import BEGAN
from evermirror.edge.store.failures import failure_of
from evermirror.edge.store.migrate import Migration, steps_after
from evermirror.errors import EnvironmentUnfit, UsageError
from evermirror.model.failure import Failure, FailureError, FailureKind

READ_BYTES = 1 << 20  # copied at a time
IDS_SKIPPED = 1_000_000  # more targets than were ever made since a backup


@dataclass(frozen=True, slots=True)
class PutBack:
    """``aside``: where the database of before lies now. ``pending``: steps that run at the next start."""

    aside: Path | None
    pending: tuple[Migration, ...]


def make_backup(database: Path, backup: Path) -> None:
    """VACUUM INTO reads one snapshot and holds up no writer."""
    if not database.exists():
        raise UsageError(f"there is no database {database}", hint="Name the data folder with --data")
    if backup.exists():
        raise UsageError(f"{backup} exists", hint="Choose a new name for the backup")
    # Read-only: what checkpoints must be the process that writes.
    with _told(), _becoming(backup) as partial, closing(_open(database, "mode=ro")) as connection:
        connection.execute("VACUUM INTO ?", (str(partial),))


def put_back(backup: Path, database: Path, *, force: bool = False) -> PutBack:
    """The caller sees to it that no process uses the database."""
    if not backup.is_file():
        raise UsageError(f"there is no backup {backup}")
    if _has_log(backup):
        raise UsageError(
            f"{backup} has a log beside it: it is a database in use, not a backup",
            hint="Make one with evermirror backup",
        )
    if database.exists() and not force:
        raise UsageError(f"{database} exists", hint="Use --force: the present database is moved aside")
    aside = None
    with _told(), _locked(database), _becoming(database) as partial:
        _copy(backup, partial)
        pending = steps_after(_checked(partial, backup))
        _renumber(partial)
        _sync(partial)  # from here on nothing needs room
        if database.exists():
            aside = _move_aside(database)
    return PutBack(aside, pending)


def _checked(copy: Path, backup: Path) -> str:
    """The step it is at."""
    try:
        with closing(_open(copy, "mode=ro&immutable=1")) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise UsageError(f"{backup} is damaged: {found}", hint="Use another backup")
            (step,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return str(step)
    except (sqlite3.DatabaseError, TypeError) as error:
        raise UsageError(f"{backup} is no backup of evermirror, or it is damaged: {error}") from None


def _renumber(copy: Path) -> None:
    """Every repo counts as changed now (changes.py): who follows has heard of what the backup knows nothing
    of, and would not hear that it is otherwise again."""
    with closing(_open(copy, "mode=rw")) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # a copy that was not finished is thrown away
        columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(repos)")}
        if "change_seq" in columns:
            (last,) = connection.execute("SELECT coalesce(max(change_seq), 0) FROM repos").fetchone()
            first = max(last, int(time.time() * MICROSECONDS))
            connection.execute("UPDATE repos SET change_seq = ? + id", (first,))
        _break_off_events(connection)
        _skip_ids(connection)


def _break_off_events(connection: sqlite3.Connection) -> None:
    """What was told since the backup is not true any more: who followed is told of a gap (events.py)."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
        began = max(last, int(time.time() * MICROSECONDS))
        connection.execute(
            "INSERT INTO settings (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (BEGAN, json.dumps(began)),
        )


def _skip_ids(connection: sqlite3.Connection) -> None:
    """Workers remember by the ids of targets what they put there: those given out since are nobody else's."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pull_targets'").fetchone():
        given = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'pull_targets'").fetchone()
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'pull_targets'")
        after = (given[0] if given else 0) + IDS_SKIPPED
        connection.execute("INSERT INTO sqlite_sequence VALUES ('pull_targets', ?)", (after,))


def _move_aside(database: Path) -> Path:
    """The log first: beside another database it would do harm, apart from its own it is only missed."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = database.with_name(f"{database.name}.before-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = database.with_name(f"{database.name}.before-{stamp}-{number}")
    log = _log_of(database)
    if log.exists():
        log.rename(_log_of(aside))
    database.with_name(database.name + "-shm").unlink(missing_ok=True)
    database.rename(aside)
    return aside


@contextmanager
def _becoming(path: Path) -> Iterator[Path]:
    """An empty file of ours alone; it gets its name, on the disk, if the block ends well."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield partial
        _sync(partial)
        partial.rename(path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("r+b") as write:
        shutil.copyfileobj(read, write, READ_BYTES)


@contextmanager
def _locked(database: Path) -> Iterator[None]:
    """As a writer of this file would (database.py)."""
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = database.with_name(database.name + ".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise EnvironmentUnfit(f"{database} is being written to", hint="Stop what uses it first") from None
    finally:
        os.close(fd)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise FailureError(failure) from None
    except OSError as error:
        message = f"{error.filename}: {error.strerror or error}"
        raise FailureError(Failure(FailureKind.UNKNOWN, message)) from None


def _open(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, isolation_level=None)


def _log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def _has_log(database: Path) -> bool:
    log = _log_of(database)
    return log.exists() and log.stat().st_size > 0


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
