"""Backups are whole whatever goes on meanwhile, and putting one back loses nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time

import pytest

from evermirror.core.fleet.decisions import PutWorker
from evermirror.edge.store.backup import make_backup, put_back
from evermirror.edge.store.migrate import pending_migrations, rehearse
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import Decided
from evermirror.errors import EnvironmentUnfit, UsageError
from evermirror.model.failure import FailureError
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from evermirror.model.worker import WorkerFacts, WorkerRecord
from evermirror.nodes.coordinator.events.event_feed import EventFeed
from tests.support.migrated import FIRST, NEXT, add_step


@pytest.fixture
def database(tmp_path):
    return tmp_path / "data" / "evermirror.db"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "backups" / "one.db"


async def note(database, value):
    store = await Store.open(f"sqlite:///{database}")
    await store.put_setting("note", value)
    await store.close()


async def noted(database):
    store = await Store.open(f"sqlite:///{database}")
    try:
        return await store.get_setting("note")
    finally:
        await store.close()


def pair(n):
    """Two workers of one decision: a backup has both or neither."""
    facts = [WorkerFacts(f"{side}{n}") for side in "ab"]
    return Decided(tuple(PutWorker(WorkerRecord(2 * n + i, f)) for i, f in enumerate(facts)))


async def test_a_backup_of_a_busy_database_has_whole_decisions_only(database, copy):
    store = await Store.open(f"sqlite:///{database}")

    async def busy():
        for n in range(10_000):
            await store.apply([pair(n)])

    writer = asyncio.create_task(busy())
    sizes = []
    for i in range(5):
        await asyncio.sleep(0.05)
        target = copy.with_name(f"{i}.db")
        await asyncio.to_thread(make_backup, database, target)
        restored = await Store.open(f"sqlite:///{target}")
        names = {w.facts.name for w in (await restored.load_fleet()).workers}
        await restored.close()
        assert names == {f"{side}{n}" for n in range(len(names) // 2) for side in "ab"}
        sizes.append(len(names))
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    await store.close()
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0]


async def test_a_backup_belongs_to_its_owner_alone_and_replaces_nothing(database, copy):
    await note(database, 1)
    before = os.umask(0)
    try:
        make_backup(database, copy)
    finally:
        os.umask(before)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [f.name for f in copy.parent.iterdir()] == ["one.db"]
    with pytest.raises(UsageError, match="exists"):
        make_backup(database, copy)
    with pytest.raises(UsageError, match="no database"):
        make_backup(database.with_name("other.db"), copy.with_name("two.db"))


async def test_a_backup_that_cannot_be_written_leaves_nothing(database, tmp_path):
    await note(database, 1)
    database.write_bytes(b"nonsense" * 1000)
    with pytest.raises(FailureError):
        make_backup(database, tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))


async def test_what_was_put_back_is_what_was_kept(database, copy):
    await note(database, "kept")
    make_backup(database, copy)
    await note(database, "newer")
    with pytest.raises(UsageError, match="--force"):
        put_back(copy, database)
    assert await noted(database) == "newer"
    done = put_back(copy, database, force=True)
    assert (await noted(database), await noted(done.aside)) == ("kept", "newer")
    assert database.stat().st_mode & 0o777 == 0o600
    again = put_back(copy, database, force=True)
    assert again.aside != done.aside
    assert not list(database.parent.glob("*.partial"))


async def test_a_log_goes_aside_with_its_database(database, copy):
    """After a crash the newest commits are in the log alone."""
    await note(database, "kept")
    make_backup(database, copy)
    store = await Store.open(f"sqlite:///{database}")
    await store.put_setting("note", "in the log")
    crashed = database.with_name("crashed.db")
    for suffix in ("", "-wal"):
        crashed.with_name(crashed.name + suffix).write_bytes(
            database.with_name(database.name + suffix).read_bytes()
        )
    await store.close()
    done = put_back(copy, crashed, force=True)
    assert not crashed.with_name("crashed.db-wal").exists()
    assert (await noted(crashed), await noted(done.aside)) == ("kept", "in the log")


async def test_a_backup_is_put_where_there_was_nothing(database, copy, tmp_path):
    await note(database, "kept")
    make_backup(database, copy)
    new = tmp_path / "new" / "evermirror.db"
    assert put_back(copy, new).aside is None
    assert await noted(new) == "kept"


async def test_what_is_no_backup_is_refused_and_nothing_changes(database, copy, tmp_path):
    await note(database, "kept")
    make_backup(database, copy)
    damaged = bytearray(copy.read_bytes())
    damaged[5000:9000] = b"x" * 4000
    newer = copy.with_name("newer.db")
    newer.write_bytes(copy.read_bytes())
    other = copy.with_name("other.db")
    for file, statement in (
        (newer, "UPDATE alembic_version SET version_num = '9999'"),
        (other, "CREATE TABLE t (i)"),
    ):
        connection = sqlite3.connect(file)
        connection.execute(statement)
        connection.commit()
        connection.close()
    wrong = copy.with_name("wrong.db")
    for content in (bytes(damaged), copy.read_bytes()[:8192], b"text", b""):
        wrong.write_bytes(content)
        with pytest.raises(UsageError, match="damaged"):
            put_back(wrong, database, force=True)
    with pytest.raises(UsageError, match="no backup"):
        put_back(other, database, force=True)
    with pytest.raises(EnvironmentUnfit, match="9999"):
        put_back(newer, database, force=True)
    with pytest.raises(UsageError, match="no backup"):
        put_back(copy.with_name("absent.db"), database, force=True)
    copy.with_name("one.db-wal").write_bytes(b"something")
    with pytest.raises(UsageError, match="in use"):
        put_back(copy, database, force=True)
    assert await noted(database) == "kept"
    assert not list(database.parent.glob("*before*"))


async def test_a_database_that_somebody_writes_to_is_left_alone(database, copy):
    await note(database, "kept")
    make_backup(database, copy)
    with database.with_name(database.name + ".lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EnvironmentUnfit, match="written to"):
            put_back(copy, database, force=True)


async def test_workers_meet_a_higher_epoch_after_an_old_backup(database, copy):
    now = [1000.0]
    store = await Store.open(f"sqlite:///{database}", clock=lambda: now[0])
    await store.next_epoch()
    make_backup(database, copy)
    now[0] = 2000.0
    seen = [await store.next_epoch() for _ in range(3)]
    await store.close()
    put_back(copy, database, force=True)
    now[0] = 2500.0
    store = await Store.open(f"sqlite:///{database}", clock=lambda: now[0])
    assert await store.next_epoch() > max(seen)
    await store.close()


async def test_who_follows_hears_what_an_old_backup_made_otherwise_again(database, copy):
    store = await Store.open(f"sqlite:///{database}")
    keys = [RepoKey(f"example.org/{n}") for n in range(3)]
    specs = [RepoSpec(key, f"https://{key}.git", Host("example.org")) for key in keys]
    await store.upsert_repos([RepoRecord(spec) for spec in specs])
    make_backup(database, copy)
    await store.remove_repos(keys[:1], time.time())
    heard = (await store.changes_since(0, 9))[-1]
    assert (heard.key, heard.removed) == (keys[0], True)
    await store.close()
    put_back(copy, database, force=True)
    store = await Store.open(f"sqlite:///{database}")
    told = await store.changes_since(heard.seq, 9)
    assert [(c.key, c.removed) for c in told] == [(key, False) for key in keys]
    await store.remove_repos(keys[2:], time.time())
    assert [c.key for c in await store.changes_since(told[-1].seq, 9)] == keys[2:]
    await store.close()


async def test_who_follows_events_is_told_of_a_gap_when_a_backup_is_put_back(database, copy):
    store = await Store.open(f"sqlite:///{database}")
    spec = RepoSpec(RepoKey("example.org/a"), "https://example.org/a", Host("example.org"))
    await store.upsert_repos([RepoRecord(spec)])
    make_backup(database, copy)
    await store.remove_repos([spec.key], time.time())
    seen = await store.latest_event()
    await store.close()
    put_back(copy, database, force=True)
    store = await Store.open(f"sqlite:///{database}")
    assert (await store.events_after(seen, 9)).began > seen
    await store.remove_repos([spec.key], time.time())
    assert [e.type for e in (await store.events_after(seen, 9)).events] == ["repo.removed"]
    feed = EventFeed(store, time.time, retention_s=1e9, keep=1000)
    await feed.load()
    assert feed.gap(seen) is not None
    assert feed.gap(await store.latest_event()) is None
    await store.close()


async def test_ids_of_targets_made_after_a_backup_are_nobodys_when_it_is_put_back(database, copy):
    store = await Store.open(f"sqlite:///{database}")
    key, host = RepoKey("example.org/a"), Host("example.org")
    await store.upsert_repos([RepoRecord(RepoSpec(key, f"https://{key}.git", host))])
    make_backup(database, copy)
    targets = tuple(Target(TargetId(0), f"https://t.example/{n}") for n in range(3))
    (project,) = await store.put_projects([Project(key, key, host, PullConfig(), targets)])
    given = {target.id for target in project.targets}
    await store.close()
    for _ in range(2):
        put_back(copy, database, force=True)
        store = await Store.open(f"sqlite:///{database}")
        assert await store.load_projects() == ()
        (anew,) = await store.put_projects([Project(key, key, host, PullConfig(), targets)])
        assert given.isdisjoint(target.id for target in anew.targets)
        await store.close()


@pytest.fixture
def newer(monkeypatch, tmp_path):
    """The program becomes one with another migration."""
    return lambda *statements: add_step(monkeypatch, tmp_path / "migrations", *statements)


async def test_an_old_backup_says_what_will_run(database, copy, newer):
    await note(copy, "old")
    newer("ALTER TABLE settings ADD COLUMN more TEXT")
    done = put_back(copy, database)
    assert [m.revision for m in done.pending] == [NEXT]
    assert await noted(database) == "old"
    await note(database, "migrated")
    assert await noted(database) == "migrated"


async def test_a_rehearsal_runs_everything_and_changes_nothing(database, newer):
    url = f"sqlite:///{database}"
    assert [m.revision for m in await rehearse(url)] == [FIRST]
    assert not database.exists()
    await note(database, "old")
    newer("ALTER TABLE settings ADD COLUMN more TEXT")
    before = await pending_migrations(url)
    assert [m.revision for m in before] == [NEXT]
    assert await rehearse(url) == before
    assert await pending_migrations(url) == before
    assert await noted(database) == "old"
    assert await rehearse(url) == ()


async def test_a_rehearsal_meets_what_a_start_would_meet(database, newer):
    await note(database, "old")
    newer("CREATE TABLE more (id INTEGER)")
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE more (mine)")
    connection.commit()
    connection.close()
    with pytest.raises(Exception, match="more already exists"):
        await rehearse(f"sqlite:///{database}")
