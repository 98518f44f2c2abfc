"""Writes of the fleet's machine: of those to the same row the last counts, and alike ones go together.

What the machine writes (workers, copies, salts, reports taken) touches no column that other writes of
a batch touch. So a batch of thousands of decisions is gathered here into a few statements, while the rest of
it goes its own way in the same transaction. A first placement of a million copies is gathered and written in
parts, so that it is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.events.of_turns import WorkerBefore, worker_turned
from evermirror.core.fleet.decisions import (
    CopyRow,
    DropCopies,
    PutCopies,
    PutSalt,
    PutWorker,
    ReportTaken,
    Write,
)
from evermirror.core.fleet.inbox import GENERATIONS
from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import reports_taken, repos, workers
from evermirror.edge.store.writes import WorkerBound
from evermirror.model.event import NewEvent
from evermirror.model.worker import Duty, Liveness, WorkerId, WorkerRecord

COPIES_AT_ONCE = 5000  # rows made and written together: the loop is held up for some 10 ms each

CopyKey = tuple[str, int]
Values = tuple[Any, ...]


class FleetWrites:
    """``take`` each write in order, and ``flush`` at the end; all on one connection, in its transaction."""

    def __init__(self, db: Database, connection: AsyncConnection) -> None:
        self._db = db
        self._c = connection
        self._copies: dict[CopyKey, CopyRow | None] = {}  # None: dropped
        self._salts: dict[str, int] = {}
        self._workers: dict[WorkerId, WorkerRecord] = {}
        self._turns: list[WorkerRecord] = []  # each as it was told, in order
        self._retired: dict[WorkerId, None] = {}
        self._bound: dict[WorkerId, int] = {}  # to a token
        self._reports: dict[tuple[WorkerId, int], int] = {}  # the one taken from last at the end

    async def take(self, write: Write) -> None:
        match write:
            case PutCopies(rows=copies):
                for part in _parts(copies):
                    self._copies.update({(copy.key, copy.worker): copy for copy in part})
                    await self._flush_if_many()
            case DropCopies(copies=dropped):
                for begin in range(0, len(dropped), COPIES_AT_ONCE):
                    self._copies.update(dict.fromkeys(dropped[begin : begin + COPIES_AT_ONCE]))
                    await self._flush_if_many()
            case PutSalt(key=key, salt=salt):
                self._salts[key] = salt
            case PutWorker(record=record):
                self._put_worker(record)
            case ReportTaken(worker=worker, generation=generation, seq=seq):
                self._reports.pop((worker, generation), None)
                self._reports[worker, generation] = seq

    def bind(self, write: WorkerBound) -> None:
        self._bound = {w: t for w, t in self._bound.items() if t != write.token_id}
        self._bound[write.worker] = write.token_id

    def _put_worker(self, record: WorkerRecord) -> None:
        before = self._workers.get(record.id)
        if before is not None and before.joined_at != record.joined_at:
            self._bound.pop(record.id, None)
        self._workers[record.id] = record
        self._turns.append(record)
        if record.duty is Duty.RETIRED:
            # The next one with this id is another worker, whose reports begin anew.
            self._retired[record.id] = None
            self._reports = {which: seq for which, seq in self._reports.items() if which[0] != record.id}

    async def news(self, now: float) -> list[NewEvent]:
        """What others are told of the workers that were taken; to be asked before ``flush``."""
        if not self._turns:
            return []
        query = sa.select(workers.c.id, workers.c.liveness, workers.c.duty, workers.c.joined_at)
        found = await self._c.execute(query.where(workers.c.id.in_(self._workers)))
        before = {
            row.id: WorkerBefore(Liveness(row.liveness), Duty(row.duty), row.joined_at) for row in found
        }
        told: list[NewEvent] = []
        for record in self._turns:
            told += worker_turned(before.get(record.id), record, now)
            before[record.id] = WorkerBefore(record.liveness, record.duty, record.joined_at)
        return told

    async def flush(self) -> None:
        await self._flush_copies()
        await self._flush_workers()
        await self._flush_reports()
        await self._many(_PUT_SALT, [{"p_key": k, "p_salt": s} for k, s in self._salts.items()])

    async def _flush_if_many(self) -> None:
        if len(self._copies) >= COPIES_AT_ONCE:
            await self._flush_copies()

    async def _flush_copies(self) -> None:
        put = [
            (c.key, c.worker, c.rank, int(c.state), int(c.reason), c.since_s)  # a driver is slow with enums
            for c in self._copies.values()
            if c is not None
        ]
        dropped = [which for which, copy in self._copies.items() if copy is None]
        self._copies.clear()
        await self._arrays(_PUT_COPIES, put)
        await self._arrays(_DROP_COPIES, dropped)

    async def _flush_workers(self) -> None:
        await self._many(_FORGET_REPORTS, [{"p_worker": worker} for worker in self._retired])
        if self._workers:
            insert = self._db.insert(workers)
            # Another worker may have had this id: its token says nothing of the new one.
            same = workers.c.joined_at == insert.excluded.joined_at
            put = insert.on_conflict_do_update(
                index_elements=["id"],
                set_={name: insert.excluded[name] for name in _WORKER if name != "id"}
                | {"token_id": sa.case((same, workers.c.token_id), else_=None)},
            )
            await self._c.execute(put, [_worker_in(record) for record in self._workers.values()])
        bound = [{"p_worker": worker, "p_token": token} for worker, token in self._bound.items()]
        await self._many(_UNBIND, bound)
        await self._many(_BIND, bound)

    async def _flush_reports(self) -> None:
        taken = [
            {"worker": worker, "generation": generation, "sequence": seq, "p_worker": worker}
            for (worker, generation), seq in self._reports.items()
        ]
        if not taken:
            return
        insert = self._db.insert(reports_taken)
        insert = insert.values(
            {n: sa.bindparam(n) for n in ("worker", "generation", "sequence")} | {"taken": _NEXT}
        )
        new = {n: insert.excluded[n] for n in ("sequence", "taken")}
        await self._c.execute(
            insert.on_conflict_do_update(index_elements=["worker", "generation"], set_=new), taken
        )
        of = dict.fromkeys(worker for worker, _ in self._reports)
        await self._many(_DROP_OLD_GENERATIONS, [{"p_worker": worker} for worker in of])

    async def _many(self, statement: sa.Update | sa.Delete, params: list[dict[str, Any]]) -> None:
        if params:
            await self._c.execute(statement, params)

    async def _arrays(self, statement: _Bulk, values: Sequence[Values]) -> None:
        """Very many rows, in the form that each engine is quickest at: one by one in C, or as columns."""
        if not values:
            return
        if self._db.is_sqlite:
            await self._c.exec_driver_sql(statement.rows, list(values))
        else:
            await self._c.exec_driver_sql(statement.columns, tuple(map(list, zip(*values, strict=True))))


def _parts(copies: Sequence[CopyRow]) -> Iterator[Sequence[CopyRow]]:
    """The rows of a first placement are made as they are looked at: here, between two statements."""
    for begin in range(0, len(copies), COPIES_AT_ONCE):
        yield copies[begin : begin + COPIES_AT_ONCE]


def _worker_in(record: WorkerRecord) -> dict[str, Any]:
    facts = record.facts
    return {
        "id": record.id,
        "name": rows.free_text(facts.name),
        "trusted": facts.trusted,
        "weight": facts.weight,
        "capacity": facts.capacity,
        "liveness": record.liveness.value,
        "duty": record.duty.value,
        "joined_at": record.joined_at,
        "last_alive_at": record.last_alive_at,
        "flap_score": record.flap_score,
        "flap_at": record.flap_at,
        "history": rows.json_in(record.history),
    }


_WORKER = tuple(column.name for column in workers.c if column.name != "token_id")


class _Bulk:
    """A statement as each engine takes many rows."""

    def __init__(self, *, rows: str, columns: str) -> None:
        self.rows = rows
        self.columns = columns


# A repo is told by its key and kept by its number. One that the catalog never had is kept nowhere.
_PUT_COPIES = _Bulk(
    rows="""
        INSERT INTO copies (repo, worker, rank, state, reason, since)
        SELECT id, ?2, ?3, ?4, ?5, ?6 FROM repos WHERE key = ?1
        ON CONFLICT (repo, worker) DO UPDATE SET
            rank = excluded.rank, state = excluded.state, reason = excluded.reason, since = excluded.since
    """,
    columns="""
        INSERT INTO copies (repo, worker, rank, state, reason, since)
        SELECT id, put.worker, put.rank, put.state, put.reason, put.since
        FROM unnest($1::text[], $2::int[], $3::smallint[], $4::smallint[], $5::smallint[], $6::float8[])
            AS put (key, worker, rank, state, reason, since)
        JOIN repos ON repos.key = put.key
        ON CONFLICT (repo, worker) DO UPDATE SET
            rank = excluded.rank, state = excluded.state, reason = excluded.reason, since = excluded.since
    """,
)
_DROP_COPIES = _Bulk(
    rows="DELETE FROM copies WHERE repo = (SELECT id FROM repos WHERE key = ?1) AND worker = ?2",
    columns="""
        DELETE FROM copies USING unnest($1::text[], $2::int[]) AS gone (key, worker), repos
        WHERE repos.key = gone.key AND copies.repo = repos.id AND copies.worker = gone.worker
    """,
)

_P_WORKER = sa.bindparam("p_worker", type_=sa.Integer())
_PUT_SALT = repos.update().where(repos.c.key == sa.bindparam("p_key")).values(salt=sa.bindparam("p_salt"))
_UNBIND = (
    workers.update()
    .where(workers.c.token_id == sa.bindparam("p_token"), workers.c.id != _P_WORKER)
    .values(token_id=None)
)
_BIND = workers.update().where(workers.c.id == _P_WORKER).values(token_id=sa.bindparam("p_token"))
_FORGET_REPORTS = reports_taken.delete().where(reports_taken.c.worker == _P_WORKER)
_THE_WORKERS = reports_taken.c.worker == _P_WORKER
_NEXT = (
    sa.select(sa.func.coalesce(sa.func.max(reports_taken.c.taken), 0) + 1)
    .where(_THE_WORKERS)
    .scalar_subquery()
)
_OLDEST_KEPT = (
    sa.select(reports_taken.c.taken)
    .where(_THE_WORKERS)
    .order_by(reports_taken.c.taken.desc())
    .limit(1)
    .offset(GENERATIONS - 1)
    .scalar_subquery()
)
_DROP_OLD_GENERATIONS = reports_taken.delete().where(_THE_WORKERS, reports_taken.c.taken < _OLDEST_KEPT)
