"""The one door to a SQL database: read and write transactions, SQLite or PostgreSQL, errors told as failures.

SQLite: Debian's version can corrupt its write-ahead log when two connections write or checkpoint at once. So
one connection of a process writes, and a lock file (``<database>.lock``) lets one process write at a time;
readers are separate, never write and never checkpoint. ``synchronous=FULL``: a commit is on the disk before
it is acknowledged, also through a power cut. That costs one fsync a commit, and results come in batches.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from evermirror.edge.store.failures import failure_of, told_shortly
from evermirror.edge.store.sqlite_hints import take_hints
from evermirror.errors import DatabaseUnreachable, EnvironmentUnfit
from evermirror.model.failure import Failure, FailureError, FailureKind

BUSY_S = 30.0  # how long a writer waits for another process; a large migration or bulk load may take seconds
CONNECT_S = 10.0  # a PostgreSQL that does not answer by then is told as unreachable
CLOSE_S = 10.0  # for what is under way when the database is closed
COMMAND_S = 120.0  # one statement on PostgreSQL; bulk loads of a million rows are chunked and stay far below
READERS = 4  # connections that read at the same time; a read takes milliseconds
LOOKUPS = 2  # threads for lookups on SQLite; a lookup takes less than a millisecond
PG_CONNECTIONS = 10
CHECKPOINT_PAGES = 4000  # 16 MB of log before it is folded back: fewer, larger checkpoints
WRITER_CACHE_KB = 32_768  # for bulk loads: pages of many indexes that have no room are written twice
READER_CACHE_KB = 256  # each; the system keeps the same pages, and gives them to all readers alike

# Writers on PostgreSQL take turns: two batches that touch the same rows in different order would deadlock.
PG_WRITE_LOCK = 0x65766572_0001

_CHECK_FILE = "Check database.url, that this user may read and write the file, and that the disk has room"
_CHECK_SERVER = "Check database.url, that the server runs, and that this user may use it"

T = TypeVar("T")
Along = Callable[[AsyncConnection], Awaitable[None]]  # what else is written in a transaction


@dataclass(frozen=True, slots=True)
class Place:
    """Where the database is: a file for SQLite, or a server's URL.

    ``shown`` is as the user wrote it, without the driver and the password."""

    path: Path | None
    url: sa.URL  # for the engine
    shown: str

    @property
    def secret(self) -> str:
        return str(self.url.password or self.url.query.get("password") or "")


def parse_place(url: str) -> Place:
    """``sqlite:///file`` (the rest is the path, taken literally) or ``postgresql://user:password@host/name``."""
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        return Place(path, sa.URL.create("sqlite+aiosqlite", database=str(path)), str(path))
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        raise _unusable("database.url cannot be read") from None
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+asyncpg"):
        raise _unusable(f"database.url has the scheme {parsed.drivername!r}, which is not supported")
    sslmode = parsed.query.get("sslmode")
    if isinstance(sslmode, tuple):
        raise _unusable("database.url has several sslmode")
    shown = _shown(parsed)
    parsed = parsed.set(drivername="postgresql+asyncpg").difference_update_query(["sslmode"])
    if sslmode is not None:
        parsed = parsed.update_query_dict({"ssl": sslmode})  # asyncpg's word for it
    return Place(None, parsed, shown)


def _shown(url: sa.URL) -> str:
    url = url.set(drivername=url.drivername.partition("+")[0]).difference_update_query(["password"])
    return url.render_as_string(hide_password=True)


def _unusable(message: str) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        message, hint="Use sqlite:///path/to/file or postgresql://user:password@host:port/database"
    )


