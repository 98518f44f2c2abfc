"""The course of pull mirroring: how far projects were at times, all and by class, and what sources bore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.columns import count_in
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import pull_course, pull_course_classes
from evermirror.model.figures import ClassProgress, Pressure, ProgressNote
from evermirror.model.pull import Load, LoadLevel
from evermirror.model.repo import Priority

COURSE_MAX = 10_000  # points told at once: five weeks, one each five minutes

_FIGURES = tuple(c.name for c in pull_course_classes.c if c.name not in ("at", "priority"))


async def note(db: Database, noted: ProgressNote) -> None:
    """Of two at the same time the last counts."""
    point = {"at": noted.at} | _figures_in(noted.overall) | _pressure_in(noted.pressure)
    classes = [
        {"at": noted.at, "priority": priority.value} | _figures_in(progress)
        for priority, progress in noted.classes.items()
    ]
    async with db.write() as c:
        await _put(db, c, pull_course, [point])
        await c.execute(pull_course_classes.delete().where(pull_course_classes.c.at == noted.at))
        await _put(db, c, pull_course_classes, classes)


async def _put(db: Database, c: AsyncConnection, table: sa.Table, values: list[dict[str, Any]]) -> None:
    if values:
        insert = db.insert(table)
        key = [column.name for column in table.primary_key]
        replaced = {name: insert.excluded[name] for name in values[0] if name not in key}
        await c.execute(insert.on_conflict_do_update(index_elements=key, set_=replaced), values)


async def course(db: Database, begin: float, end: float) -> tuple[ProgressNote, ...]:
    """Oldest first; of very many the newest."""
    query = (
        sa.select(pull_course)
        .where(pull_course.c.at >= begin, pull_course.c.at < end)
        .order_by(pull_course.c.at.desc())
        .limit(COURSE_MAX)
    )
    classes = sa.select(pull_course_classes)
    async with db.read() as c:
        found = (await c.execute(query)).all()
        if not found:
            return ()
        told = pull_course_classes.c.at.between(found[-1].at, found[0].at)
        by_time = _by_time(await c.execute(classes.where(told)))
    return tuple(
        ProgressNote(row.at, _figures_out(row), by_time.get(row.at, {}), _pressure_out(row))
        for row in reversed(found)
    )


def _by_time(found: Iterable[rows.Row]) -> dict[float, dict[Priority, ClassProgress]]:
    by_time: dict[float, dict[Priority, ClassProgress]] = {}
    for row in found:
        by_time.setdefault(row.at, {})[Priority(row.priority)] = _figures_out(row)
    return by_time


async def forget(db: Database, older_than: float) -> None:
    async with db.write() as c:
        for table in (pull_course, pull_course_classes):
            await c.execute(table.delete().where(table.c.at < older_than))


def _figures_in(progress: ClassProgress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in _FIGURES}


def _figures_out(row: rows.Row) -> ClassProgress:
    return ClassProgress(**{name: getattr(row, name) for name in _FIGURES})


def _pressure_in(pressure: Pressure | None) -> dict[str, Any]:
    if pressure is None:
        return dict.fromkeys(_PRESSURE)
    load = pressure.load
    return {
        "slots": pressure.limit,
        "running": pressure.running,
        "queued": pressure.queued,
        "load_level": None if load is None else load.level.value,
        "load_reason": None if load is None else rows.free_text(load.reason),
        "looks": count_in(pressure.looks),
        "source_s": pressure.source_s,
        "received_bytes": count_in(pressure.received_bytes),
    }


_PRESSURE = (
    "slots", "running", "queued", "load_level", "load_reason", "looks", "source_s", "received_bytes",
)  # fmt: skip


def _pressure_out(row: rows.Row) -> Pressure | None:
    if row.slots is None:
        return None
    level, reason = row.load_level, row.load_reason
    return Pressure(
        limit=row.slots,
        running=row.running,
        queued=row.queued,
        load=None if level is None else Load(LoadLevel(level), reason or ""),
        looks=row.looks,
        source_s=row.source_s,
        received_bytes=row.received_bytes,
    )
