"""What is particular to one engine: SQLite's durability and files, PostgreSQL's connections and passwords."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import warnings

import pytest
import sqlalchemy as sa

from evermirror.edge.store.database import Database, parse_place
from evermirror.edge.store.failures import failure_of
from evermirror.edge.store.migrate import migrate, pending_migrations, rehearse
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoVerified
from evermirror.errors import DatabaseUnreachable, EnvironmentUnfit, ExitCode, UsageError
from evermirror.model.access import Role
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.repo import Host, RepoRecord, RepoSpec
from evermirror.model.task import Trigger
from tests.support.known_repos import known_repos

A = "example.org/team/a"


def repo(key=A):
    return RepoRecord(RepoSpec(key, f"https://{key}", Host("example.org")))


# SQLite

WRITER = """
    import asyncio, sys
    from evermirror.edge.store.store import Store
    from evermirror.model.task import Trigger

    async def main():
        store = await Store.open(sys.argv[1])
        while True:
            task = await store.create_task("example.org/team/a", Trigger.API)
            print(task.id, flush=True)

    asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 40])
async def test_every_acknowledged_task_survives_kill_9(tmp_path, after):
    url = f"sqlite:///{tmp_path}/s.db"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), url], stdout=subprocess.PIPE, text=True
    ) as process:
        acknowledged = [int(process.stdout.readline()) for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    store = await Store.open(url)
    kept = [t.id for t in await store.unfinished_tasks()]
    assert kept[: len(acknowledged)] == acknowledged
    async with store._db.read() as c:
        assert (await c.exec_driver_sql("PRAGMA integrity_check")).scalar_one() == "ok"
    await store.close()


async def test_connections_are_set_up_as_the_module_says(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")

    async def pragma(c, name):
        return (await c.exec_driver_sql(f"PRAGMA {name}")).scalar_one()

    full = 2
    async with store._db.write() as c:
        assert [await pragma(c, n) for n in ("journal_mode", "synchronous", "foreign_keys")] == [
            "wal",
            full,
            1,
        ]
    async with store._db.read() as c:
        assert [await pragma(c, n) for n in ("query_only", "wal_autocheckpoint")] == [1, 0]
        with pytest.raises(sa.exc.OperationalError, match="readonly"):
            # Raised past the door, to see SQLite's own word.
            await c.execute(sa.text("DELETE FROM repos"))

    def looked_up(c):
        names = ("journal_mode", "synchronous", "query_only", "wal_autocheckpoint")
        return [c.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names]

    assert await store._db.look_up(looked_up) == ["wal", full, 1, 0]
    await store.close()


async def test_readers_do_not_wait_for_a_writer(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    await store.upsert_repos([repo()])
    async with store._db.write() as c:
        await c.execute(sa.text("DELETE FROM repos"))
        async with asyncio.timeout(5):
            assert (await store.find_repo(A)).key == A
    assert await store.find_repo(A) is None
    await store.close()


async def test_a_write_waits_for_another_process_and_gives_up_with_a_reason(tmp_path, monkeypatch):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    fd = os.open(tmp_path / "s.db.lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    waiting = asyncio.create_task(store.create_task(A, Trigger.API))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    fcntl.flock(fd, fcntl.LOCK_UN)
    assert (await asyncio.wait_for(waiting, 5)).repo == A
    fcntl.flock(fd, fcntl.LOCK_EX)
    monkeypatch.setattr("evermirror.edge.store.database.BUSY_S", 0.05)
    with pytest.raises(FailureError, match="another process"):
        await store.create_task(A, Trigger.API)
    os.close(fd)
    await store.create_task(A, Trigger.API)
    await store.close()


async def test_a_token_can_be_made_offline_before_the_first_start(tmp_path):
    url = f"sqlite:///{tmp_path}/new/folder/s.db"
    store = await Store.open(url)
    plain, _ = await store.create_token("first", Role.ADMIN)
    await store.close()
    assert sorted(p.name for p in (tmp_path / "new/folder").iterdir()) == ["s.db", "s.db.lock"]
    store = await Store.open(url)
    assert (await store.find_token(plain)).role is Role.ADMIN
    await store.close()


async def test_only_the_owner_can_read_the_database(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    await store.create_token("x", Role.ADMIN)
    assert len(list(tmp_path.iterdir())) == 4
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.iterdir())
    await store.close()


async def test_a_path_is_taken_literally(tmp_path):
    odd = tmp_path / "a b%20?x=1#é"
    store = await Store.open(f"sqlite:///{odd}/s.db")
    await store.upsert_repos([repo()])
    await store.close()
    assert (odd / "s.db").exists()


async def test_a_database_that_is_up_to_date_is_opened_without_alembic(tmp_path):
    url = f"sqlite:///{tmp_path / 'x.db'}"
    opening = f"""
        import asyncio, sys
        from evermirror.edge.store.store import Store
        async def main():
            await (await Store.open({url!r})).close()
        asyncio.run(main())
        print("alembic" in sys.modules)
    """
    said = []
    for _ in range(2):
        command = [sys.executable, "-c", textwrap.dedent(opening)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        said.append(done.stdout.strip())
    assert said == ["True", "False"]


async def test_a_dry_run_makes_no_file(tmp_path):
    steps = await pending_migrations(f"sqlite:///{tmp_path}/s.db")
    assert steps[0].revision == "0001"
    assert steps[0].title
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentUnfit, match="cannot be opened"):
        await Store.open(f"sqlite:///{tmp_path}/file/s.db")
    with pytest.raises(EnvironmentUnfit, match="cannot be opened"):
        await Store.open(f"sqlite:///{tmp_path}")


async def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path):
    path = tmp_path / "s.db"
    path.write_bytes(b"these are my holiday notes" * 100)
    with pytest.raises(EnvironmentUnfit, match="not a database"):
        await Store.open(f"sqlite:///{path}")
    assert path.read_bytes() == b"these are my holiday notes" * 100


async def test_a_full_disk_is_told_as_such_and_passes(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    async with store._db.write() as c:
        pages = (await c.exec_driver_sql("PRAGMA page_count")).scalar_one()
        await c.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(FailureError) as e:
        await store.upsert_repos([repo(f"example.org/{i}") for i in range(5000)])
    assert e.value.failure.kind is FailureKind.DISK_FULL
    async with store._db.write() as c:
        await c.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert (await store.upsert_repos([repo(f"example.org/{i}") for i in range(5000)])).added == 5000
    await store.close()


async def test_a_backup_is_whole_while_writing_goes_on(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    await store.upsert_repos([repo(f"example.org/{i}") for i in range(2000)])

    async def busy():
        for at in range(1, 1000):
            await store.apply([RepoVerified(f"example.org/{i}", float(at)) for i in range(2000)])

    writer = asyncio.create_task(busy())
    copy = tmp_path / "copy.db"
    await store.backup(copy)
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    with pytest.raises(UsageError):
        await store.backup(copy)
    await store.close()
    assert copy.stat().st_mode & 0o077 == 0
    restored = await Store.open(f"sqlite:///{copy}")
    times = {known.verified_at for known in await known_repos(restored)}
    assert len(times) == 1  # one moment, not two
    assert (await restored.overview_counts(0.0)).total == 2000
    await restored.close()


@pytest.mark.parametrize(
    "url",
    ["", "sqlite://", "sqlite:///", "mysql://u:hunter2@h/d", "not a url", "postgresql://u:hunter2@h:port/d"],
)
async def test_a_url_that_cannot_be_used_is_told_without_its_password(url):
    with pytest.raises(EnvironmentUnfit, match=r"database\.url") as e:
        await Store.open(url)
    assert e.value.exit_code is ExitCode.USAGE
    assert "hunter2" not in str(e.value)


async def test_queries_of_lists_and_counts_use_their_indexes(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")

    def plan(query):
        return " ".join(str(r[3]) for r in connection.execute("EXPLAIN QUERY PLAN SELECT " + query))

    live = "FROM repos WHERE removed_at IS NULL"
    classes = "AND pulled IN (0, 1) AND priority IN ('low', 'high') AND status IN ('active', 'held')"
    fresh = "SEARCH repos USING COVERING INDEX ix_repos_freshness (pulled=? AND priority=? AND status=?"
    cases = {
        f"* {live} AND host='h' AND key>'k' ORDER BY key LIMIT 9": "ix_repos_host_key",
        f"* {live} AND status='s' AND key>'k' ORDER BY key LIMIT 9": "ix_repos_status_key",
        f"status, count(*) {live} GROUP BY status": "COVERING INDEX ix_repos_status_key",
        f"priority, count(*) {live} GROUP BY priority": "COVERING INDEX ix_repos_priority",
        f"count(*) {live} {classes} AND verified_at>=5.0": fresh,
        f"count(*) {live} {classes} AND verified_at IS NULL": fresh,
        f"failure_kind, count(*) {live} AND failure_kind NOT NULL GROUP BY 1": "COVERING INDEX ix_repos_fail",
        "* FROM tasks WHERE repo='r' ORDER BY id DESC LIMIT 9": "ix_tasks_repo_id",
        "* FROM tasks WHERE status IN ('pending','running')": "ix_tasks_status_id",
    }
    for query, index in cases.items():
        assert index in plan(query), query
        assert "TEMP B-TREE" not in plan(query), query
    connection.close()


# PostgreSQL


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://u:hunter2@h/d", "postgres://u:***@h/d"),
        ("postgresql+asyncpg://u:hunter2@h:5433/d", "postgresql://u:***@h:5433/d"),
        ("postgresql://u@h/d?password=hunter2", "postgresql://u@h/d"),
    ],
)
def test_a_server_is_shown_as_written_without_driver_and_password(url, shown):
    place = parse_place(url)
    assert (place.shown, place.secret) == (shown, "hunter2")


async def test_an_option_that_the_driver_refuses_is_wrong_usage(free_port):
    with pytest.raises(EnvironmentUnfit, match="cannot be opened") as e:
        await Store.open(f"postgresql://ann:hunter2@127.0.0.1:{free_port}/db?sslmode=bogus")
    assert "sqlalche" not in str(e.value)
    assert e.value.exit_code is ExitCode.USAGE
    assert "hunter2" not in str(e.value)


async def test_a_server_that_is_not_there_is_told_without_the_password(free_port):
    with pytest.raises(DatabaseUnreachable) as e:
        await Store.open(f"postgresql://ann:hunter2@127.0.0.1:{free_port}/db")
    assert f"the database postgresql://ann:***@127.0.0.1:{free_port}/db cannot be opened" in str(e.value)
    assert e.value.exit_code is ExitCode.FAILED
    assert "hunter2" not in str(e.value)
    assert "hunter2" not in repr(e.value.__cause__) + repr(e.value.__context__)


@pytest.fixture
def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]  # bound and not listening: connections are refused


async def test_a_database_that_does_not_exist_is_told(postgres_url):
    with pytest.raises(EnvironmentUnfit, match="does not exist"):
        await Store.open(postgres_url.rsplit("/", 1)[0] + "/no_such_database")
    with pytest.raises(EnvironmentUnfit, match="nobody"):
        await Store.open(postgres_url.replace("postgres@", "nobody:hunter2@"))


async def test_a_database_of_another_encoding_is_refused(postgres_url):
    database = await Database.open(parse_place(postgres_url))
    engine = database._writer.execution_options(isolation_level="AUTOCOMMIT")
    async with engine.connect() as c:
        await c.execute(sa.text("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    try:
        with pytest.raises(EnvironmentUnfit, match="LATIN1"):
            await Store.open(postgres_url.rsplit("/", 1)[0] + "/latin")
    finally:
        async with engine.connect() as c:
            await c.execute(sa.text("DROP DATABASE latin"))
        await database.close()


async def test_connections_that_the_server_cut_are_weather_and_then_replaced(postgres_database):
    store = await Store.open(postgres_database)
    await store.upsert_repos([repo()])
    other = await Database.open(parse_place(postgres_database))
    cut = sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    async def write_while_cut():
        async with store._db.write() as c:
            async with other.read() as mine:
                await mine.execute(cut)
            await c.execute(sa.text("SELECT 1"))

    with pytest.raises(FailureError) as e:
        await write_while_cut()
    assert e.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert (await store.find_repo(A)).key == A
    await other.close()
    await store.close()


async def test_postgresql_is_backed_up_by_its_own_tools(postgres_database, tmp_path):
    store = await Store.open(postgres_database)
    with pytest.raises(UsageError, match="pg_dump"):
        await store.backup(tmp_path / "x")
    await store.close()


def test_sslmode_is_passed_on_in_the_drivers_word():
    place = parse_place("postgresql://u:p@h/d?sslmode=require")
    assert dict(place.url.query) == {"ssl": "require"}
    assert place.shown == "postgresql://u:***@h/d?sslmode=require"


async def test_a_migration_may_take_longer_than_a_command(postgres_database, monkeypatch):
    monkeypatch.setattr("evermirror.edge.store.database.COMMAND_S", 0.2)
    slowly = sa.text("SELECT pg_sleep(0.6)")

    def upgrade(connection):
        connection.execute(slowly)
        return ("done",)

    database = await Database.open(parse_place(postgres_database))
    try:
        with pytest.raises(FailureError):
            async with database.write() as c:
                await c.execute(slowly)
        monkeypatch.setattr("evermirror.edge.store.migrate._upgrade", upgrade)
        assert await migrate(database) == ("done",)
        assert await rehearse(postgres_database) == ("done",)
    finally:
        await database.close()


@pytest.mark.parametrize("late", [False, True], ids=["under way", "begun afterwards"])
async def test_a_look_that_a_close_meets_leaves_no_connection_behind(tmp_path, late):
    database = await Database.open(parse_place(f"sqlite:///{tmp_path}/s.db"))
    if late:
        await database.close()
        async with database.read() as c:
            assert (await c.exec_driver_sql("SELECT 1")).scalar_one() == 1
    else:
        async with database.read() as c:
            closing = asyncio.create_task(database.close())
            await asyncio.sleep(0.05)
            assert (await c.exec_driver_sql("SELECT 1")).scalar_one() == 1
        await closing
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del database, c
        gc.collect()
    assert not told


@pytest.mark.parametrize("how", ["read", "write"])
async def test_what_a_close_meets_leaves_no_connection_at_the_server(postgres_database, how):
    database = await Database.open(parse_place(postgres_database))
    async with getattr(database, how)() as c:
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0.05)
        assert (await c.execute(sa.select(sa.literal(1)))).scalar_one() == 1
    await closing
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    looking = await Database.open(parse_place(postgres_database))
    try:
        async with asyncio.timeout(10):  # the server needs a moment to see that one has left
            while True:
                async with looking.read() as c:
                    if (await c.exec_driver_sql(f"SELECT count(*) {others}")).scalar_one() == 0:
                        break
                await asyncio.sleep(0.05)
    finally:
        await looking.close()


# Damage


async def made(path):
    store = await Store.open(f"sqlite:///{path}")
    await store.upsert_repos([repo(f"example.org/team/{n:03}") for n in range(300)])
    await store.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"no database at all" * 1000,
        lambda whole: whole[:100] + b"\xff" * 3000 + whole[3100:],
        lambda whole: whole.replace(b"CREATE TABLE", b"CREATE TABLR"),
    ],
    ids=["no database", "its first page", "a schema that makes no sense"],
)
async def test_a_damaged_file_is_told_with_a_hint_to_restore_a_backup(tmp_path, damage):
    path = tmp_path / "s.db"
    path.write_bytes(damage(await made(path)))
    with pytest.raises(EnvironmentUnfit) as told:
        await Store.open(f"sqlite:///{path}")
    assert "damaged" in str(told.value)
    assert "from a backup" in told.value.hint


async def test_damage_that_comes_while_it_runs_is_told_with_what_to_do(tmp_path):
    path = tmp_path / "s.db"
    whole = await made(path)
    store = await Store.open(f"sqlite:///{path}")
    try:
        path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
        with pytest.raises(FailureError) as told:
            await store.upsert_repos([repo(f"example.org/more/{n:03}") for n in range(300)])
    finally:
        await store.close()
    assert "damaged, restore it from a backup" in told.value.failure.message
    assert "from a backup" in told.value.failure.hint


@pytest.mark.parametrize("state", ["XX001", "XX002"])
def test_damage_that_postgresql_reports_is_no_bug_and_says_what_to_do(state):
    class Corrupted(Exception):
        sqlstate = state

    failure = failure_of(Corrupted("invalid page in block 3"))
    assert "damaged, restore it from a backup: invalid page" in failure.message
    assert "PostgreSQL's log" in failure.hint


async def test_a_file_that_may_not_be_written_is_not_told_as_a_server_that_is_away(tmp_path):
    (tmp_path / "s.db").mkdir()
    with pytest.raises(EnvironmentUnfit) as told:
        await Store.open(f"sqlite:///{tmp_path}/s.db")
    assert "server" not in told.value.hint