class Database:
    """An open database. ``read`` and ``write`` give a connection inside a transaction."""

    def __init__(
        self,
        place: Place,
        reader: AsyncEngine,
        writer: AsyncEngine,
        gate: WriteGate | None = None,
        lookups: _Lookups | None = None,
    ) -> None:
        self._place = place
        self._reader = reader
        self._writer = writer
        self._gate = gate
        self._lookups = lookups
        self._uses = 0  # under way
        self._at_rest = asyncio.Event()  # none is, since somebody closes it
        self._closes = False

    @classmethod
    async def open(cls, place: Place) -> Database:
        """Connects once, so that what is wrong is told at start."""
        database = cls._sqlite(place, place.path) if place.path is not None else cls._postgres(place)
        try:
            await database._check()
        except EnvironmentUnfit:
            await database.close()
            raise
        except (SQLAlchemyError, OSError, TimeoutError, ValueError) as e:
            await database.close()
            failure = failure_of(e, place.secret)
            reason = failure.message if failure is not None else told_shortly(e, place.secret)
            # A server that does not let us in is weather; a file, or an option the driver refuses, is not.
            is_weather = failure is not None and place.path is None
            usual = _CHECK_FILE if place.path is not None else _CHECK_SERVER
            raise (DatabaseUnreachable if is_weather else EnvironmentUnfit)(
                f"the database {place.shown} cannot be opened: {reason}",
                hint=(failure.hint if failure is not None else "") or usual,
            ) from None
        return database

    @classmethod
    def _sqlite(cls, place: Place, path: Path) -> Database:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Made by us first, so that only this user can read it; its log files take over these rights.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            gate = WriteGate(path.with_name(path.name + ".lock"))
        except OSError as e:
            raise EnvironmentUnfit(
                f"the database {path} cannot be opened: {e.strerror or e}",
                hint="Choose a data folder that this user can write to",
            ) from None
        writer = create_async_engine(place.url, **_sqlite_options(1))
        reader = create_async_engine(place.url, **_sqlite_options(READERS))
        lookups = sa.create_engine(place.url.set(drivername="sqlite+pysqlite"), **_sqlite_options(LOOKUPS))
        _set_up_sqlite(
            writer.sync_engine,
            "BEGIN IMMEDIATE",
            f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}",
            f"PRAGMA cache_size=-{WRITER_CACHE_KB}",
        )
        for engine in (reader.sync_engine, lookups):
            _set_up_sqlite(
                engine,
                "BEGIN",
                "PRAGMA query_only=ON",
                "PRAGMA wal_autocheckpoint=0",
                f"PRAGMA cache_size=-{READER_CACHE_KB}",
            )
        return cls(place, reader, writer, gate, _Lookups(lookups))

    @classmethod
    def _postgres(cls, place: Place) -> Database:
        engine = _postgres_engine(place, size=PG_CONNECTIONS, command_s=COMMAND_S)
        # By default each statement would see what was committed since the one before it.
        reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return cls(place, reader, engine)

    async def _check(self) -> None:
        if self._gate is not None:
            async with self._gate, self._writer.connect() as c:
                mode = (await c.exec_driver_sql("PRAGMA journal_mode")).scalar_one()
            if mode != "wal":
                raise EnvironmentUnfit(
                    f"the database {self._place.shown} cannot use a write-ahead log here",
                    hint="Keep it on a local disk, not on a network share",
                )
            return
        async with self._reader.connect() as c:
            encoding = (await c.exec_driver_sql("SHOW server_encoding")).scalar_one()
        if encoding != "UTF8":
            raise EnvironmentUnfit(
                f"the database {self._place.shown} has the encoding {encoding}",
                hint="Create it with ENCODING 'UTF8'",
            )

    @property
    def path(self) -> Path | None:
        """The file, where it is one."""
        return self._place.path

    @property
    def is_sqlite(self) -> bool:
        return self._gate is not None

    def insert(self, table: sa.Table) -> Any:
        """An INSERT that knows ON CONFLICT; both engines spell it alike."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def among(self, column: sa.Column[str], values: Sequence[str]) -> sa.ColumnElement[bool]:
        """Whether a column has one of these values.

        PostgreSQL joins with them as one array: ``= ANY(array)`` is searched linearly in a cached plan."""
        if self.is_sqlite:
            return column.in_(values)
        array = sa.literal(list(values), postgresql.ARRAY(sa.Text()))
        return column.in_(sa.select(sa.func.unnest(array)))

    def among_many(self, column: sa.Column[str], values: Sequence[str]) -> sa.ColumnElement[bool]:
        """As ``among``, with however many values in one parameter."""
        if not self.is_sqlite:
            return self.among(column, values)
        listed = sa.func.json_each(json.dumps(values)).table_valued("value")
        return column.in_(sa.select(listed.c.value))

    @asynccontextmanager
    async def read(self, *, planned_anew: bool = False) -> AsyncIterator[AsyncConnection]:
        """One consistent look: all its statements see the same moment.

        ``planned_anew``: PostgreSQL plans each question for its own values. Otherwise it may take one plan
        for all from the sixth time on, and that knows no pattern and no filter."""
        with _Told(self._place.secret), self._under_way():
            async with self._reader.connect() as connection:
                if planned_anew and not self.is_sqlite:
                    await connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_custom_plan")
                try:
                    yield connection
                finally:
                    if self._closes:
                        await connection.invalidate()  # no pool will ever close it

    async def look_up(self, find: Callable[[sa.Connection], T]) -> T:
        """What ``find`` reads in one transaction; for the few rows of an answer that somebody waits for.

        On SQLite all of ``find`` is one trip to a thread. With ``read`` a statement takes eight of them, and
        each waits for a turn of the event loop: too long while hundreds of hooks a second come."""
        if self._lookups is not None and not self._closes:
            with _Told(self._place.secret), self._under_way():
                return await self._lookups.run(find)
        async with self.read() as connection:
            return await connection.run_sync(find)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            if self._closes and not self._uses:
                self._at_rest.set()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed, and on the disk, when the block ends; rolled back when it raises."""
        with _Told(self._place.secret):
            if self._gate is not None:
                async with self._gate, self._writer.begin() as connection:
                    yield connection
            else:
                with self._under_way():  # SQLite's gate holds up a close by itself
                    async with _postgres_turn(self._writer) as connection:
                        yield connection

    @asynccontextmanager
    async def rebuild(self) -> AsyncIterator[AsyncConnection]:
        """As ``write``, for changes of whole tables: a statement may take as long as it needs."""
        if self._gate is not None:
            async with self.write() as connection:
                yield connection
            return
        engine = _postgres_engine(self._place, size=1, command_s=None)
        try:
            with _Told(self._place.secret):
                async with _postgres_turn(engine) as connection:
                    yield connection
        finally:
            await engine.dispose()

    async def rest(self) -> None:
        """Pages that were read or written are forgotten; SQLite alone keeps them in this process."""
        if self.is_sqlite:
            async with self.write() as c:
                await c.exec_driver_sql("PRAGMA shrink_memory")

    async def close(self) -> None:
        """Readers first: the last to close checkpoints, and that must be the writer, under its lock."""
        self._closes = True
        if self._uses:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._at_rest.wait()
        await self._reader.dispose()
        if self._lookups is not None:
            self._lookups.close()
        if self._gate is None:
            return
        try:
            async with self._gate:
                await self._writer.dispose()
        finally:
            self._gate.close()


