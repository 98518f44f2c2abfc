"""Questions and changes about tasks: created one by one or many at once, ended in batches (apply.py), removed
when old."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import pull_projects, repos, tasks
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger

_Name = TypeVar("_Name")

LIST_MAX = 1000  # rows of one page
AT_ONCE = 500  # tasks made or named in one statement; SQLite's oldest limit is 999 parameters
CLEANUP_CHUNK = 5000  # rows deleted in one transaction: other writers wait for milliseconds only
ID_MAX = 2**63 - 1  # what a column holds; a larger number that a caller asks for is nobody's id

# A task belongs to the class that its repo has when it is made.
_PRIORITY = (
    sa.select(sa.func.coalesce(pull_projects.c.priority, repos.c.priority))
    .select_from(repos.outerjoin(pull_projects, pull_projects.c.repo == repos.c.id))
    .where(repos.c.key == sa.bindparam("p_repo"))
    .scalar_subquery()
)
INSERT = tasks.insert().values(priority=sa.func.coalesce(_PRIORITY, Priority.NORMAL.value))

OPEN = tasks.c.status.in_([TaskStatus.PENDING.value, TaskStatus.RUNNING.value])


async def create(
    db: Database,
    repo: RepoKey,
    trigger: Trigger,
    *,
    user: str,
    params: Mapping[str, object] | None,
    now: float,
) -> TaskRecord:
    values = pending_row(repo, trigger, user=user, params=params, now=now)
    async with db.write() as c:
        return rows.task_out((await c.execute(INSERT.returning(tasks), values)).one())


async def create_many(
    db: Database,
    keys: Sequence[RepoKey],
    trigger: Trigger,
    *,
    user: str,
    params: Mapping[str, object] | None,
    now: float,
) -> tuple[TaskRecord, ...]:
    """One for each, in their order: all or nothing."""
    created: dict[str, TaskRecord] = {}
    async with db.write() as c:
        for part in _parts(keys):
            values = [pending_row(repo, trigger, user=user, params=params, now=now) for repo in part]
            inserted = await c.execute(INSERT.returning(tasks), values)
            created.update((row.repo, rows.task_out(row)) for row in inserted)
    return tuple(created[key] for key in keys)


async def change_params(
    db: Database, params: Mapping[TaskId, Mapping[str, object]], now: float
) -> tuple[TaskRecord, ...]:
    """Pending tasks ask for this from now on; returns them."""
    values = [
        {"p_id": task_id, "p_params": rows.json_in_or_null(said), "p_at": now}
        for task_id, said in params.items()
    ]
    if not values:
        return ()
    async with db.write() as c:
        await c.execute(_CHANGE_PARAMS, values)
        these = (tasks.c.id.in_(part) for part in _parts(params))
        return await _chosen(c, these, tasks.c.status == TaskStatus.PENDING.value)


_CHANGE_PARAMS = (
    tasks.update()
    .where(tasks.c.id == sa.bindparam("p_id"), tasks.c.status == TaskStatus.PENDING.value)
    .values(params=sa.bindparam("p_params"), updated_at=sa.bindparam("p_at"))
)


def pending_row(
    repo: RepoKey,
    trigger: Trigger,
    *,
    user: str,
    params: Mapping[str, object] | None,
    now: float,
    retry_count: int = 0,
) -> dict[str, object]:
    """A new task, for INSERT."""
    return {
        "p_repo": repo,
        "repo": rows.name_in(repo, "repo"),
        "status": TaskStatus.PENDING.value,
        "trigger": trigger.value,
        "user": rows.free_text(user),
        "scheduled_at": now,
        "has_changes": False,
        "changes_count": 0,
        "progress_phase": "",
        "retry_count": retry_count,
        "params": rows.json_in_or_null(params),
        "folded": 0,
        "created_at": now,
        "updated_at": now,
    }


def _parts(names: Iterable[_Name]) -> Iterator[list[_Name]]:
    remaining = iter(dict.fromkeys(names))
    while part := list(islice(remaining, AT_ONCE)):
        yield part


async def get(db: Database, task_id: int) -> TaskRecord | None:
    if not 0 < task_id <= ID_MAX:
        return None
    async with db.read() as c:
        row = (await c.execute(sa.select(tasks).where(tasks.c.id == task_id))).one_or_none()
    return None if row is None else rows.task_out(row)


async def open_of(db: Database, repo: RepoKey) -> tuple[TaskRecord, ...]:
    """Pending and running tasks of a repo, oldest first."""
    return await _many(db, sa.select(tasks).where(tasks.c.repo == repo, OPEN).order_by(tasks.c.id), repo)


async def open_of_many(db: Database, keys: Iterable[RepoKey]) -> tuple[TaskRecord, ...]:
    """The same of many repos."""
    these = (db.among_many(tasks.c.repo, part) for part in _parts(key for key in keys if rows.storable(key)))
    async with db.read() as c:
        return await _chosen(c, these, OPEN)


async def page(db: Database, repo: RepoKey, limit: int, before: TaskId | None) -> tuple[TaskRecord, ...]:
    """Newest first; ``before`` is the id of the last one already seen."""
    query = sa.select(tasks).where(tasks.c.repo == repo).order_by(tasks.c.id.desc())
    if before is not None:
        query = query.where(tasks.c.id < min(before, ID_MAX))
    return await _many(db, query.limit(max(0, min(limit, LIST_MAX))), repo)


async def unfinished(db: Database) -> tuple[TaskRecord, ...]:
    """Every pending or running task, oldest first: what a restart has to take up again."""
    return await _many(db, sa.select(tasks).where(OPEN).order_by(tasks.c.id), "")


async def cleanup(db: Database, older_than: float) -> int:
    """Removes ended tasks not touched since ``older_than`` (UTC seconds); returns how many."""
    ended = sa.select(tasks.c.id).where(tasks.c.updated_at < older_than, sa.not_(OPEN))
    old = ended.limit(CLEANUP_CHUNK).subquery()
    total = 0
    while True:
        async with db.write() as c:
            count = (await c.execute(tasks.delete().where(tasks.c.id.in_(sa.select(old.c.id))))).rowcount
        total += count
        if count < CLEANUP_CHUNK:
            return total


async def _many(db: Database, query: sa.Select[tuple[object, ...]], repo: str) -> tuple[TaskRecord, ...]:
    if not rows.storable(repo):
        return ()
    async with db.read() as c:
        return tuple(rows.task_out(r) for r in await c.execute(query))


async def _chosen(
    c: AsyncConnection, parts: Iterable[sa.ColumnElement[bool]], which: sa.ColumnElement[bool]
) -> tuple[TaskRecord, ...]:
    """One statement for each part; oldest first."""
    found = [
        rows.task_out(row) for part in parts for row in await c.execute(sa.select(tasks).where(part, which))
    ]
    return tuple(sorted(found, key=lambda task: task.id))
