"""Very many repos without their mirrors: what a worker remembers of them, and what a coordinator's database
has. Rows are made by the database itself, so that a million of them take seconds."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from evermirror.edge.store.local import LocalState
from evermirror.edge.store.store import Store
from evermirror.model.repo import Host, RepoKey, RepoSpec

STORE = "store.db"
HOSTS = 7
LONG_AGO_S = 90_000  # the oldest look; the others are spread evenly between then and now


def host_of(i: int) -> Host:
    return Host(f"forge-{i % HOSTS}.example")


def spec_of(i: int) -> RepoSpec:
    key = RepoKey(f"{host_of(i)}/team/repo-{i:07}")
    return RepoSpec(key, f"https://{key}.git", host_of(i))


def make_store(folder: Path, n: int) -> None:
    """A coordinator's database with ``n`` repos, most of which are well."""

    async def tables() -> None:
        await (await Store.open(f"sqlite:///{folder / STORE}")).close()

    asyncio.run(tables())
    _fill(folder / STORE, n)


@contextlib.contextmanager
def filling(database: Path, *tables: str) -> Iterator[sqlite3.Connection]:
    """For very many rows of these tables: their indexes are made at the end, several times as quickly."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("PRAGMA cache_size=-200000")
        connection.execute("PRAGMA synchronous=OFF")
        asked = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL"
        indexes = [(name, sql) for name, table, sql in connection.execute(asked) if table in tables]
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        yield connection
        for _, sql in indexes:
            connection.execute(sql)


def _fill(database: Path, n: int) -> None:
    """As after a long life: most are well, one in a hundred is not, for various reasons."""
    with filling(database, "repos") as connection:
        connection.execute(
            """
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :n),
            named AS (SELECT i, 'forge-' || (i % 7) || '.example' AS host, i % 100 = 7 AS bad FROM n)
            INSERT INTO repos (key, url, host, source, info, priority, mode, private, enabled, status,
                refs_count, size_bytes, verified_at, consecutive_failures, failure_kind,
                activity_fast, activity_middle, activity_slow, activity_as_of, last_push_at,
                created_at, updated_at)
            SELECT host || '/team-' || (i * 7919 % 50021) || '/some-repository-' || i,
                'https://' || host || '/team-' || (i * 7919 % 50021) || '/some-repository-' || i,
                host, 'api', '{}',
                CASE i % 20 WHEN 0 THEN 'critical' WHEN 1 THEN 'high' WHEN 2 THEN 'low' ELSE 'normal' END,
                'exact', 0, 1,
                CASE WHEN bad THEN CASE i % 300 WHEN 7 THEN 'gone' WHEN 107 THEN 'auth' ELSE 'failing' END
                    ELSE 'active' END,
                9, 100000, :now - i * 7 % 80000, bad * 3,
                CASE WHEN bad THEN CASE i % 300 WHEN 7 THEN 'NOT_FOUND' WHEN 107 THEN 'AUTH_FAILED'
                    ELSE 'NETWORK_TIMEOUT' END END,
                0.1, 0.2, 0.3, 0, 0, :now, :now
            FROM named
            """,
            {"n": n, "now": time.time()},
        )


def make_memories(folder: Path, n: int) -> None:
    """A worker's own file: ``n`` repos of ``spec_of``; every tenth is pushed to now and then."""

    async def tables() -> None:
        await (await LocalState.open(folder / "worker.db")).close()

    asyncio.run(tables())
    with contextlib.closing(sqlite3.connect(folder / "worker.db")) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(
            """
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :n)
            INSERT INTO repos (key, fast, middle, slow, as_of, last_push_at, last_poll_at, verified_at,
                digest, mark, failures, not_before)
            SELECT printf('forge-%d.example/team/repo-%07d', i % :hosts, i),
                0.0, (i % 10 = 0) * 0.5, (i % 10 = 0) * (i % 97), :now - 80000, :now - 80000 - i % 9000,
                :now - (i * 7919) % :ago, :now - (i * 7919) % :ago, randomblob(32), randomblob(32),
                0, 0
            FROM n ORDER BY i % :hosts, i
            """,
            {"n": n, "hosts": HOSTS, "now": time.time(), "ago": LONG_AGO_S},
        )
