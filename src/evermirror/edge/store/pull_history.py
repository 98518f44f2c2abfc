"""What happened to projects: pages of tasks and errors with their totals, and figures of a time.

Times are from ``begin`` (inclusive) to ``end`` (exclusive), of a task's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.columns import float_sum
from evermirror.edge.store.database import Database
from evermirror.edge.store.pull import bounds
from evermirror.edge.store.tables import IN_CATALOG, repos, tasks
from evermirror.edge.store.tasks import ID_MAX, LIST_MAX
from evermirror.model.failure import FailureKind
from evermirror.model.figures import PROJECTS_NAMED, ErrorFilter, KindCount, Period
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskId, TaskRecord, TaskStatus

PUBLIC_MAX = 10_000  # errors of all repos that are counted and shown without a token: each costs a look
_AN_ERROR = tasks.c.failure_kind.is_not(None)  # whatever the status: one of two targets may have failed


async def task_page(db: Database, repo: RepoKey, page: int, size: int) -> tuple[tuple[TaskRecord, ...], int]:
    """Newest first, and how many there are."""
    if not rows.storable(repo):
        return (), 0
    return await _page(db, [tasks.c.repo == repo], [tasks.c.id.desc()], page, size)


async def newest_tasks(
    db: Database, status: TaskStatus | None, before: TaskId | None, limit: int
) -> tuple[TaskRecord, ...]:
    """Of all repos, newest first; ``before`` is the id of the last one already seen."""
    query = sa.select(tasks).order_by(tasks.c.id.desc()).limit(max(0, min(limit, LIST_MAX)))
    if status is not None:
        query = query.where(tasks.c.status == status.value)
    if before is not None:
        query = query.where(tasks.c.id < min(before, ID_MAX))
    async with db.read() as c:
        return tuple(rows.task_out(row) for row in await c.execute(query))


async def error_page(
    db: Database, repo: RepoKey | None, which: ErrorFilter, *, public: bool
) -> tuple[tuple[TaskRecord, ...], int]:
    """Of one repo or of all, by the time they ended, newest first; and how many there are. The public sees
    those of repos that are in the catalog, and not private: of all repos the newest PUBLIC_MAX."""
    if repo is not None and not rows.storable(repo):
        return (), 0
    where: list[sa.ColumnElement[bool]] = [_AN_ERROR]
    if repo is not None:
        where.append(tasks.c.repo == repo)
    if which.kind is not None:
        where.append(tasks.c.failure_kind == which.kind.value)
    if which.begin is not None:
        where.append(tasks.c.completed_at >= which.begin)
    if which.end is not None:
        where.append(tasks.c.completed_at < which.end)
    if public:
        where.append(sa.exists().where(repos.c.key == tasks.c.repo, IN_CATALOG, sa.not_(repos.c.private)))
    newest = [tasks.c.completed_at.desc(), tasks.c.id.desc()]
    most = PUBLIC_MAX if public and repo is None else None
    return await _page(db, where, newest, which.page, which.size, most)


async def _page(
    db: Database,
    where: Sequence[sa.ColumnElement[bool]],
    order: Sequence[sa.ColumnElement[Any]],
    page: int,
    size: int,
    most: int | None = None,
) -> tuple[tuple[TaskRecord, ...], int]:
    """``most``: neither looked through nor counted beyond that many."""
    count, begin = bounds(page, size)
    if most is not None:
        count = max(0, min(count, most - begin))
        begin = min(begin, most)
    query = sa.select(tasks).where(*where).order_by(*order).limit(count).offset(begin)
    counted = sa.select(tasks.c.id).where(*where).limit(most).subquery()
    total = sa.select(sa.func.count()).select_from(counted)
    async with db.read() as c:
        found = tuple(rows.task_out(row) for row in await c.execute(query))
        return found, int((await c.execute(total)).scalar_one())


async def error_statistics(db: Database, begin: float, end: float) -> Mapping[FailureKind, KindCount]:
    """Of the tasks of projects. Only kinds that occurred; most frequent first, then by name."""
    by_repo = (
        sa.select(tasks.c.failure_kind, tasks.c.repo, sa.func.count().label("errors"))
        .where(_AN_ERROR, tasks.c.completed_at >= begin, tasks.c.completed_at < end)
        .group_by(tasks.c.failure_kind, tasks.c.repo)
        .subquery()
    )
    kind, errors = by_repo.c.failure_kind, by_repo.c.errors
    most_first = (errors.desc(), by_repo.c.repo)
    ranked = (
        sa.select(
            kind,
            by_repo.c.repo,
            sa.func.sum(errors).over(partition_by=kind).label("total"),
            sa.func.count().over(partition_by=kind).label("affected"),
            sa.func.row_number().over(partition_by=kind, order_by=most_first).label("place"),
        )
        .select_from(by_repo.join(repos, repos.c.key == by_repo.c.repo))
        .where(repos.c.pulled)
        .subquery()
    )
    order = (ranked.c.total.desc(), ranked.c.failure_kind, ranked.c.place)
    query = sa.select(ranked).where(ranked.c.place <= PROJECTS_NAMED).order_by(*order)
    async with db.read() as c:
        found = groupby(await c.execute(query), lambda row: (row.failure_kind, row.total, row.affected))
        return {
            FailureKind(of): KindCount(int(total), affected, tuple(RepoKey(row.repo) for row in group))
            for (of, total, affected), group in found
        }


async def periods(db: Database, begin: float, end: float) -> Mapping[Priority, Period]:
    """By class. A run of looks without a change is one row: where it reaches beyond the time, its share
    counts."""
    begins: sa.ColumnElement[float] = sa.literal(begin, sa.Double())
    ends: sa.ColumnElement[float] = sa.literal(max(begin, end), sa.Double())
    first, last, looks = tasks.c.created_at, tasks.c.completed_at, tasks.c.folded + 1
    inside = sa.and_(last < ends, sa.or_(tasks.c.folded == 0, first >= begins))
    from_, to = sa.case((first > begins, first), else_=begins), sa.case((last < ends, last), else_=ends)
    share = looks * (to - from_) / (last - first)
    query = (
        sa.select(
            tasks.c.priority,
            tasks.c.status,
            sa.func.sum(sa.case((inside, looks), else_=share)),
            float_sum(sa.case((last < ends, tasks.c.changes_count), else_=0)),
        )
        .where(
            tasks.c.priority.in_([p.value for p in Priority]),
            tasks.c.status.in_([s.value for s in TaskStatus if s.ended]),
            last >= begins,
            sa.or_(last < ends, sa.and_(tasks.c.folded > 0, first < ends)),
        )
        .group_by(tasks.c.priority, tasks.c.status)
    )
    async with db.read() as c:
        found = {(row[0], row[1]): (int(row[2] + 0.5), int(row[3])) for row in await c.execute(query)}
    return {priority: _period(begin, end, priority, found) for priority in Priority}


def _period(
    begin: float, end: float, priority: Priority, found: Mapping[tuple[str, str], tuple[int, int]]
) -> Period:
    success, failed, skipped = (
        found.get((priority.value, status.value), (0, 0))
        for status in (TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.SKIPPED)
    )
    return Period(
        begin=begin,
        end=end,
        tasks=success[0] + failed[0] + skipped[0],
        success=success[0],
        failed=failed[0],
        skipped=skipped[0],
        changes=success[1] + failed[1] + skipped[1],
    )
