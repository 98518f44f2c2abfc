"""What a database's error means: weather (a failure to be retried or told), tables that are not as they
should be, or a write that is refused for what is in it."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from evermirror.edge.store.own_file import SQLITE_WEATHER
from evermirror.model.failure import Failure, FailureError, FailureKind

# SQLSTATE classes of PostgreSQL that a later attempt may not meet again.
_PG_WEATHER = {
    "08",  # connection
    "25",  # transaction state: a server that turned read-only (fail-over)
    "28",  # authorisation: credentials changed under us
    "3D",  # no such database
    "40",  # deadlock, serialisation
    "53",  # out of disk, memory, connections
    "55",  # locked, in use
    "57",  # shut down, cancelled
    "58",  # system error
}
_PG_DISK_FULL = "53100"
# Of PostgreSQL: what is asked of it does not fit its tables, whatever the values are.
_PG_OTHER_TABLES = {
    "0A",  # not supported
    "3F",  # no such schema
    "42",  # no such table or column, or no right to it
}
_SQLITE_UNUSABLE = ("no such table", "no such column", "no such index", "Cannot operate on a closed")
_PG_DAMAGED = ("XX001", "XX002")  # a page, an index

_SQLITE_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")
_NO_TEXT = "Could not decode to UTF-8"  # of the driver, which gives it no name
_RESTORE = "Stop evermirror and restore the database from a backup: `evermirror restore-backup`"
_RESTORE_PG = "See PostgreSQL's log: restore the database from a backup; an index alone can be rebuilt"


def failure_of(error: BaseException, secret: str = "") -> Failure | None:
    """None for what is no weather. ``secret`` is the password that must not be shown."""
    invalid, cause = isinstance(error, DBAPIError) and error.connection_invalidated, _cause(error)
    message = told_shortly(error, secret)
    if isinstance(cause, UnicodeDecodeError):
        return _damaged(message, _RESTORE)
    if isinstance(cause, sqlite3.Error):
        return _sqlite_failure(cause, message)
    state = str(getattr(cause, "sqlstate", None) or "")
    if state == _PG_DISK_FULL:
        return Failure(FailureKind.DISK_FULL, f"the database has no room: {message}")
    if state in _PG_DAMAGED:
        return _damaged(message, _RESTORE_PG)
    if isinstance(cause, PoolTimeout):
        return Failure(FailureKind.NETWORK_TIMEOUT, "all connections to the database are busy")
    if invalid or state[:2] in _PG_WEATHER or isinstance(cause, OSError):
        return Failure(FailureKind.NETWORK_TIMEOUT, f"the database does not answer: {message}")
    return None


def is_refusal(error: Exception) -> bool:
    """Whether a write failed for what is in it, so that another one may succeed: a number that is too large,
    a row that is there already, a value that the driver or our own code cannot convert."""
    cause = _cause(error)
    if isinstance(error, FailureError | MemoryError):
        return False
    if isinstance(error, SQLAlchemyError) and not isinstance(error, StatementError):
        return False  # a connection or a pool that cannot be used
    if isinstance(cause, sqlite3.Error):
        return not str(cause).startswith(_SQLITE_UNUSABLE)
    return str(getattr(cause, "sqlstate", None) or "")[:2] not in _PG_OTHER_TABLES


def told_shortly(error: BaseException, secret: str = "") -> str:
    """The driver's words, in one line and without the password."""
    text = _first_line(_cause(error))
    return text.replace(secret, "***") if secret else text


def _cause(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _sqlite_failure(error: sqlite3.Error, message: str) -> Failure | None:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(_SQLITE_DAMAGED) or str(error).startswith(_NO_TEXT):
        return _damaged(message, _RESTORE)
    if not name.startswith(SQLITE_WEATHER):
        return None
    if name.startswith("SQLITE_FULL"):
        return Failure(FailureKind.DISK_FULL, f"the database has no room: {message}")
    return Failure(FailureKind.UNKNOWN, f"the database cannot be used: {message}")


def _damaged(message: str, hint: str) -> Failure:
    """Also where only the message is told, as in logs, it says what to do."""
    text = f"the database is damaged, restore it from a backup: {message}"
    return Failure(FailureKind.UNKNOWN, text, hint=hint)


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    # SQLAlchemy puts the driver's class before its words.
    line = text.splitlines()[0]
    return line.partition(">: ")[2] or line if line.startswith("<class ") else line
