"""Questions and changes about alerts: what stands, what was, what was sent of it, and who wants silence.

Rows are written whole, by their ids, so that writing the same again changes nothing. Ids are given out by the
alerts' mind, from above every one that was ever given: what is deleted here is remembered by its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.events.of_turns import alert_turned
from evermirror.core.watch.events import (
    AlertSaved,
    AlertWrite,
    NoticeSaved,
    RestoredAlerts,
    SilenceRemoved,
    SilenceSaved,
)
from evermirror.edge.store import alert_rows, events, rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.pull import bounds
from evermirror.edge.store.tables import settings
from evermirror.edge.store.tasks import AT_ONCE, CLEANUP_CHUNK, ID_MAX
from evermirror.edge.store.watch_tables import STANDS, WAITS, alert_notices, alert_silences, alerts
from evermirror.model.alert import AlertId, AlertRecord, Level, Notice, NoticeId, SilenceId
from evermirror.model.event import NewEvent

GIVEN = "alerts.given"  # its key among the settings: the highest ids of what was deleted
RECENT_S = 60.0  # what was sent so long ago counts for a channel's rate
NOTICES_MAX = 1000  # of one alert that are told

_TABLES = {"alert": alerts, "notice": alert_notices, "silence": alert_silences}


class AlertSelection(Protocol):
    """Which alerts a list shows. ``level``: at least; ``about``: a part of it; the times are of its begin."""

    @property
    def standing(self) -> bool | None: ...
    @property
    def level(self) -> Level | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def begin(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...
    @property
    def page(self) -> int: ...
    @property
    def size(self) -> int: ...


# Read


async def load(db: Database, now: float) -> RestoredAlerts:
    """What the mind starts from; a test of a channel is nothing to it."""
    told = alert_notices.c.alert.in_(sa.select(alerts.c.id).where(STANDS))
    recent = [alert_notices.c[name] >= now - RECENT_S for name in ("sent_at", "given_up_at")]
    waited_for = sa.select(alert_notices.c.alert).where(WAITS)
    async with db.read() as c:
        standing = await c.execute(sa.select(alerts).where(STANDS).order_by(alerts.c.id))
        ended = await c.execute(
            sa.select(alerts).where(sa.not_(STANDS), alerts.c.id.in_(waited_for)).order_by(alerts.c.id)
        )
        notices = await c.execute(
            sa.select(alert_notices)
            .where(alert_notices.c.alert.is_not(None), sa.or_(WAITS, told, *recent))
            .order_by(alert_notices.c.id)
        )
        silences = await c.execute(sa.select(alert_silences).order_by(alert_silences.c.id))
        given = await _given(c)
        return RestoredAlerts(
            standing=tuple(alert_rows.record_out(row) for row in standing),
            ended=tuple(alert_rows.record_out(row) for row in ended),
            silences=tuple(alert_rows.silence_out(row) for row in silences),
            notices=tuple(alert_rows.notice_out(row) for row in notices),
            next_alert_id=AlertId(given["alert"] + 1),
            next_notice_id=NoticeId(given["notice"] + 1),
            next_silence_id=SilenceId(given["silence"] + 1),
        )


async def page(db: Database, which: AlertSelection) -> tuple[tuple[AlertRecord, ...], int]:
    """Newest first, and how many there are."""
    if not (rows.storable(which.kind) and rows.storable(which.about)):
        return (), 0  # no stored text is like that
    count, begin = bounds(which.page, which.size)
    where = _chosen(which)
    listed = sa.select(alerts).where(*where).order_by(alerts.c.id.desc()).limit(count).offset(begin)
    async with db.read() as c:
        found = tuple(alert_rows.record_out(row) for row in await c.execute(listed))
        total = (await c.execute(sa.select(sa.func.count()).select_from(alerts).where(*where))).scalar_one()
    return found, int(total)


def _chosen(which: AlertSelection) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = []
    if which.standing is not None:
        where.append(STANDS if which.standing else sa.not_(STANDS))
    if which.level is not None:
        levels = [level.value for level in Level if level.rank >= which.level.rank]
        where.append(alerts.c.level.in_(levels))
    if which.kind:
        where.append(alerts.c.kind == which.kind)
    if which.about:
        where.append(alerts.c.about.icontains(which.about, autoescape=True))
    if which.begin is not None:
        where.append(alerts.c.raised_at >= which.begin)
    if which.end is not None:
        where.append(alerts.c.raised_at < which.end)
    return where


async def find(db: Database, alert: AlertId) -> tuple[AlertRecord, tuple[Notice, ...]] | None:
    """With its notices, oldest first; of very many the newest."""
    if not 0 <= alert <= ID_MAX:
        return None
    told = (
        sa.select(alert_notices)
        .where(alert_notices.c.alert == alert)
        .order_by(alert_notices.c.id.desc())
        .limit(NOTICES_MAX)
    )
    async with db.read() as c:
        row = (await c.execute(sa.select(alerts).where(alerts.c.id == alert))).one_or_none()
        if row is None:
            return None
        notices = (await c.execute(told)).all()
    return alert_rows.record_out(row), tuple(alert_rows.notice_out(n) for n in reversed(notices))


# Write


async def save(db: Database, writes: Sequence[AlertWrite], now: float) -> int:
    """All or nothing; of several about the same row the last counts. Returns how many events others are told
    of it."""
    last = {_row_of(write): write for write in writes}
    records = [alert_rows.record_in(w.record) for w in last.values() if isinstance(w, AlertSaved)]
    notices = [alert_rows.notice_in(w.notice) for w in last.values() if isinstance(w, NoticeSaved)]
    silences = [alert_rows.silence_in(w.silence) for w in last.values() if isinstance(w, SilenceSaved)]
    removed = [w.id for w in last.values() if isinstance(w, SilenceRemoved)]
    async with db.write() as c:
        told = await _turns(c, [w.record for w in writes if isinstance(w, AlertSaved)])
        await _put(db, c, alerts, records)
        await _put(db, c, alert_notices, notices)
        await _put(db, c, alert_silences, silences)
        if removed:
            await _remember_given(db, c)
            await c.execute(alert_silences.delete().where(alert_silences.c.id.in_(removed)))
        return await events.append(c, told, now)


async def _turns(c: AsyncConnection, records: Sequence[AlertRecord]) -> list[NewEvent]:
    """Which of them began or ended, as against what is stored; each may be there several times."""
    ids = list({record.id for record in records})
    standing: set[int] = set()
    for begin in range(0, len(ids), AT_ONCE):
        query = sa.select(alerts.c.id).where(alerts.c.id.in_(ids[begin : begin + AT_ONCE]), STANDS)
        standing.update(await c.scalars(query))
    told: list[NewEvent] = []
    for record in records:
        event = alert_turned(record, stood=record.id in standing)
        if event is not None:
            told.append(event)
        (standing.add if record.stands else standing.discard)(record.id)
    return told


def _row_of(write: AlertWrite) -> tuple[str, int]:
    match write:
        case AlertSaved(record):
            return "alert", record.id
        case NoticeSaved(notice):
            return "notice", notice.id
        case SilenceSaved(silence):
            return "silence", silence.id
        case SilenceRemoved(silence_id):
            return "silence", silence_id


async def _put(
    db: Database, c: AsyncConnection, table: sa.Table, values: Sequence[Mapping[str, Any]]
) -> None:
    if values:
        insert = db.insert(table)
        replaced = {name: insert.excluded[name] for name in values[0] if name != "id"}
        await c.execute(insert.on_conflict_do_update(index_elements=["id"], set_=replaced), values)


async def clean(db: Database, before: float) -> int:
    """Alerts that ended before this time, with their notices, and silences; returns how many alerts. What
    still is to be sent stays, and so does its alert."""
    waited_for = sa.select(alert_notices.c.alert).where(WAITS, alert_notices.c.alert.is_not(None))
    kept = sa.exists().where(alerts.c.id == alert_notices.c.alert)
    removed = await _remove(db, alerts, alerts.c.ended_at < before, alerts.c.id.not_in(waited_for))
    await _remove(db, alert_notices, alert_notices.c.created_at < before, sa.not_(WAITS), sa.not_(kept))
    await _remove(db, alert_silences, alert_silences.c.until < before)
    return removed


async def _remove(db: Database, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    """Some at a time, so that no other writer waits for long; returns how many."""
    old = sa.select(table.c.id).where(*where).limit(CLEANUP_CHUNK).subquery()
    total = 0
    while True:
        async with db.write() as c:
            await _remember_given(db, c)
            count = (await c.execute(table.delete().where(table.c.id.in_(sa.select(old.c.id))))).rowcount
        total += count
        if count < CLEANUP_CHUNK:
            return total


# Ids


async def _given(c: AsyncConnection) -> dict[str, int]:
    """The highest of each that was ever given; 0: none was."""
    query = sa.select(settings.c.value).where(settings.c.key == GIVEN)
    known = rows.json_out((await c.execute(query)).scalar_one_or_none()) or {}
    there = {
        name: (await c.execute(sa.select(sa.func.max(table.c.id)))).scalar_one() or 0
        for name, table in _TABLES.items()
    }
    return {name: max(number, int(known.get(name, 0))) for name, number in there.items()}


async def _remember_given(db: Database, c: AsyncConnection) -> None:
    insert = db.insert(settings)
    statement = insert.on_conflict_do_update(index_elements=["key"], set_={"value": insert.excluded.value})
    await c.execute(statement, {"key": GIVEN, "value": rows.json_in(await _given(c))})
