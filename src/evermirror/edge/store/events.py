"""Events as they are put down and read back; who follows them asks for what comes after a number.

Numbers are given in the transaction that makes the event so; writers take turns (database.py), so numbers
become visible in their order: who has seen all up to one misses nothing by asking for what comes after. They
are the time of their transaction in microseconds, or the next free one, so that old ones are known by their
number; those given while a clock was ahead are kept until that time has come, or there are too many. The
newest is never removed, and the first is above the time of the first start: numbers that another database
gave out are below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.changes import MICROSECONDS
from evermirror.edge.store.database import Database
from evermirror.edge.store.news_tables import events
from evermirror.edge.store.tables import repos, settings
from evermirror.model.event import Event, EventId, NewEvent
from evermirror.model.repo import RepoKey

PAGE_MAX = 1000  # read at once
CLEAN_CHUNK = 5000  # removed in one transaction, so that no other writer waits for long
GONE = "events.gone"  # a key among the settings: the highest number that was removed
BEGAN = "events.began"  # another: the number from which on this database gave them out
ID_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EventPage:
    """``gone``: everything up to this number was removed, or is no longer certain to be there. ``began``:
    whoever has a lower number has it of another database, or of a time that a backup knows nothing of."""

    events: tuple[Event, ...]
    gone: EventId
    began: EventId


async def append(c: AsyncConnection, news: Sequence[NewEvent], now: float) -> int:
    """Within a transaction; returns how many."""
    if not news:
        return 0
    first = max(await _highest(c), int(now * MICROSECONDS)) + 1
    await c.execute(_INSERT, [_row_in(new, first + n) for n, new in enumerate(news)])
    return len(news)


async def begin(db: Database, now: float) -> None:
    """At the first start with this database; later ones change nothing."""
    async with db.read() as c:
        if await _setting(c, BEGAN):
            return
    started = {"key": BEGAN, "value": rows.json_in(max(1, int(now * MICROSECONDS)))}
    async with db.write() as c:
        await c.execute(db.insert(settings).on_conflict_do_nothing(index_elements=["key"]), started)


async def after(db: Database, number: int, limit: int) -> EventPage:
    """The next events after this number, oldest first."""
    query = _READ.where(events.c.id > min(max(number, -1), ID_MAX)).order_by(events.c.id)
    query = query.limit(max(0, min(limit, PAGE_MAX)))
    async with db.read() as c:
        found = tuple(_event_out(row) for row in await c.execute(query))
        return EventPage(found, await _setting(c, GONE), await _setting(c, BEGAN))


async def before(db: Database, number: int, limit: int) -> tuple[Event, ...]:
    """Those before this number, newest first."""
    query = _READ.where(events.c.id < min(max(number, 0), ID_MAX)).order_by(events.c.id.desc())
    async with db.read() as c:
        found = await c.execute(query.limit(max(0, min(limit, PAGE_MAX))))
        return tuple(_event_out(row) for row in found)


async def latest(db: Database) -> EventId:
    """The highest number; where there never was an event, the one from which on there will be."""
    async with db.read() as c:
        return EventId(await _highest(c))


async def clean(db: Database, before: float, keep: int) -> int:
    """Removes what is older than this time, and all but the newest ``keep``; returns how many."""
    newest = sa.select(events.c.id).order_by(events.c.id.desc())
    async with db.read() as c:
        last = (await c.execute(_LAST)).scalar_one() or 0
        beyond = (await c.execute(newest.offset(max(1, keep)).limit(1))).scalar_one_or_none() or 0
    bound = min(max(int(before * MICROSECONDS), beyond), last - 1)
    old = sa.select(events.c.id).where(events.c.id <= bound).order_by(events.c.id).limit(CLEAN_CHUNK)
    total = 0
    while True:
        async with db.write() as c:
            upto = (await c.execute(sa.select(sa.func.max(old.subquery().c.id)))).scalar_one()
            if upto is None:
                return total
            total += (await c.execute(events.delete().where(events.c.id <= upto))).rowcount
            await _note_gone(db, c, upto)


async def _highest(c: AsyncConnection) -> int:
    return max((await c.execute(_LAST)).scalar_one() or 0, await _setting(c, BEGAN))


async def _setting(c: AsyncConnection, key: str) -> EventId:
    value = (await c.execute(sa.select(settings.c.value).where(settings.c.key == key))).scalar_one_or_none()
    return EventId(int(rows.json_out(value) or 0))


async def _note_gone(db: Database, c: AsyncConnection, upto: int) -> None:
    insert = db.insert(settings)
    statement = insert.on_conflict_do_update(index_elements=["key"], set_={"value": insert.excluded.value})
    await c.execute(statement, {"key": GONE, "value": rows.json_in(upto)})


def _row_in(new: NewEvent, number: int) -> dict[str, object]:
    return {
        "id": number,
        "type": new.type.value,
        "at": new.at,
        "repo": new.repo if new.repo is not None and rows.storable(new.repo) else None,
        "worker": None if new.worker is None else rows.free_text(new.worker),
        "data": rows.json_in(dict(new.data)),
        "p_about": new.repo if new.repo is not None and rows.storable(new.repo) else "",
    }


def _event_out(row: rows.Row) -> Event:
    return Event(
        id=EventId(row.id),
        type=row.type,
        at=row.at,
        repo=None if row.repo is None else RepoKey(row.repo),
        worker=row.worker,
        data=rows.json_out(row.data),
        public=row.private_now is not None and not row.private_now and not row.private,
        size=len(row.data),
    )


_LAST = sa.select(sa.func.max(events.c.id))
_READ = sa.select(events, repos.c.private.label("private_now")).select_from(
    events.outerjoin(repos, repos.c.key == events.c.repo)
)
_THEN = sa.select(repos.c.private).where(repos.c.key == sa.bindparam("p_about")).scalar_subquery()
_INSERT = events.insert().values(private=sa.func.coalesce(_THEN, sa.true()))
