"""Repos looked up by their keys and aliases: one, or many with a few statements."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.model.repo import RepoKey, RepoRecord

NAMES_IN_QUERY = 500  # named in one statement

# Made once: a statement takes longer to make than to carry out.
_EVER_BY_KEY = sa.select(repos).where(repos.c.key == sa.bindparam("name"))
_BY_KEY = _EVER_BY_KEY.where(IN_CATALOG)
_BY_ALIAS = sa.select(repos).where(repos.c.alias == sa.bindparam("name"), IN_CATALOG)
_LAST_REMOVED = (
    sa.select(repos)
    .where(repos.c.alias == sa.bindparam("name"), repos.c.removed_at.is_not(None))
    .order_by(repos.c.removed_at.desc())
    .limit(1)
)


async def find(db: Database, key_or_alias: str, *, removed: bool = False) -> RepoRecord | None:
    """By key, else by alias. ``removed`` also finds one that left the catalog; it is told as inactive."""
    if not rows.storable(key_or_alias):
        return None
    name = {"name": key_or_alias}

    def look(c: sa.Connection) -> rows.Row | None:
        row = c.execute(_EVER_BY_KEY if removed else _BY_KEY, name).one_or_none()
        return row if row is not None else c.execute(_BY_ALIAS, name).one_or_none()

    row = await db.look_up(look)
    return None if row is None else rows.repo_out(row)


async def find_removed(db: Database, alias: str) -> RepoRecord | None:
    """The last repo that left the catalog with this alias. Looks at every repo."""
    if not rows.storable(alias):
        return None
    async with db.read() as c:
        row = (await c.execute(_LAST_REMOVED, {"name": alias})).one_or_none()
    return None if row is None else rows.repo_out(row)


async def find_keys(db: Database, keys: Iterable[str], *, removed: bool) -> dict[RepoKey, RepoRecord]:
    """By key alone. ``removed``: also those that left the catalog."""
    remaining = iter([key for key in dict.fromkeys(keys) if rows.storable(key)])
    found: dict[RepoKey, RepoRecord] = {}
    async with db.read() as c:
        while chunk := list(islice(remaining, NAMES_IN_QUERY)):
            query = sa.select(repos).where(db.among_many(repos.c.key, chunk))
            for row in await c.execute(query if removed else query.where(IN_CATALOG)):
                found[RepoKey(row.key)] = rows.repo_out(row)
    return found


async def find_names(db: Database, names: Iterable[str]) -> dict[str, RepoRecord]:
    """Each by key, else by alias, of those in the catalog."""
    remaining = iter([name for name in dict.fromkeys(names) if rows.storable(name)])
    found: dict[str, RepoRecord] = {}
    async with db.read() as c:
        while chunk := list(islice(remaining, NAMES_IN_QUERY)):
            for column in (repos.c.alias, repos.c.key):  # a key goes before an alias that is spelt alike
                query = sa.select(repos).where(IN_CATALOG, db.among_many(column, chunk))
                found |= {row._mapping[column]: rows.repo_out(row) for row in await c.execute(query)}
    return found
