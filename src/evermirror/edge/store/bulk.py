"""Orders about many repos at once: written down before they begin, and after each chunk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.bulk.course import SINGLY_MAX
from evermirror.core.events.of_catalog import SINGLY_MAX as EVENTS_SINGLY_MAX
from evermirror.edge.store import pull, repos, rows
from evermirror.edge.store.bulk_tables import bulk_orders
from evermirror.edge.store.database import Database
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.tables import audit, tasks
from evermirror.edge.store.whole import whole
from evermirror.model.bulk import BulkAction, BulkFilter, BulkId, BulkOrder, BulkStatus, BulkWish
from evermirror.model.failure import FailureKind
from evermirror.model.pull import Project
from evermirror.model.repo import Priority, RepoKey, RepoRecord, RepoStatus
from evermirror.model.task import Trigger

PAGE_MAX = 100
KEPT_MAX = 1_000  # orders; of more the oldest that ended are forgotten
FORGET_AFTER_S = 30 * 86_400.0
ID_MAX = 2**63 - 1
KEYS_IN_QUERY = 500

_OPEN = bulk_orders.c.status == BulkStatus.RUNNING.value


class BulkStore(StorePart):
    async def create_bulk(self, wish: BulkWish, actor: str, matched: int, noted: object = None) -> BulkOrder:
        """Written down, to be carried out, with its entry in the audit log, which has ``noted``. What ended
        long ago is forgotten."""
        return await whole(create(self._db, wish, actor, matched, noted, self._clock()))

    async def save_bulk(self, order: BulkOrder) -> None:
        """How far it is."""
        await whole(save(self._db, order))

    async def find_bulk(self, order_id: BulkId) -> BulkOrder | None:
        return await whole(find(self._db, order_id))

    async def list_bulk(self, limit: int) -> tuple[BulkOrder, ...]:
        """Newest first; at most 100."""
        return await whole(newest(self._db, limit))

    async def open_bulk(self) -> tuple[BulkOrder, ...]:
        """What is to be carried out, oldest first."""
        return await whole(unfinished(self._db))

    async def looked_at_for(self, order: BulkOrder, keys: Sequence[RepoKey]) -> set[RepoKey]:
        """Those of at most 500 repos that have a task of a batch since the order, by who gave it."""
        return await whole(looked_at(self._db, order, keys))

    async def upsert_for(
        self, order: BulkOrder, records: Sequence[RepoRecord], changed_before: Collection[RepoKey]
    ) -> None:
        """As ``upsert_repos``, by an order: in the same transaction it is written down which of those that it
        works on were changed, and the audit log has each, where the order is about few."""
        now, keys = self._clock(), [record.key for record in records]

        async def along(c: AsyncConnection) -> None:
            await note_changed(c, order, "repo.updated", keys, changed_before, now)

        singly = EVENTS_SINGLY_MAX if order.matched <= EVENTS_SINGLY_MAX else 0
        await whole(repos.upsert(self._db, records, now, singly, along=along))
        self._changed()

    async def put_projects_for(
        self, order: BulkOrder, projects: Sequence[Project], changed_before: Collection[RepoKey]
    ) -> tuple[Project, ...]:
        """As ``put_projects``, by an order, in the same way."""
        now, keys = self._clock(), [project.key for project in projects]

        async def along(c: AsyncConnection) -> None:
            await note_changed(c, order, "pull.errors.reset", keys, changed_before, now)

        return await whole(pull.put(self._db, projects, now, along))

    async def changed_for(self, order: BulkOrder) -> frozenset[RepoKey]:
        """Those of what it works on that it changed before a stop or crash."""
        return await whole(changed(self._db, order))


async def create(
    db: Database, wish: BulkWish, actor: str, matched: int, noted: object, now: float
) -> BulkOrder:
    order = BulkOrder(BulkId(0), wish, actor, matched, now, now)
    newest_first = sa.select(bulk_orders.c.id).order_by(bulk_orders.c.id.desc())
    async with db.write() as c:
        beyond = (await c.execute(newest_first.offset(KEPT_MAX - 1).limit(1))).scalar_one_or_none()
        old = bulk_orders.c.updated_at < now - FORGET_AFTER_S
        which = old if beyond is None else sa.or_(old, bulk_orders.c.id <= beyond)
        await c.execute(bulk_orders.delete().where(sa.not_(_OPEN), which))
        number = (
            await c.execute(bulk_orders.insert().values(**_row(order)).returning(bulk_orders.c.id))
        ).scalar_one()
        entry = {
            "at": now,
            "actor": rows.free_text(actor),
            "action": f"bulk.{wish.action.value}",
            "subject": str(number),
            "detail": rows.json_in(noted),
        }
        await c.execute(audit.insert(), entry)
    return BulkOrder(BulkId(number), wish, actor, matched, now, now)


async def save(db: Database, order: BulkOrder) -> None:
    async with db.write() as c:
        await c.execute(bulk_orders.update().where(bulk_orders.c.id == order.id).values(**_row(order)))


async def find(db: Database, order_id: BulkId) -> BulkOrder | None:
    if not 0 < order_id <= ID_MAX:
        return None
    async with db.read() as c:
        row = (await c.execute(sa.select(bulk_orders).where(bulk_orders.c.id == order_id))).one_or_none()
    return None if row is None else _order(row)


async def newest(db: Database, limit: int) -> tuple[BulkOrder, ...]:
    query = sa.select(bulk_orders).order_by(bulk_orders.c.id.desc()).limit(max(0, min(limit, PAGE_MAX)))
    async with db.read() as c:
        return tuple(_order(row) for row in await c.execute(query))


async def unfinished(db: Database) -> tuple[BulkOrder, ...]:
    query = sa.select(bulk_orders).where(_OPEN).order_by(bulk_orders.c.id).limit(PAGE_MAX)
    async with db.read() as c:
        return tuple(_order(row) for row in await c.execute(query))


async def looked_at(db: Database, order: BulkOrder, keys: Sequence[RepoKey]) -> set[RepoKey]:
    if len(keys) > KEYS_IN_QUERY:
        raise ValueError(f"{len(keys)} repos were asked for, and at most {KEYS_IN_QUERY} can be")
    query = (
        sa.select(tasks.c.repo)
        .distinct()
        .where(
            db.among(tasks.c.repo, list(keys)),
            tasks.c.created_at >= order.created_at,
            tasks.c.trigger == Trigger.MANUAL_BATCH.value,
            tasks.c.user == rows.free_text(order.actor),
        )
    )
    async with db.read() as c:
        return {RepoKey(key) for key in await c.scalars(query)}


async def note_changed(
    c: AsyncConnection,
    order: BulkOrder,
    action: str,
    keys: Sequence[RepoKey],
    before: Collection[RepoKey],
    now: float,
) -> None:
    """These are changed by now, and those ``before``, which the audit log has already."""
    mark = rows.json_in(_working_in(order.working, {*before, *keys}))
    await c.execute(bulk_orders.update().where(bulk_orders.c.id == order.id).values(working=mark))
    told = {"at": now, "actor": rows.free_text(order.actor), "action": action}
    told |= {"detail": rows.json_in({"bulk": order.id})}
    entries = [{**told, "subject": rows.free_text(key)} for key in keys if key not in before]
    if entries and order.matched <= SINGLY_MAX:
        await c.execute(audit.insert(), entries)


async def changed(db: Database, order: BulkOrder) -> frozenset[RepoKey]:
    query = sa.select(bulk_orders.c.working).where(bulk_orders.c.id == order.id)
    async with db.read() as c:
        kept = (await c.execute(query)).scalar_one_or_none()
    working, known = _working_out(kept), rows.json_out(kept)
    if working != order.working or not isinstance(known, dict):
        return frozenset()
    return frozenset(working[number] for number in known.get("changed", ()))


def _working_in(working: Sequence[RepoKey], changed: Collection[RepoKey]) -> dict[str, object]:
    return {"keys": list(working), "changed": [n for n, key in enumerate(working) if key in changed]}


def _working_out(kept: str | None) -> tuple[RepoKey, ...]:
    working = rows.json_out(kept)
    keys = working.get("keys") if isinstance(working, dict) else None
    return tuple(RepoKey(str(key)) for key in keys) if isinstance(keys, list) else ()


def _row(order: BulkOrder) -> dict[str, object]:
    return {
        "action": order.wish.action.value,
        "which": rows.json_in(_which_in(order.wish)),
        "actor": rows.free_text(order.actor),
        "matched": order.matched,
        "status": order.status.value,
        "done": order.done,
        "unchanged": order.unchanged,
        "failed": order.failed,
        "looks": order.looks,
        "first_error": rows.free_text(order.first_error),
        "after": order.cursor,
        "working": rows.json_in(_working_in(order.working, ())),
        "created_at": order.created_at,
        "updated_at": order.updated_at,
    }


def _order(row: rows.Row) -> BulkOrder:
    return BulkOrder(
        BulkId(row.id),
        _wish_out(BulkAction(row.action), rows.json_out(row.which)),
        row.actor,
        row.matched,
        row.created_at,
        row.updated_at,
        status=BulkStatus(row.status),
        done=row.done,
        unchanged=row.unchanged,
        failed=row.failed,
        looks=row.looks,
        first_error=row.first_error,
        cursor=None if row.after is None else RepoKey(row.after),
        working=_working_out(row.working),
    )


def _which_in(wish: BulkWish) -> dict[str, object]:
    which: dict[str, object] = {"keys": list(wish.keys)}
    if wish.filter is not None:
        said = {
            "search": wish.filter.search,
            "status": wish.filter.status.value if wish.filter.status is not None else None,
            "host": wish.filter.host,
            "priority": wish.filter.priority.value if wish.filter.priority is not None else None,
            "worker": wish.filter.worker,
            "failure": wish.filter.failure.value if wish.filter.failure is not None else None,
        }
        which["filter"] = {name: value for name, value in said.items() if value}
    if wish.priority is not None:
        which["priority"] = wish.priority.value
    return which


def _wish_out(action: BulkAction, which: object) -> BulkWish:
    told: Mapping[str, object] = which if isinstance(which, dict) else {}
    keys, about, priority = told.get("keys"), told.get("filter"), told.get("priority")
    return BulkWish(
        action,
        keys=tuple(str(key) for key in keys) if isinstance(keys, list) else (),
        filter=_filter_out(about) if isinstance(about, dict) else None,
        priority=Priority(priority) if priority is not None else None,
    )


def _filter_out(about: Mapping[str, object]) -> BulkFilter:
    status, priority, failure = about.get("status"), about.get("priority"), about.get("failure")
    return BulkFilter(
        search=str(about.get("search") or ""),
        status=RepoStatus(status) if status is not None else None,
        host=str(about.get("host") or ""),
        priority=Priority(priority) if priority is not None else None,
        worker=str(about.get("worker") or ""),
        failure=FailureKind(failure) if failure is not None else None,
    )