class _Lookups:
    """A plain engine of SQLite, and threads that use it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup")
        self._closes = False

    async def run(self, find: Callable[[sa.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, find)

    def _run(self, find: Callable[[sa.Connection], T]) -> T:
        with self._engine.connect() as connection:
            try:
                return find(connection)
            finally:
                if self._closes:
                    connection.invalidate()  # no pool will ever close it

    def close(self) -> None:
        self._closes = True
        self._threads.shutdown(wait=False)
        self._engine.dispose()


class WriteGate:
    """Lets one writer at a time at a SQLite file: one task of this process, one process of this machine."""

    POLL_S = 0.005  # flock has no wait that a loop could await; another process's write takes milliseconds

    def __init__(self, path: Path) -> None:
        self._lock = asyncio.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            async with asyncio.timeout(BUSY_S):
                while not self._take():  # noqa: ASYNC110 - the other side is another process
                    await asyncio.sleep(self.POLL_S)
        except TimeoutError:
            self._lock.release()
            message = f"another process has kept the database locked for {BUSY_S:.0f} s"
            raise FailureError(Failure(FailureKind.UNKNOWN, message)) from None
        except BaseException:
            self._lock.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._lock.release()

    def _take(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._fd)


def _postgres_engine(place: Place, *, size: int, command_s: float | None) -> AsyncEngine:
    return create_async_engine(
        place.url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=BUSY_S,
        pool_pre_ping=True,  # a server that was restarted costs a reconnect, not a failed command
        hide_parameters=True,
        connect_args={
            "timeout": CONNECT_S,
            "command_timeout": command_s,
            "server_settings": {"application_name": "evermirror", "lock_timeout": f"{BUSY_S:.0f}s"},
        },
    )


@asynccontextmanager
async def _postgres_turn(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with engine.begin() as connection:
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(PG_WRITE_LOCK)))
        yield connection


def _sqlite_options(size: int) -> dict[str, Any]:
    return {
        "pool_size": size,
        "max_overflow": 0,
        "pool_timeout": BUSY_S,
        "hide_parameters": True,
        # The driver's own transactions start late and end before DDL: we say BEGIN ourselves.
        "connect_args": {"isolation_level": None, "timeout": BUSY_S},
    }


def _set_up_sqlite(engine: sa.Engine, begin: str, *pragmas: str) -> None:
    def connected(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "PRAGMA foreign_keys=ON",
            *pragmas,
        ):
            cursor.execute(pragma)
        cursor.close()

    take_hints(engine)
    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))


class _Told:
    """Weather of the database becomes a FailureError without secrets; anything else is a bug and passes."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        known = isinstance(error, DBAPIError | OSError | PoolTimeout | sqlite3.Error | UnicodeDecodeError)
        if error is not None and (known or hasattr(error, "sqlstate")):  # asyncpg's own, used bare
            failure = failure_of(error, self._secret)
            if failure is not None:
                raise FailureError(failure) from None
