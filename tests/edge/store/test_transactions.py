"""Transactions on SQLite: a look sees one moment, a write is whole or nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
import sqlalchemy as sa

from evermirror.edge.store.database import LOOKUPS, READERS, Database, parse_place
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


async def test_a_write_that_cannot_begin_is_told_and_the_next_one_begins(db, locked_out):
    with pytest.raises(FailureError, match="locked"):
        await add(db, "c")
    locked_out.execute("ROLLBACK")
    await add(db, "d")
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 3


async def add(db, text):
    async with db.write() as c:
        assert (await driver_of(c)).in_transaction
        await c.execute(t.insert(), {"x": text})


async def test_what_a_look_that_was_cut_off_left_is_not_seen_by_the_next(db):
    async def look():
        async with db.read() as c:
            await c.execute(COUNT)
            await asyncio.sleep(60)

    for _ in range(READERS):
        cut_off = asyncio.ensure_future(look())
        await asyncio.sleep(0.05)
        cut_off.cancel()
        await asyncio.wait([cut_off])
    await add(db, "c")
    for _ in range(READERS + 1):
        async with db.read() as c:
            assert (await c.execute(COUNT)).scalar_one() == 3


async def test_a_first_statement_that_fails_has_begun_and_the_next_one_goes_on(db):
    async with db.write() as c:
        with pytest.raises(sa.exc.IntegrityError):
            await c.execute(t.insert(), [{"x": "c"}, {"x": "a"}])
        await c.execute(t.insert(), {"x": "d"})
    async with db.read() as c:
        assert (await c.execute(sa.select(t.c.x).order_by(t.c.x))).scalars().all() == ["a", "b", "c", "d"]


async def test_a_reader_that_would_write_is_refused_and_reads_on(db):
    with pytest.raises(FailureError):
        async with db.read() as c:
            await c.execute(t.insert(), {"x": "c"})
    async with db.read() as c:
        assert (await c.execute(COUNT)).scalar_one() == 2


async def test_a_lookup_sees_one_moment_in_a_thread_and_its_errors_are_told_as_those_of_a_look(db):
    loop, between = asyncio.get_running_loop(), threading.Event()

    def count_twice(c):
        before = c.execute(COUNT).scalar_one()
        asyncio.run_coroutine_threadsafe(add(db, "c"), loop).add_done_callback(lambda _: between.set())
        assert between.wait(60)
        return before, c.execute(COUNT).scalar_one()

    assert await db.look_up(count_twice) == (2, 2)
    assert await db.look_up(lambda c: c.execute(COUNT).scalar_one()) == 3
    with pytest.raises(FailureError, match="readonly"):
        await db.look_up(lambda c: c.execute(t.insert(), {"x": "d"}))
    with pytest.raises(sa.exc.OperationalError, match="no such table"):
        await db.look_up(lambda c: c.exec_driver_sql("SELECT * FROM nowhere"))
    assert await db.look_up(lambda c: c.execute(COUNT).scalar_one()) == 3


async def test_lookups_that_were_cut_off_leave_their_connections_for_the_next(db):
    released = threading.Event()

    def wait(c):
        c.execute(COUNT)
        assert released.wait(60)

    cut_off = [asyncio.ensure_future(db.look_up(wait)) for _ in range(2 * LOOKUPS)]
    await asyncio.sleep(0.05)
    for look in cut_off:
        look.cancel()
    await asyncio.wait(cut_off)
    released.set()
    await add(db, "c")
    counts = [db.look_up(lambda c: c.execute(COUNT).scalar_one()) for _ in range(2 * LOOKUPS)]
    assert await asyncio.gather(*counts) == [3] * 2 * LOOKUPS


async def test_a_close_waits_for_lookups_and_one_that_comes_later_is_answered(tmp_path):
    def one(c):
        return c.exec_driver_sql("SELECT 1").scalar_one()

    database = await Database.open(parse_place(f"sqlite:///{tmp_path}/s.db"))
    released = threading.Event()
    look = asyncio.ensure_future(database.look_up(lambda c: (one(c), released.wait(60))))
    await asyncio.sleep(0.05)
    closing = asyncio.ensure_future(database.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    released.set()
    assert await look == (1, True)
    await closing
    assert await database.look_up(one) == 1
