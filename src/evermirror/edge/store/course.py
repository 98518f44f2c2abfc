"""The course of the whole: how fresh repos of each class were at times, and what workers did between."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.columns import count_in
from evermirror.edge.store.course_tables import course, course_classes
from evermirror.edge.store.database import Database
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.whole import whole
from evermirror.model.repo import Priority
from evermirror.model.whole import ClassFreshness, CoursePoint, Work

COURSE_MAX = 10_000  # points told at once: five weeks, one each five minutes


class CourseStore(StorePart):
    async def note_course(self, point: CoursePoint, forget_before: float) -> None:
        """Of two at the same time the last counts. What is older than ``forget_before`` goes."""
        await whole(_note(self._db, point, forget_before))

    async def course(self, begin: float, end: float) -> tuple[CoursePoint, ...]:
        """Oldest first; of very many the newest."""
        return await whole(_course(self._db, begin, end))


async def _note(db: Database, point: CoursePoint, forget_before: float) -> None:
    classes = [
        {"at": point.at, "priority": p.value, "live": o.live, "fresh": o.fresh, "worst_lag_s": o.worst_lag_s}
        for p, o in point.classes.items()
    ]
    async with db.write() as c:
        for table in (course, course_classes):
            await c.execute(table.delete().where(sa.or_(table.c.at < forget_before, table.c.at == point.at)))
        await c.execute(course.insert(), _point_in(point))
        if classes:
            await c.execute(course_classes.insert(), classes)


def _point_in(point: CoursePoint) -> dict[str, Any]:
    work = point.work
    return {
        "at": point.at,
        "failing": point.failing,
        "polls": None if work is None else count_in(work.polls),
        "changes": None if work is None else count_in(work.changes),
        "received_bytes": None if work is None else count_in(work.received_bytes),
    }


async def _course(db: Database, begin: float, end: float) -> tuple[CoursePoint, ...]:
    points = (
        sa.select(course)
        .where(course.c.at >= begin, course.c.at < end)
        .order_by(course.c.at.desc())
        .limit(COURSE_MAX)
    )
    async with db.read() as c:
        found = (await c.execute(points)).all()
        if not found:
            return ()
        told = course_classes.c.at.between(found[-1].at, found[0].at)
        by_time: dict[float, dict[Priority, ClassFreshness]] = {}
        for row in await c.execute(sa.select(course_classes).where(told)):
            one = ClassFreshness(row.live, row.fresh, row.worst_lag_s)
            by_time.setdefault(row.at, {})[Priority(row.priority)] = one
    return tuple(
        CoursePoint.of(row.at, by_time.get(row.at, {}), row.failing, _work_out(row))
        for row in reversed(found)
    )


def _work_out(row: rows.Row) -> Work | None:
    return None if row.polls is None else Work(row.polls, row.changes, row.received_bytes)
