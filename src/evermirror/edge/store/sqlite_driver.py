"""SQLite behind a thread, with one errand to it for each statement.

    aiosqlite   cursor ⇄ execute ⇄ fetchall ⇄ close     each a word to the thread, and one back, which waits
    here        execute ──────────────────────▶ rows    for a turn of the event loop and for the interpreter

While many hooks or reports come, a turn takes milliseconds: a page that asks the database twice waited for
twenty of them. BEGIN goes along with the first statement; who reads does not wait for the end of its look.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import aiosqlite
import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.aiosqlite import (
    AsyncAdapt_aiosqlite_connection,
    AsyncAdapt_aiosqlite_dbapi,
)
from sqlalchemy.util.concurrency import await_

_Done = tuple[Any, Sequence[Any], int, int | None]


class _Cursor:
    """What one statement gave. There is no cursor of the database behind it any more."""

    __slots__ = ("_connection", "_rows", "arraysize", "description", "lastrowid", "rowcount")

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._rows: deque[Any] = deque()
        self.arraysize = 1
        self._take((None, (), -1, None))

    def execute(self, operation: str, parameters: Any = None) -> None:
        self._take(self._connection.carried_out("execute", operation, parameters or ()))

    def executemany(self, operation: str, parameters: Any) -> None:
        self._take(self._connection.carried_out("executemany", operation, parameters))

    def _take(self, done: _Done) -> None:
        self.description, rows, self.rowcount, self.lastrowid = done
        self._rows = deque(rows)

    def fetchone(self) -> Any:
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        count = min(self.arraysize if size is None else size, len(self._rows))
        return [self._rows.popleft() for _ in range(count)]

    def fetchall(self) -> list[Any]:
        found, self._rows = list(self._rows), deque()
        return found

    def close(self) -> None:
        self._rows.clear()

    async def _async_soft_close(self) -> None:
        """SQLAlchemy asks for it before it reads the rows."""


class _Begin:
    """``done`` is set in the connection's thread: where BEGIN fails, the next statement tries it again, and
    none is carried out outside of a transaction."""

    __slots__ = ("done", "words")

    def __init__(self, words: str) -> None:
        self.words = words
        self.done = False


class _Connection(AsyncAdapt_aiosqlite_connection):
    """``begins`` says how, and nothing happens before the first statement."""

    __slots__ = ("_begin", "_is_open", "_reads")

    def __init__(self, dbapi: Any, connection: Any) -> None:
        super().__init__(dbapi, connection)
        self._begin: _Begin | None = None  # of the transaction that was asked for last, until it ends
        self._is_open = False  # it may have begun, and has not ended
        self._reads = False

    def begins(self, words: str, *, reads: bool) -> None:
        self._begin, self._reads = _Begin(words), reads

    def cursor(self, server_side: bool = False) -> Any:
        if server_side:
            raise NotImplementedError("rows are read all at once")
        return _Cursor(self)

    def carried_out(self, how: str, operation: str, parameters: Any) -> _Done:
        self._is_open = self._is_open or self._begin is not None
        driver: Any = self._connection
        try:
            done: _Done = await_(driver._execute(_carry_out, driver, self._begin, how, operation, parameters))
        except Exception as error:
            self._handle_exception(error)
        return done

    def commit(self) -> None:
        self._begin = None
        if self._is_open:
            super().commit()
            self._is_open = False

    def rollback(self) -> None:
        self._begin = None
        driver: Any = self._connection
        if self._is_open and self._reads and driver._connection:
            unheard = asyncio.get_running_loop().create_future()
            driver._tx.put_nowait((unheard, partial(_end_look, driver._conn)))  # before whatever comes next
        elif self._is_open:
            super().rollback()
        self._is_open = False


class OneErrand(AsyncAdapt_aiosqlite_dbapi):
    """What ``create_async_engine`` takes as ``module``."""

    def __init__(self, driver: ModuleType = aiosqlite, database: ModuleType = sqlite3) -> None:
        super().__init__(driver, database)

    def connect(self, *arg: Any, **kw: Any) -> _Connection:
        return _Connection(self, super().connect(*arg, **kw)._connection)


def begins(connection: sa.Connection, words: str, *, reads: bool) -> None:
    """A transaction of an engine with this driver; ``reads``: nothing is lost by its end."""
    driver = connection.connection.dbapi_connection
    assert isinstance(driver, _Connection)  # noqa: S101 - the engine has no others
    driver.begins(words, reads=reads)


def _end_look(connection: sqlite3.Connection) -> None:
    """In the connection's thread. Nobody hears of a failure: it ends before the next look then."""
    with suppress(sqlite3.Error):
        connection.rollback()


def _carry_out(
    driver: aiosqlite.Connection, begin: _Begin | None, how: str, operation: str, parameters: Any
) -> _Done:
    """In the connection's thread."""
    connection = driver._conn
    if begin is not None and not begin.done:
        if connection.in_transaction:
            connection.rollback()
        connection.execute(begin.words)
        begin.done = True
    cursor = connection.cursor()
    try:
        getattr(cursor, how)(operation, parameters)
        rows = cursor.fetchall() if cursor.description else ()
        return cursor.description, rows, cursor.rowcount, cursor.lastrowid
    finally:
        cursor.close()
