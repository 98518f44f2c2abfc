"""What is known of repos' hooks: kept in batches, read back at a start, and listed with what is registered.

A repo is ``hooked`` as long as its hooks are reliable; that is written in the transaction that makes it so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from evermirror.edge.store import events, rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.hook_registrations import registration_out
from evermirror.edge.store.news_tables import hook_memories, hook_registrations
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.edge.store.whole import whole
from evermirror.model.event import NewEvent
from evermirror.model.hook import HookMemory, HookRegistration, HookTrust, RegistrationState
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey

CHUNK = 10_000  # read at a time at a start: a few MB, and no read stays open for long
PAGE_MAX = 1000

_COLUMNS = tuple(c.name for c in hook_memories.c)


class HookPageOf(Protocol):
    """Which repos' hooks a page shows; ``after`` is the key of the last one already seen."""

    @property
    def trust(self) -> HookTrust | None: ...
    @property
    def state(self) -> RegistrationState | None: ...
    @property
    def search(self) -> str: ...
    @property
    def after(self) -> RepoKey | None: ...
    @property
    def limit(self) -> int: ...


@dataclass(frozen=True, slots=True)
class HookRow:
    key: RepoKey
    memory: HookMemory | None
    registration: HookRegistration | None


class HookMemoryStore(StorePart):
    def load_hook_memories(self) -> AsyncIterator[tuple[tuple[HookMemory, RefsDigest | None], ...]]:
        """Of the repos in the catalog, with their refs, some thousands at a time; those of others are
        forgotten."""
        return load(self._db)

    async def save_hooks(
        self,
        memories: Sequence[HookMemory],
        *,
        forgotten: Sequence[RepoKey] = (),
        hooked: Mapping[RepoKey, bool] | None = None,
        news: Sequence[NewEvent] = (),
    ) -> None:
        """One transaction: in the place of what was known, which repos are ``hooked`` from now on, and what
        others are told of it. The same again changes nothing but the news."""
        await whole(save(self._db, memories, forgotten, hooked or {}, news, self._clock()))
        if news:
            self.on_event()

    async def hooks_page(self, which: HookPageOf) -> tuple[HookRow, ...]:
        """The next repos in the order of keys that had a hook, or one registered; at most 1,000."""
        return await whole(page(self._db, which))

    async def hooks_of(self, keys: Sequence[RepoKey]) -> dict[RepoKey, HookRow]:
        """Of those of at most 1,000 keys that had a hook, or one registered."""
        return await whole(of_keys(self._db, keys))


async def load(db: Database) -> AsyncIterator[tuple[tuple[HookMemory, RefsDigest | None], ...]]:
    here = sa.select(repos.c.key).where(repos.c.key == hook_memories.c.key, IN_CATALOG)
    async with db.write() as c:
        await c.execute(hook_memories.delete().where(~here.exists()))
    query = (
        sa.select(hook_memories, repos.c.digest)
        .join(repos, repos.c.key == hook_memories.c.key)
        .where(hook_memories.c.key > sa.bindparam("last"))
        .order_by(hook_memories.c.key)
        .limit(CHUNK)
    )
    last = ""

    async def next_chunk() -> Sequence[Any]:
        async with db.read() as c:
            return (await c.execute(query, {"last": last})).all()

    while found := await whole(next_chunk()):
        last = found[-1].key
        yield tuple((_memory_out(row), row.digest) for row in found)


async def save(
    db: Database,
    memories: Sequence[HookMemory],
    forgotten: Sequence[RepoKey],
    hooked: Mapping[RepoKey, bool],
    news: Sequence[NewEvent],
    now: float,
) -> None:
    insert = db.insert(hook_memories)
    put = insert.on_conflict_do_update(
        index_elements=["key"], set_={name: insert.excluded[name] for name in _COLUMNS if name != "key"}
    )
    values = [_row_in(memory) for memory in {m.key: m for m in memories}.values()]
    flags = [{"row_key": key, "flag": flag} for key, flag in hooked.items() if rows.storable(key)]
    gone = [{"row_key": key} for key in dict.fromkeys(forgotten) if rows.storable(key)]
    async with db.write() as c:
        if gone:
            await c.execute(_FORGET, gone)
        if values:
            await c.execute(put, values)
        if flags:
            await c.execute(_FLAG, flags)
        await events.append(c, news, now)


_FORGET = hook_memories.delete().where(hook_memories.c.key == sa.bindparam("row_key"))
_FLAG = (
    repos.update()
    .where(repos.c.key == sa.bindparam("row_key"), IN_CATALOG)
    .values(hooked=sa.bindparam("flag", type_=sa.Boolean()))
)


async def page(db: Database, which: HookPageOf) -> tuple[HookRow, ...]:
    texts = (which.search, which.after or "")
    if not all(rows.storable(t) for t in texts) or len(which.search.encode()) > rows.NAME_BYTES_MAX:
        return ()  # no stored text is like that
    limit = max(0, min(which.limit, PAGE_MAX))
    async with db.read() as c:
        keys: set[str] = set()
        for query in _candidates(which):
            keys.update(await c.scalars(query.limit(limit)))
        found = await c.run_sync(_rows_of, db, sorted(keys)[:limit])
    return tuple(found)


async def of_keys(db: Database, keys: Sequence[RepoKey]) -> dict[RepoKey, HookRow]:
    if len(keys) > PAGE_MAX:
        raise ValueError(f"{len(keys)} repos were asked for, and at most {PAGE_MAX} can be")
    asked = [key for key in keys if rows.storable(key)]
    found = await db.look_up(lambda c: _rows_of(c, db, asked))
    return {row.key: row for row in found if row.memory is not None or row.registration is not None}


def _candidates(which: HookPageOf) -> list[sa.Select[tuple[str]]]:
    """The first keys that fit, of each table that may have them; in the order of keys, by its index."""
    tables = [hook_memories] * (which.state is None) + [hook_registrations] * (which.trust is None)
    queries = []
    for table in tables or [hook_memories]:
        query = sa.select(table.c.key).join(repos, repos.c.key == table.c.key).where(IN_CATALOG)
        if not tables:
            query = query.join(hook_registrations, hook_registrations.c.key == table.c.key)
        if which.trust is not None:
            query = query.where(hook_memories.c.trust == which.trust.value)
        if which.state is not None:
            query = query.where(hook_registrations.c.state == which.state.value)
        if which.after is not None:
            query = query.where(table.c.key > which.after)
        if which.search:
            query = query.where(table.c.key.icontains(which.search, autoescape=True))
        queries.append(query.order_by(table.c.key))
    return queries


def _rows_of(c: sa.Connection, db: Database, keys: Sequence[str]) -> list[HookRow]:
    known = c.execute(sa.select(hook_memories).where(db.among_many(hook_memories.c.key, keys)))
    memories = {row.key: _memory_out(row) for row in known}
    made = c.execute(sa.select(hook_registrations).where(db.among_many(hook_registrations.c.key, keys)))
    registrations = {row.key: registration_out(row) for row in made}
    return [HookRow(RepoKey(key), memories.get(key), registrations.get(key)) for key in keys]


def _row_in(memory: HookMemory) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(memory, name) for name in _COLUMNS}
    return row | {"key": rows.name_in(memory.key, "repo"), "trust": memory.trust.value}


def _memory_out(row: Any) -> HookMemory:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return HookMemory(**(values | {"key": RepoKey(row.key), "trust": HookTrust(row.trust)}))
