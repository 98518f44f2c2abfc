"""What an aggregator knows of the fleet's repos, in one SQLite file of its own: wanted, here, how far it got.

The coordinator tells it again from ``since``, and mirrors on disk are the truth about objects; what was
verified, and by whose word, is known here alone. A damaged file is moved aside and everything told anew.
Reads give a bounded number of rows: a million repos are never in memory at once.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evermirror.core.collect.decisions import DistrustWord, DropRow, PutRow, Write
from evermirror.core.collect.events import Cursor, Unused
from evermirror.core.collect.rows import Row
from evermirror.edge.store.collected_rows import COLUMNS, row_in, row_out
from evermirror.edge.store.own_file import Layout, OwnFile, get_meta, in_one, put_meta
from evermirror.model.messages import HeldRepo
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

_PRIVATE = "json_extract(spec, '$.private')"
_SAMPLED = "here IS NULL AND untrusted AND enabled AND wanted IS NOT NULL"
_SCHEMA = f"""
CREATE TABLE repos (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    spec TEXT NOT NULL,          -- JSON
    seq INTEGER NOT NULL,
    alias TEXT,
    enabled INTEGER NOT NULL,
    held_back INTEGER NOT NULL,
    wanted BLOB,                 -- a digest, or its first 8 bytes
    wanted_at REAL,
    changed_at REAL,
    size_bytes INTEGER NOT NULL,
    untrusted INTEGER NOT NULL,
    here BLOB,                   -- a digest; NULL where nothing is
    verified_at REAL,
    how TEXT,
    source TEXT,
    here_bytes INTEGER,
    taken BLOB,
    place REAL,
    at REAL,                     -- place, or when a doubt is looked at again
    failures INTEGER NOT NULL,
    retry_at REAL NOT NULL,
    doubt TEXT,                  -- JSON
    guard TEXT,                  -- JSON
    used_at REAL NOT NULL DEFAULT 0
);
CREATE INDEX repos_alias ON repos (alias) WHERE alias IS NOT NULL;
CREATE INDEX repos_first ON repos (at, key) WHERE at IS NOT NULL AND here IS NULL;
CREATE INDEX repos_again ON repos (at, key) WHERE at IS NOT NULL AND here IS NOT NULL;
CREATE INDEX repos_used ON repos (used_at, key) WHERE here IS NOT NULL;
CREATE INDEX repos_audited ON repos (id) WHERE here IS NOT NULL AND untrusted AND enabled;
CREATE INDEX repos_sampled ON repos (id) WHERE {_SAMPLED};
CREATE INDEX repos_by_word ON repos (source) WHERE how IN ('holder', 'quorum');
CREATE INDEX repos_private ON repos (id) WHERE {_PRIVATE};
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
# A power cut must not take back what the coordinator was told that is on the disk: since, and Have.
_LAYOUT = Layout(
    version=1,
    schema=_SCHEMA,
    synchronous="FULL",
    check=lambda connection: _check(connection),
)
_ALL = ", ".join(COLUMNS)
_PUT = (
    f"INSERT INTO repos ({_ALL}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 (our own names)
    f" ON CONFLICT (key) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in COLUMNS[1:])},"
    # What has just come was wanted just now: it is not the first to go.
    " used_at = CASE WHEN repos.here IS NULL AND excluded.here IS NOT NULL"
    " THEN max(repos.used_at, excluded.verified_at) ELSE repos.used_at END"
)
_AUDITED = "here IS NOT NULL AND untrusted AND enabled"
_SINCE = "since"


@dataclass(frozen=True, slots=True)
class CollectedFigures:
    """How many repos are in the catalog, here, behind (something newer is wanted), their bytes, and how many
    have a holder whose word is in doubt."""

    repos: int
    here: int
    pending: int
    here_bytes: int
    doubts: int = 0


class Collected:
    """Open it with ``await Collected.open(path)``."""

    def __init__(self, file: OwnFile) -> None:
        self._file = file
        self.rebuilt = file.rebuilt  # it was damaged: everything is told and verified again

    @classmethod
    async def open(cls, path: Path, *, clock: Callable[[], float] = time.time) -> Collected:
        """Makes the file where it is missing. A damaged file is moved aside, with a warning."""
        return cls(await OwnFile.open(path, _LAYOUT, clock))

    async def close(self) -> None:
        await self._file.close()

    async def since(self) -> int:
        """Changes up to this number are in here."""
        return await self._file.run(get_meta, _SINCE) or 0

    async def write(self, writes: Sequence[Write], since: int | None = None) -> list[RepoKey]:
        """All in one transaction. Returns what is no longer served because its word was distrusted."""
        return await self._file.run(_write, writes, since)

    async def note_used(self, used: Mapping[RepoKey, float]) -> None:
        """When clients last read these."""
        await self._file.run(_note_used, [(at, key) for key, at in used.items()])

    async def row_of(self, key: RepoKey) -> Row | None:
        return (await self.rows_of([key])).get(key)

    async def rows_of(self, keys: Collection[RepoKey]) -> dict[RepoKey, Row]:
        return await self._file.run(_rows_of, list(keys))

    async def find(self, key_or_alias: str) -> Row | None:
        """By key, else by alias."""
        return await self._file.run(_find, key_or_alias)

    async def any_private(self) -> bool:
        """Whether one of the repos is private."""
        return await self._file.run(_any_private)

    async def pending(self, after: Cursor | None, limit: int, *, first: bool) -> list[Row]:
        """Rows with a place or a doubt of which nothing (``first``) or something is here, in the order of
        that time and of keys, beyond ``after``."""
        return await self._file.run(_pending, first, after, limit)

    async def audited(self, share: float, *, first: bool = False) -> Row | None:
        """One that is here, untrusted and enabled, at that share of all; ``first``: one that was reported
        and is not here."""
        return await self._file.run(_audited, share, _SAMPLED if first else _AUDITED)

    async def least_used(self, limit: int, read: Collection[RepoKey] = ()) -> tuple[Unused, ...]:
        """What is here, the longest unused first; ``read``: clients are reading these now."""
        return tuple(Unused(row, row.key in read) for row in await self._file.run(_least_used, limit))

    async def served(self, after: RepoKey | None, limit: int) -> list[HeldRepo]:
        """What is here and may be served, in the order of keys."""
        return await self._file.run(_served, after, limit)

    async def here_after(self, after: RepoKey | None, limit: int) -> list[Row]:
        """Rows of which something is on the disk, in the order of keys."""
        return await self._file.run(_here_after, after, limit)

    async def figures(self) -> CollectedFigures:
        return await self._file.run(_figures)


