"""SQLite with one errand for each statement: how often the thread is asked, and that a look stays whole."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from contextlib import closing

import pytest
import sqlalchemy as sa

from evermirror.edge.store.database import READERS, Database, parse_place
from evermirror.model.failure import FailureError

t = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("x", sa.Text))
COUNT = sa.select(sa.func.count()).select_from(t)


@pytest.fixture
async def db(tmp_path):
    database = await Database.open(parse_place(f"sqlite:///{tmp_path}/s.db"))
    async with database.write() as c:
        await c.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT UNIQUE)")
        await c.execute(t.insert(), [{"x": "a"}, {"x": "b"}])
    yield database
    await database.close()


async def driver_of(connection):
    return (await connection.get_raw_connection()).driver_connection


def counted(driver, monkeypatch):
    errands = []

    class Watched:
        def put_nowait(self, item):
            errands.append(item)
            driver_tx.put_nowait(item)

    driver_tx = driver._tx
    monkeypatch.setattr(driver, "_tx", Watched())
    return errands


async def test_a_statement_is_one_errand_and_begin_goes_along(db, monkeypatch):
    async with db.read() as c:
        driver = await driver_of(c)
        errands = counted(driver, monkeypatch)
        assert (await c.execute(sa.select(t.c.x).order_by(t.c.id))).scalars().all() == ["a", "b"]
        assert len(errands) == 1
        assert driver.in_transaction
        assert (await c.execute(COUNT)).scalar_one() == 2
        assert len(errands) == 2
    assert len(errands) == 3  # the end


async def test_nobody_waits_for_the_end_of_a_look_and_the_next_one_comes_after_it(db):
    released = threading.Event()
    async with db.read() as c:
        driver = await driver_of(c)
        assert (await c.execute(COUNT)).scalar_one() == 2
        blocker = asyncio.ensure_future(driver._execute(released.wait, 60))
        await asyncio.sleep(0)
    assert not blocker.done()
    released.set()
    await blocker
    assert not await driver._execute(lambda: driver.in_transaction)


async def test_an_end_that_fails_is_no_noise_and_the_next_look_begins_anew(db, monkeypatch, caplog):
    async with db.read() as c:
        driver = await driver_of(c)
        assert (await c.execute(COUNT)).scalar_one() == 2
        file = driver._connection
        monkeypatch.setattr(driver, "_connection", Unending(file))
    monkeypatch.undo()
    assert await driver._execute(lambda: file.in_transaction)
    gc.collect()
    async with db.write() as w:
        await w.execute(t.insert(), {"x": "c"})
    for _ in range(READERS + 1):
        async with db.read() as c:
            assert (await c.execute(COUNT)).scalar_one() == 3
    assert caplog.records == []


class Unending:
    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def rollback(self):
        raise sqlite3.OperationalError("disk I/O error")


async def test_every_errand_has_a_future_also_the_one_that_nobody_awaits(db, monkeypatch):
    """aiosqlite 0.22.0 ends its thread, and hangs, where there is none."""
    async with db.read() as c:
        errands = counted(await driver_of(c), monkeypatch)
        await c.execute(COUNT)
    assert [asyncio.isfuture(future) for future, _ in errands] == [True, True]


async def test_a_write_is_its_statements_and_one_commit(db, monkeypatch):
    async with db.write() as c:
        errands = counted(await driver_of(c), monkeypatch)
        await c.execute(t.insert(), {"x": "c"})
        await c.execute(t.insert(), [{"x": "d"}, {"x": "e"}])
        assert len(errands) == 2
    assert len(errands) == 3
    assert all(future.done() for future, _ in errands)  # it is on the disk
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 5


async def test_all_statements_of_a_look_see_the_same_moment_and_the_next_look_sees_the_next(db):
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 2
        async with db.write() as w:
            await w.execute(t.insert(), {"x": "c"})
        assert (await c.execute(COUNT)).scalar_one() == 2
    for _ in range(READERS + 1):  # also the connection that looked before
        async with db.read() as c:
            assert (await c.execute(COUNT)).scalar_one() == 3


async def test_a_write_that_fails_leaves_nothing_and_the_next_one_is_whole(db):
    async def twice():
        async with db.write() as c:
            await c.execute(t.insert(), {"x": "c"})
            await c.execute(t.insert(), {"x": "a"})

    with pytest.raises(sa.exc.IntegrityError):
        await twice()
    async with db.write() as c:
        assert (await c.execute(COUNT)).scalar_one() == 2
        await c.execute(t.insert(), {"x": "c"})
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 3


@pytest.fixture
async def locked_out(db, tmp_path):
    """Somebody else writes, and we do not wait long for it; who gets this lets go of it."""
    async with db.write() as c:
        await (await driver_of(c)).execute("PRAGMA busy_timeout=20")
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def test_after_a_begin_that_failed_the_next_statement_begins(db, locked_out):
    async def leave_it():
        async with db.write() as c:
            with pytest.raises(sa.exc.OperationalError, match="locked"):
                await c.execute(t.insert(), {"x": "c"})
            locked_out.execute("ROLLBACK")
            await c.execute(t.insert(), {"x": "d"})
            assert (await driver_of(c)).in_transaction
            raise RuntimeError("leave it")

    with pytest.raises(RuntimeError, match="leave it"):
        await leave_it()
    async with db.write() as c:
        assert (await c.execute(COUNT)).scalar_one() == 2
        await c.execute(t.insert(), {"x": "e"})
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 3


async def test_a_first_statement_that_fails_has_begun_and_the_next_one_goes_on(db):
    async with db.write() as c:
        with pytest.raises(sa.exc.IntegrityError):
            await c.execute(t.insert(), [{"x": "c"}, {"x": "a"}])
        await c.execute(t.insert(), {"x": "d"})
    async with db.read() as c:
        assert (await c.execute(sa.select(t.c.x).order_by(t.c.x))).scalars().all() == ["a", "b", "c", "d"]


async def test_a_transaction_of_nothing_begins_nothing(db, monkeypatch):
    for open_ in (db.read, db.write):
        async with open_() as c:
            errands = counted(await driver_of(c), monkeypatch)
        assert errands == []
        monkeypatch.undo()


async def test_what_a_statement_gave_is_told_in_every_way_that_is_asked_for(db):
    async with db.write() as c:
        inserted = await c.execute(t.insert().returning(t.c.id, t.c.x), [{"x": "c"}, {"x": "d"}])
        assert inserted.all() == [(3, "c"), (4, "d")]
        assert (await c.execute(t.update().where(t.c.id > 2).values(x=t.c.x + "!"))).rowcount == 2
        assert (await c.execute(t.insert().inline().values(x="e"))).lastrowid == 5
        found = await c.execute(sa.select(t).order_by(t.c.id))
        assert list(found.keys()) == ["id", "x"]
        assert found.fetchone() == (1, "a")
        assert found.fetchmany(2) == [(2, "b"), (3, "c!")]
        assert [row.x for row in found] == ["d!", "e"]
        assert (await c.execute(sa.select(t).where(t.c.id == 99))).one_or_none() is None


async def test_a_reader_that_would_write_is_refused_and_reads_on(db):
    with pytest.raises(FailureError):
        async with db.read() as c:
            await c.execute(t.insert(), {"x": "c"})
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 2
