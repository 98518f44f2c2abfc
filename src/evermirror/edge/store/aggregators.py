"""Aggregators that joined, and what others are told when one comes or stays away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from evermirror.core.events.of_turns import aggregator_turned
from evermirror.edge.store import events, rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.tables import aggregators
from evermirror.edge.store.whole import whole
from evermirror.model.worker import AggregatorRecord, Liveness

_COLUMNS = tuple(column.name for column in aggregators.c)


class AggregatorStore(StorePart):
    async def aggregators(self) -> tuple[AggregatorRecord, ...]:
        """In the order in which they joined."""
        return await whole(_all(self._db))

    async def put_aggregator(self, record: AggregatorRecord) -> None:
        """In the place of what was known; with the events that follow from the difference."""
        if await whole(_put(self._db, record, self._clock())):
            self.on_event()

    async def drop_aggregators(self, token_ids: Sequence[int]) -> None:
        """Nothing is remembered of these, and nobody is told."""
        await whole(_drop(self._db, token_ids))


async def _all(db: Database) -> tuple[AggregatorRecord, ...]:
    query = sa.select(aggregators).order_by(aggregators.c.joined_at, aggregators.c.token_id)
    async with db.read() as c:
        return tuple(_record_out(row) for row in await c.execute(query))


async def _put(db: Database, record: AggregatorRecord, now: float) -> int:
    insert = db.insert(aggregators)
    put = insert.on_conflict_do_update(
        index_elements=["token_id"],
        set_={name: insert.excluded[name] for name in _COLUMNS if name != "token_id"},
    )
    async with db.write() as c:
        known = (
            await c.execute(sa.select(aggregators).where(aggregators.c.token_id == record.token_id))
        ).first()
        before = None if known is None else _record_out(known)
        await c.execute(put, _record_in(record))
        return await events.append(c, aggregator_turned(before, record, now), now)


async def _drop(db: Database, token_ids: Sequence[int]) -> None:
    async with db.write() as c:
        one = aggregators.delete().where(aggregators.c.token_id == sa.bindparam("gone"))
        await c.execute(one, [{"gone": token_id} for token_id in token_ids])


def _record_in(record: AggregatorRecord) -> dict[str, Any]:
    return {
        "token_id": record.token_id,
        "name": rows.free_text(record.name),
        "http_url": rows.free_text(record.http_url),
        "relay": rows.free_text(record.relay),
        "version": rows.free_text(record.version),
        "liveness": record.liveness.value,
        "retired": record.retired,
        "joined_at": record.joined_at,
        "last_alive_at": record.last_alive_at,
        "history": rows.json_in(record.history),
    }


def _record_out(row: rows.Row) -> AggregatorRecord:
    return AggregatorRecord(
        token_id=row.token_id,
        name=row.name,
        http_url=row.http_url,
        relay=row.relay,
        version=row.version,
        liveness=Liveness(row.liveness),
        retired=row.retired,
        joined_at=row.joined_at,
        last_alive_at=row.last_alive_at,
        history=tuple((at, word) for at, word in rows.json_out(row.history)),
    )