def _write(connection: sqlite3.Connection, writes: Sequence[Write], since: int | None) -> list[RepoKey]:
    distrusted: list[RepoKey] = []

    def do() -> None:
        for write in writes:
            match write:
                case PutRow(row):
                    connection.execute(_PUT, row_in(row))
                case DropRow(key):
                    connection.execute("DELETE FROM repos WHERE key = ?", (key,))
                case DistrustWord(node, place):
                    distrusted.extend(_distrust(connection, node, place))
        if since is not None:
            put_meta(connection, _SINCE, since)

    in_one(connection, do)
    return distrusted


def _distrust(connection: sqlite3.Connection, node: NodeId, place: float) -> list[RepoKey]:
    rows = connection.execute(
        "UPDATE repos SET how = 'doubted', at = coalesce(place, ?1), place = coalesce(place, ?1)"
        " WHERE source = ?2 AND how IN ('holder', 'quorum') RETURNING key",
        (place, node),
    )
    return [RepoKey(key) for (key,) in rows]


def _note_used(connection: sqlite3.Connection, used: list[tuple[float, RepoKey]]) -> None:
    statement = "UPDATE repos SET used_at = ? WHERE key = ?"
    in_one(connection, lambda: connection.executemany(statement, used))


def _rows_of(connection: sqlite3.Connection, keys: list[RepoKey]) -> dict[RepoKey, Row]:
    rows = (row for key in keys for row in _select(connection, "WHERE key = ?", key))
    return {row.key: row for row in rows}


def _find(connection: sqlite3.Connection, key_or_alias: str) -> Row | None:
    try:
        key_or_alias.encode()
    except UnicodeEncodeError:
        return None  # SQLite keeps no such text
    for where in ("WHERE key = ?", "WHERE alias = ?"):
        if rows := _select(connection, f"{where} LIMIT 1", key_or_alias):
            return rows[0]
    return None


def _any_private(connection: sqlite3.Connection) -> bool:
    found = connection.execute(f"SELECT 1 FROM repos WHERE {_PRIVATE} LIMIT 1")  # noqa: S608 (our own words)
    return found.fetchone() is not None


def _pending(connection: sqlite3.Connection, first: bool, after: Cursor | None, limit: int) -> list[Row]:
    where = f"WHERE at IS NOT NULL AND here IS {'' if first else 'NOT '}NULL"
    if after is None:
        return _select(connection, f"{where} ORDER BY at, key LIMIT ?", limit)
    return _select(connection, f"{where} AND (at, key) > (?, ?) ORDER BY at, key LIMIT ?", *after, limit)


def _audited(connection: sqlite3.Connection, share: float, which: str) -> Row | None:
    least, most = (
        connection.execute(f"SELECT id FROM repos WHERE {which} ORDER BY id {way} LIMIT 1").fetchone()  # noqa: S608
        for way in ("ASC", "DESC")
    )
    if least is None or most is None:
        return None
    at = least[0] + int(share * (most[0] - least[0] + 1))
    rows = _select(connection, f"WHERE {which} AND id >= ? ORDER BY id LIMIT 1", min(at, most[0]))
    return rows[0] if rows else None


def _least_used(connection: sqlite3.Connection, limit: int) -> list[Row]:
    return _select(connection, "WHERE here IS NOT NULL ORDER BY used_at, key LIMIT ?", limit)


def _served(connection: sqlite3.Connection, after: RepoKey | None, limit: int) -> list[HeldRepo]:
    rows = connection.execute(
        "SELECT key, here, verified_at FROM repos WHERE key > ? AND here IS NOT NULL"
        " AND how NOT IN ('doubted', 'damaged') ORDER BY key LIMIT ?",
        (after or "", limit),
    )
    return [HeldRepo(RepoKey(key), RefsDigest(here.hex()), verified_at) for key, here, verified_at in rows]


def _here_after(connection: sqlite3.Connection, after: RepoKey | None, limit: int) -> list[Row]:
    where = "WHERE key > ? AND here IS NOT NULL ORDER BY key LIMIT ?"
    return _select(connection, where, after or "", limit)


def _figures(connection: sqlite3.Connection) -> CollectedFigures:
    row = connection.execute(
        "SELECT count(*), count(here), count(at), coalesce(sum(here_bytes), 0), count(doubt) FROM repos"
    ).fetchone()
    return CollectedFigures(*row)


def _check(connection: sqlite3.Connection) -> None:
    """Raises where a row cannot be read."""
    for row in connection.execute(f"SELECT {_ALL} FROM repos"):  # noqa: S608 (our own names)
        row_out(row)


def _select(connection: sqlite3.Connection, where: str, *params: Any) -> list[Row]:
    rows: Iterable[tuple[Any, ...]] = connection.execute(f"SELECT {_ALL} FROM repos {where}", params)  # noqa: S608
    return [row_out(row) for row in rows]
