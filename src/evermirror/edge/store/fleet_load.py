"""What the fleet's machine starts from: a million repos and where they are, read in columns into its tables.

Rows are read some thousands at a time with the bare driver and put into the tables at once, so that nothing
but the tables grows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.fleet.copies import UNWANTED
from evermirror.core.fleet.decisions import PutLease, ReportTaken
from evermirror.core.fleet.letters import Letters
from evermirror.core.fleet.restoring import Tables
from evermirror.core.fleet.views import Restored
from evermirror.edge.store import rows
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import copies, leases, reports_taken, repos, workers
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId, WorkerRecord

CHUNK = 4_000  # rows read at once: some MB


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
    given = [PutLease(row.task, row.worker, row.until) for row in await c.execute(sa.select(leases))]
    if db.is_sqlite:
        await c.exec_driver_sql("PRAGMA shrink_memory")  # pages that nobody reads again soon
    return Restored(workers=known, reports=reports, leases=given, tables=tables)


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
    async for chunk in _chunks(db, c, _REPOS, (0,)):
        numbers, keys, trusted_only, salts, pins, left = zip(*chunk, strict=True)
        own = {i: rows.texts_out(text) for i, text in enumerate(pins) if text is not None}
        at = tables.put_repos(keys, np.array(trusted_only, np.bool_), np.array(salts, np.uint8), own)
        tables.remove(at[np.array(left, np.bool_)])
        ids.append(np.array(numbers, np.int64))
        places.append(at)
    return np.concatenate(ids), np.concatenate(places)


async def _load_copies(
    db: Database, c: AsyncConnection, tables: Tables, ids: NDArray[np.int64], places: NDArray[np.int32]
) -> None:
    if not len(ids):
        return
    async for chunk in _chunks(db, c, _COPIES, (0, -1)):
        of, on, ranks, states, reasons, since = zip(*chunk, strict=True)
        numbers = np.array(of, np.int64)
        at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
        tables.put_copies(
            np.where(ids[at] == numbers, places[at], -1).astype(np.int32),
            np.array(on, np.uint16),
            np.array(ranks, np.uint8),
            np.array(states, np.uint8),
            np.array(reasons, np.uint8),
            np.array(since, np.uint32),
        )


async def _chunks(
    db: Database, c: AsyncConnection, query: str, after: tuple[Any, ...]
) -> AsyncIterator[Sequence[Sequence[Any]]]:
    """Rows behind ``after``, which is the beginning of a row; each chunk begins where the last one ended."""
    driver = (await c.get_raw_connection()).driver_connection
    assert driver is not None  # noqa: S101 - the connection is open
    width = len(after)
    while True:
        if db.is_sqlite:
            chunk = await driver.execute_fetchall(query.replace("$", "?"), (*after, CHUNK))
        else:
            chunk = await driver.fetch(query, *after, CHUNK)
        if not chunk:
            return
        last = chunk[-1]
        after = tuple(last[i] for i in range(width))
        yield chunk


_REPOS = """
    SELECT id, key,
        private OR credential IS NOT NULL OR (pulled AND EXISTS (
            SELECT 1 FROM pull_targets AS t WHERE t.repo = repos.id AND t.credential IS NOT NULL
        )),
        salt, nullif(pins, '[]'), removed_at IS NOT NULL
    FROM repos WHERE id > $1 ORDER BY id LIMIT $2
"""
_COPIES = f"""
    SELECT repo, worker, coalesce(rank, {UNWANTED}), state, reason, CAST(since AS BIGINT)
    FROM copies WHERE (repo, worker) > ($1, $2) ORDER BY repo, worker LIMIT $3
"""  # noqa: S608 - a constant of ours


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
