"""What the fleet's machine starts from: a million repos and where they are, read in columns into its tables.

Some thousands of rows come at a time, and as one row: the database itself joins each column into one text.
A tuple and six objects for each repo would take longer than all else; and the database works without Python's
lock: it makes the next chunk ready while this one is put into the tables. Nothing but the tables grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.fleet.copies import UNWANTED
from evermirror.core.fleet.decisions import ReportTaken
from evermirror.core.fleet.letters import Letters
from evermirror.core.fleet.restoring import Tables
from evermirror.core.fleet.table import URGENT
from evermirror.core.fleet.views import Restored
from evermirror.edge.store import rows
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import copies, reports_taken, repos, workers
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId, WorkerRecord

_Kind = TypeVar("_Kind", bound=np.generic)

CHUNK = 10_000  # rows read at once: about a MB
_LINE = "\n"  # between keys, and between lists of pins: neither has one
_TRUSTED_ONLY, _LEFT, _PINNED, _URGENT, _SALT = 1, 2, 4, 8, 16  # a repo's marks; the salt is on top of them
_WORKERS = 1 << 16  # more than there are; a copy's other facts are bytes on top of its worker


async def load(db: Database, letters: Letters | None = None) -> Restored:
    with collector_paused():
        async with db.read() as c:
            return await _load(db, c, letters)


async def _load(db: Database, c: AsyncConnection, letters: Letters | None) -> Restored:
    known = [_worker_out(row) for row in await c.execute(sa.select(workers).order_by(workers.c.id))]
    there = [record.id for record in known if record.duty is not Duty.RETIRED]
    room, room_of_copies = _with_room(await _count(c, repos)), _with_room(await _count(c, copies))
    tables = Tables(there, rows=room, copies=room_of_copies, letters=letters)
    ids, places = await _load_repos(db, c, tables)
    await _load_copies(db, c, tables, ids, places)
    order = (reports_taken.c.worker, reports_taken.c.taken)
    reports = [
        ReportTaken(row.worker, row.generation, row.sequence)
        for row in await c.execute(sa.select(reports_taken).order_by(*order))
    ]
    if db.is_sqlite:
        await c.exec_driver_sql("PRAGMA shrink_memory")  # pages that nobody reads again soon
    return Restored(workers=known, reports=reports, tables=tables)


async def bound_tokens(db: Database) -> dict[int, WorkerId]:
    """Of workers that retired too, until their id is given to another: such a token is known, and refused."""
    query = sa.select(workers.c.token_id, workers.c.id).where(workers.c.token_id.is_not(None))
    async with db.read() as c:
        return {token: WorkerId(worker) for token, worker in await c.execute(query)}


def _with_room(count: int) -> int:
    """Room that is not used takes no memory; where there is none, the next repo has every column copied."""
    return count + count // 4


async def _count(c: AsyncConnection, table: sa.Table) -> int:
    return int((await c.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())


async def _load_repos(
    db: Database, c: AsyncConnection, tables: Tables
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Their numbers here, ascending, and the row in the table of each."""
    ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    places: list[NDArray[np.int32]] = [np.empty(0, np.int32)]

    def put(numbers_text: str, keys: str, marks_text: str, pins: str | None) -> None:
        numbers, marks = _numbers(numbers_text), _numbers(marks_text)
        pinned = np.flatnonzero(marks & _PINNED).tolist()
        texts = pins.split(_LINE) if pins is not None else []
        own = {place: rows.texts_out(text) for place, text in zip(pinned, texts, strict=True)}
        trusted_only = (marks & _TRUSTED_ONLY).astype(np.bool_)
        at = tables.put_repos(keys.split(_LINE), trusted_only, _narrow(marks // _SALT, np.uint8), own)
        tables.table.flags[at[(marks & _URGENT).astype(np.bool_)]] |= URGENT
        tables.remove(at[(marks & _LEFT).astype(np.bool_)])
        ids.append(numbers)
        places.append(at)

    await _each_chunk(db, c, _REPOS, lambda last: (last,), put)
    all_ids, all_places = np.concatenate(ids), np.concatenate(places)
    order = np.argsort(all_ids, kind="stable")  # within a chunk they may have come in any
    return all_ids[order], all_places[order]


async def _load_copies(
    db: Database, c: AsyncConnection, tables: Tables, ids: NDArray[np.int64], places: NDArray[np.int32]
) -> None:
    if not len(ids):
        return

    def put(repos_text: str, facts_text: str, since_text: str) -> None:
        numbers, facts = _numbers(repos_text), _numbers(facts_text)
        at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
        tables.put_copies(
            np.where(ids[at] == numbers, places[at], -1).astype(np.int32),
            (facts % _WORKERS).astype(np.uint16),
            (facts // _WORKERS % 256).astype(np.uint8),
            (facts // _WORKERS // 256 % 256).astype(np.uint8),
            _narrow(facts // _WORKERS // 256**2, np.uint8),
            _narrow(_numbers(since_text), np.uint32),
        )

    await _each_chunk(db, c, _COPIES, lambda last: divmod(last, _WORKERS), put)


def _numbers(joined: str) -> NDArray[np.int64]:
    return np.fromstring(joined, np.int64, sep=",")


def _narrow(values: NDArray[np.int64], kind: type[_Kind]) -> NDArray[_Kind]:
    """The same numbers; none of them may be others by that."""
    narrow = values.astype(kind)
    if not np.array_equal(narrow, values):
        raise ValueError(f"a number in the database is not one of {np.dtype(kind)}")
    return narrow


async def _each_chunk(
    db: Database,
    c: AsyncConnection,
    query: str,
    behind: Callable[[int], tuple[int, ...]],
    put: Callable[..., None],
) -> None:
    """All rows, in chunks: the first column is the place of the last row, behind which the next chunk begins;
    ``put`` is given the other columns."""
    driver: Any = (await c.get_raw_connection()).driver_connection
    if db.is_sqlite:
        query = query.replace("$", "?").replace("string_agg", "group_concat")

    async def read(last: int) -> tuple[Any, ...]:
        if db.is_sqlite:
            (row,) = await driver.execute_fetchall(query, (*behind(last), CHUNK))
        else:
            row = await driver.fetchrow(query, *behind(last), CHUNK)
        return tuple(row)

    last, *columns = await read(-1)
    while last is not None:
        following = asyncio.create_task(read(last))
        try:
            await asyncio.sleep(0)  # it begins
            put(*columns)
            last, *columns = await following
        finally:
            if not following.done():  # this was cancelled, or failed: the connection is not left at work
                following.cancel()
                await asyncio.wait((following,))


# A project that was never synced, and that nobody was ever given: the fleet hears of it when its first task
# begins. Each is looked up by its number; of an EXISTS, PostgreSQL may read the whole table for each chunk.
_WAITS_FOR_ITS_TASK = """
    pulled
        AND coalesce((SELECT p.last_sync_at IS NULL FROM pull_projects AS p WHERE p.repo = repos.id), FALSE)
        AND (SELECT min(c.worker) FROM copies AS c WHERE c.repo = repos.id) IS NULL
"""
_REPOS = f"""
    SELECT max(id), string_agg(CAST(id AS TEXT), ','), string_agg(key, '{_LINE}'),
        string_agg(CAST(marks AS TEXT), ','), string_agg(nullif(pins, '[]'), '{_LINE}')
    FROM (
        SELECT id, key, pins,
            CASE WHEN private OR credential IS NOT NULL OR (pulled AND EXISTS (
                SELECT 1 FROM pull_targets AS t WHERE t.repo = repos.id AND t.credential IS NOT NULL
            )) THEN {_TRUSTED_ONLY} ELSE 0 END
            + CASE WHEN removed_at IS NOT NULL THEN {_LEFT} ELSE 0 END
            + CASE WHEN pins <> '[]' THEN {_PINNED} ELSE 0 END
            + CASE WHEN priority IN ('critical', 'high') THEN {_URGENT} ELSE 0 END
            + salt * {_SALT} AS marks
        FROM repos WHERE id > $1 AND NOT ({_WAITS_FOR_ITS_TASK}) ORDER BY id LIMIT $2
    ) AS chunk
"""  # noqa: S608 - constants of ours
_COPIES = f"""
    SELECT max(repo * {_WORKERS} + worker), string_agg(CAST(repo AS TEXT), ','),
        string_agg(CAST(facts AS TEXT), ','), string_agg(CAST(since AS TEXT), ',')
    FROM (
        SELECT repo, worker, CAST(since AS BIGINT) AS since,
            ((CAST(reason AS BIGINT) * 256 + state) * 256 + coalesce(rank, {UNWANTED})) * {_WORKERS} + worker
                AS facts
        FROM copies WHERE (repo, worker) > ($1, $2) ORDER BY repo, worker LIMIT $3
    ) AS chunk
"""  # noqa: S608 - constants of ours


def _worker_out(row: rows.Row) -> WorkerRecord:
    return WorkerRecord(
        id=WorkerId(row.id),
        facts=WorkerFacts(row.name, row.trusted, row.weight, row.capacity),
        liveness=Liveness(row.liveness),
        duty=Duty(row.duty),
        joined_at=row.joined_at,
        last_alive_at=row.last_alive_at,
        flap_score=row.flap_score,
        flap_at=row.flap_at,
        history=tuple((at, word) for at, word in rows.json_out(row.history)),
    )
