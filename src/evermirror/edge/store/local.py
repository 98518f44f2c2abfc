"""What a worker remembers of its repos, in one small SQLite file of its own.

The mirrors on disk are the truth; this file only saves polls after a restart, and says what to go on with
while the coordinator is away. So a damaged one is moved aside and rebuilt empty, and ``synchronous=NORMAL``
is enough: killing the process loses nothing that was saved, a power cut at most the last seconds.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from evermirror.edge.store.assigned import Assigned, assigned_of, row_of
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.own_file import Layout, OwnFile, get_meta, in_one, put_meta
from evermirror.edge.store.rhythms import rhythm_in, rhythm_out
from evermirror.edge.store.told_limits import limits_of, text_of
from evermirror.model.activity import Activity, counts_of
from evermirror.model.failure import FailureKind
from evermirror.model.kept import GuardMemory, GuardReason
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import ApplySettings
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey

_SCHEMA = """
CREATE TABLE repos (
    key TEXT PRIMARY KEY,
    fast REAL NOT NULL, middle REAL NOT NULL, slow REAL NOT NULL,
    as_of REAL NOT NULL,
    last_push_at REAL NOT NULL,
    last_poll_at REAL NOT NULL,
    verified_at REAL NOT NULL,
    digest BLOB,              -- 32 bytes
    mark BLOB,
    failures INTEGER NOT NULL,
    failure_kind TEXT,
    not_before REAL NOT NULL,
    guard TEXT,               -- JSON; of a change that is held back
    rhythm BLOB               -- rhythms.py
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE assigned (
    key TEXT PRIMARY KEY,
    spec TEXT NOT NULL,       -- JSON
    following INTEGER NOT NULL,
    paused INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE told (what TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
"""
_LAYOUT = Layout(version=1, schema=_SCHEMA, check=lambda connection: _load(connection))
_SAVE = "INSERT OR REPLACE INTO repos VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


class LocalState:
    """Open it with ``await LocalState.open(path)``; ``generation`` counts the starts."""

    def __init__(self, file: OwnFile) -> None:
        self._file = file
        self.generation = 0
        self.limits: ApplySettings | None = None  # that were noted before it was opened
        self.rebuilt = file.rebuilt  # it was damaged: everything is to be learnt again from the disk

    @classmethod
    async def open(cls, path: Path, *, clock: Callable[[], float] = time.time) -> LocalState:
        """Makes the file where it is missing. A damaged file is moved aside, with a warning."""
        file = await OwnFile.open(path, _LAYOUT, clock)
        try:
            state = cls(file)
            state.generation = await file.run(_next_generation)
            state.limits = await file.run(_limits)
        except BaseException:
            await file.close()
            raise
        return state

    async def close(self) -> None:
        await self._file.close()

    async def load(self) -> list[RepoMemory]:
        """Every row, in the order of keys."""
        return await self._file.run(_load)

    async def save(self, batch: Sequence[RepoMemory]) -> None:
        """Adds or replaces, in one transaction."""
        await self._file.run(_save, batch)

    async def forget(self, keys: Iterable[RepoKey]) -> None:
        await self._file.run(_forget, list(keys))

    async def assigned(self) -> list[Assigned]:
        """What was noted and not taken back, in the order of keys."""
        return await self._file.run(_assigned)

    async def note_assigned(self, batch: Sequence[Assigned]) -> None:
        """Adds or replaces, in one transaction."""
        await self._file.run(_note_assigned, batch)

    async def unassign(self, keys: Iterable[RepoKey]) -> None:
        await self._file.run(_unassign, list(keys))

    async def note_limits(self, limits: ApplySettings) -> None:
        """In place of those noted before."""
        await self._file.run(_note_limits, limits)

    async def get_meta(self, key: str) -> int | None:
        """A small number kept beside the rows, such as the version of the mirrors' layout."""
        return await self._file.run(get_meta, key)

    async def put_meta(self, key: str, value: int) -> None:
        await self._file.run(put_meta, key, value)


def _next_generation(connection: sqlite3.Connection) -> int:
    generation = (get_meta(connection, "generation") or 0) + 1
    put_meta(connection, "generation", generation)
    return generation


def _load(connection: sqlite3.Connection) -> list[RepoMemory]:
    with collector_paused():
        return [_out(row) for row in connection.execute("SELECT * FROM repos ORDER BY key")]


def _save(connection: sqlite3.Connection, batch: Sequence[RepoMemory]) -> None:
    _many(connection, _SAVE, [_in(memory) for memory in batch])


def _forget(connection: sqlite3.Connection, keys: list[RepoKey]) -> None:
    _many(connection, "DELETE FROM repos WHERE key = ?", [(key,) for key in keys])


def _assigned(connection: sqlite3.Connection) -> list[Assigned]:
    rows = connection.execute("SELECT key, spec, following, paused FROM assigned ORDER BY key")
    return [assigned for row in rows if (assigned := assigned_of(row)) is not None]


def _note_assigned(connection: sqlite3.Connection, batch: Sequence[Assigned]) -> None:
    _many(connection, "INSERT OR REPLACE INTO assigned VALUES (?,?,?,?)", [row_of(a) for a in batch])


def _unassign(connection: sqlite3.Connection, keys: list[RepoKey]) -> None:
    _many(connection, "DELETE FROM assigned WHERE key = ?", [(key,) for key in keys])


def _limits(connection: sqlite3.Connection) -> ApplySettings | None:
    row = connection.execute("SELECT text FROM told WHERE what = 'limits'").fetchone()
    return None if row is None else limits_of(row[0])


def _note_limits(connection: sqlite3.Connection, limits: ApplySettings) -> None:
    _many(connection, "INSERT OR REPLACE INTO told VALUES ('limits', ?)", [(text_of(limits),)])


def _many(connection: sqlite3.Connection, statement: str, params: list[tuple[Any, ...]]) -> None:
    in_one(connection, lambda: connection.executemany(statement, params))


_KINDS = {kind.value: kind for kind in FailureKind}


def _in(m: RepoMemory) -> tuple[Any, ...]:
    return (
        m.key,
        *m.activity.counts,
        m.activity.as_of,
        m.activity.last_push_at,
        m.last_poll_at,
        m.verified_at,
        None if m.digest is None else bytes.fromhex(m.digest),
        m.mark,
        m.failures,
        None if m.failure_kind is None else m.failure_kind.value,
        m.not_before,
        None if m.guard is None else _guard_in(m.guard),
        rhythm_in(m.activity.rhythm),
    )


def _out(row: tuple[Any, ...]) -> RepoMemory:
    return RepoMemory(
        RepoKey(row[0]),
        Activity(counts_of(row[1], row[2], row[3]), row[4], row[5], rhythm_out(row[14])),
        row[6],
        row[7],
        None if row[8] is None else RefsDigest(row[8].hex()),
        row[9],
        row[10],
        None if row[11] is None else _KINDS[row[11]],
        row[12],
        None if row[13] is None else _guard_out(row[13]),
    )


def _guard_in(guard: GuardMemory) -> str:
    return json.dumps([guard.reason.value, guard.since, guard.sightings, guard.digest, guard.lost])


def _guard_out(text: str) -> GuardMemory:
    reason, since, sightings, digest, lost = json.loads(text)
    return GuardMemory(GuardReason(reason), since, sightings, RefsDigest(digest), lost)
