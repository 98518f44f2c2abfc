"""Questions and changes about tasks: created one by one, ended in batches (apply.py), removed when old."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import tasks
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger

LIST_MAX = 1000  # rows of one page
CLEANUP_CHUNK = 5000  # rows deleted in one transaction: other writers wait for milliseconds only
ID_MAX = 2**63 - 1  # what a column holds; a larger number that a caller asks for is nobody's id

_OPEN = tasks.c.status.in_([TaskStatus.PENDING.value, TaskStatus.RUNNING.value])


async def create(
    db: Database,
    repo: RepoKey,
    trigger: Trigger,
    *,
    user: str,
    params: Mapping[str, object] | None,
    now: float,
) -> TaskRecord:
    statement = tasks.insert().returning(tasks)
    values = {
        "repo": rows.name_in(repo, "repo"),
        "status": TaskStatus.PENDING.value,
        "trigger": trigger.value,
        "user": rows.free_text(user),
        "scheduled_at": now,
        "has_changes": False,
        "changes_count": 0,
        "progress_phase": "",
        "retry_count": 0,
        "params": rows.json_in_or_null(params),
        "folded": 0,
        "created_at": now,
        "updated_at": now,
    }
    async with db.write() as c:
        return rows.task_out((await c.execute(statement, values)).one())


async def get(db: Database, task_id: int) -> TaskRecord | None:
    if not 0 < task_id <= ID_MAX:
        return None
    async with db.read() as c:
        row = (await c.execute(sa.select(tasks).where(tasks.c.id == task_id))).one_or_none()
    return None if row is None else rows.task_out(row)


async def open_of(db: Database, repo: RepoKey) -> tuple[TaskRecord, ...]:
    """Pending and running tasks of a repo, oldest first."""
    return await _many(db, sa.select(tasks).where(tasks.c.repo == repo, _OPEN).order_by(tasks.c.id), repo)


async def page(db: Database, repo: RepoKey, limit: int, before: TaskId | None) -> tuple[TaskRecord, ...]:
    """Newest first; ``before`` is the id of the last one already seen."""
    query = sa.select(tasks).where(tasks.c.repo == repo).order_by(tasks.c.id.desc())
    if before is not None:
        query = query.where(tasks.c.id < min(before, ID_MAX))
    return await _many(db, query.limit(max(0, min(limit, LIST_MAX))), repo)


async def unfinished(db: Database) -> tuple[TaskRecord, ...]:
    """Every pending or running task, oldest first: what a restart has to take up again."""
    return await _many(db, sa.select(tasks).where(_OPEN).order_by(tasks.c.id), "")


async def cleanup(db: Database, older_than: float) -> int:
    """Removes ended tasks not touched since ``older_than`` (UTC seconds); returns how many."""
    ended = sa.select(tasks.c.id).where(tasks.c.updated_at < older_than, sa.not_(_OPEN))
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
