"""How far each event hook is, and the letters that could not be delivered.

A step of a courier is one transaction: its place, what it laid aside, what became of a letter. Writing the
same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.deliver.decisions import Decision, LayAside, LetterEnd
from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.news_tables import event_hooks, event_letters, events
from evermirror.model.delivery import DeadLetter, HookProgress, LetterId
from evermirror.model.event import EventId

LETTERS_MAX = 10_000  # of one hook; of more the oldest are forgotten
PAGE_MAX = 1000
WAITING_MAX = 10_000  # counted
ID_MAX = 2**63 - 1

_PROGRESS = tuple(column.name for column in event_hooks.c)


# Read


async def load(db: Database) -> dict[str, HookProgress]:
    async with db.read() as c:
        found = await c.execute(sa.select(event_hooks))
        return {row.name: HookProgress(**row._mapping) for row in found}


async def letters(
    db: Database, hook: str | None, limit: int, before: LetterId | None
) -> tuple[DeadLetter, ...]:
    """Newest first."""
    query = sa.select(event_letters).order_by(event_letters.c.id.desc())
    if hook is not None:
        if not rows.storable(hook):
            return ()
        query = query.where(event_letters.c.hook == hook)
    if before is not None:
        query = query.where(event_letters.c.id < min(before, ID_MAX))
    async with db.read() as c:
        return tuple(map(_letter, await c.execute(query.limit(max(0, min(limit, PAGE_MAX))))))


async def next_again(db: Database, hook: str) -> DeadLetter | None:
    """The oldest that is to be tried once more."""
    wanted = (event_letters.c.hook == hook, event_letters.c.again)
    query = sa.select(event_letters).where(*wanted).order_by(event_letters.c.id).limit(1)
    async with db.read() as c:
        row = (await c.execute(query)).first()
        return None if row is None else _letter(row)


async def letter_counts(db: Database) -> dict[str, int]:
    """Of hooks that have any."""
    query = sa.select(event_letters.c.hook, sa.func.count()).group_by(event_letters.c.hook)
    async with db.read() as c:
        return {hook: int(count) for hook, count in await c.execute(query)}


async def waiting(db: Database, after: EventId) -> int:
    """Events after this one, counted up to a bound."""
    some = sa.select(events.c.id).where(events.c.id > after).limit(WAITING_MAX).subquery()
    async with db.read() as c:
        return int((await c.execute(sa.select(sa.func.count()).select_from(some))).scalar_one())


# Write


async def save(db: Database, hook: str, decision: Decision, now: float) -> None:
    async with db.write() as c:
        if decision.progress is not None:
            await _put(db, c, decision.progress)
        if decision.aside:
            await _lay_aside(db, c, hook, decision.aside, now)
        if decision.letter is not None:
            await _end_letter(c, decision.letter)


async def begin(db: Database, hooks: Mapping[str, HookProgress], known: Collection[str]) -> None:
    """Those that are new start here; the place of one that is not known any longer is forgotten."""
    async with db.write() as c:
        await c.execute(event_hooks.delete().where(event_hooks.c.name.not_in(sorted(known))))
        for progress in hooks.values():
            await _put(db, c, progress)


async def mark_again(db: Database, hook: str, ids: Sequence[LetterId] | None) -> int:
    async with db.write() as c:
        done = await c.execute(event_letters.update().where(*_chosen(hook, ids)).values(again=True))
        return done.rowcount


async def forget(db: Database, hook: str, ids: Sequence[LetterId] | None) -> int:
    async with db.write() as c:
        return (await c.execute(event_letters.delete().where(*_chosen(hook, ids)))).rowcount


async def clean(db: Database, before: float) -> int:
    async with db.write() as c:
        return (await c.execute(event_letters.delete().where(event_letters.c.at < before))).rowcount


def _chosen(hook: str, ids: Sequence[LetterId] | None) -> tuple[sa.ColumnElement[bool], ...]:
    of_it = event_letters.c.hook == hook
    return (of_it,) if ids is None else (of_it, event_letters.c.id.in_([id_ for id_ in ids if id_ <= ID_MAX]))


async def _put(db: Database, c: AsyncConnection, progress: HookProgress) -> None:
    row = {name: getattr(progress, name) for name in _PROGRESS}
    row["last_error"] = rows.free_text(progress.last_error)
    insert = db.insert(event_hooks)
    others = {name: insert.excluded[name] for name in _PROGRESS if name != "name"}
    await c.execute(insert.on_conflict_do_update(index_elements=["name"], set_=others), row)


async def _lay_aside(
    db: Database, c: AsyncConnection, hook: str, aside: Sequence[LayAside], now: float
) -> None:
    put = [
        {
            "hook": hook,
            "event": one.item.event,
            "type": one.item.type,
            "body": one.item.body,
            "reason": rows.free_text(one.reason),
            "attempts": one.attempts,
            "at": now,
            "again": False,
        }
        for one in aside
    ]
    insert = db.insert(event_letters)
    await c.execute(insert.on_conflict_do_nothing(index_elements=["hook", "event"]), put)
    of_it = event_letters.c.hook == hook
    newest = sa.select(event_letters.c.id).where(of_it).order_by(event_letters.c.id.desc())
    beyond = (await c.execute(newest.offset(LETTERS_MAX).limit(1))).scalar_one_or_none()
    if beyond is not None:
        await c.execute(event_letters.delete().where(of_it, event_letters.c.id <= beyond))


async def _end_letter(c: AsyncConnection, end: LetterEnd) -> None:
    this = event_letters.c.id == end.id
    if end.taken:
        await c.execute(event_letters.delete().where(this))
        return
    tried = {"again": False, "reason": rows.free_text(end.reason), "attempts": event_letters.c.attempts + 1}
    await c.execute(event_letters.update().where(this).values(**tried))


def _letter(row: rows.Row) -> DeadLetter:
    return DeadLetter(**row._mapping)
