"""Who changed what, and small facts that outlive a restart (settings)."""

from __future__ import annotations

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import audit, settings
from evermirror.model.access import AuditRecord

LIST_MAX = 1000  # rows of one page
CLEANUP_CHUNK = 10_000  # rows removed in one transaction


async def note(db: Database, actor: str, action: str, subject: str, detail: object, *, now: float) -> None:
    values = {
        "at": now,
        "actor": rows.free_text(actor),
        "action": rows.free_text(action),
        "subject": rows.free_text(subject),
        "detail": rows.json_in(detail),
    }
    async with db.write() as c:
        await c.execute(audit.insert(), values)


async def cleanup(db: Database, older_than: float) -> int:
    """Removes entries made before ``older_than`` (UTC seconds), some at a time, so that no other writer waits
    for long; returns how many."""
    old = sa.select(audit.c.id).where(audit.c.at < older_than).limit(CLEANUP_CHUNK).subquery()
    total = 0
    while True:
        async with db.write() as c:
            count = (await c.execute(audit.delete().where(audit.c.id.in_(sa.select(old.c.id))))).rowcount
        total += count
        if count < CLEANUP_CHUNK:
            return total


async def newest(db: Database, limit: int, before: int | None) -> tuple[AuditRecord, ...]:
    """Newest first; ``before`` is the id of the last one already seen."""
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(max(0, min(limit, LIST_MAX)))
    if before is not None:
        query = query.where(audit.c.id < before)
    async with db.read() as c:
        return tuple(
            AuditRecord(r.id, r.at, r.actor, r.action, r.subject, rows.json_out(r.detail))
            for r in await c.execute(query)
        )


async def get_setting(db: Database, key: str) -> object:
    """None where it was never set."""
    async with db.read() as c:
        query = sa.select(settings.c.value).where(settings.c.key == key)
        return rows.json_out((await c.execute(query)).scalar_one_or_none())


async def put_setting(db: Database, key: str, value: object) -> None:
    insert = db.insert(settings)
    statement = insert.on_conflict_do_update(index_elements=["key"], set_={"value": insert.excluded.value})
    async with db.write() as c:
        await c.execute(statement, {"key": rows.name_in(key, "setting"), "value": rows.json_in(value)})
