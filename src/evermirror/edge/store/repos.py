"""Questions and changes about repos: bulk load, look-up, those of a source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.events.of_catalog import (
    SINGLY_MAX,
    catalog_news,
    catalog_turn,
    repo_added,
    repo_removed,
)
from evermirror.edge.store import events, rows
from evermirror.edge.store.changes import SERVED, numbers_from
from evermirror.edge.store.database import Along, Database
from evermirror.edge.store.tables import IN_CATALOG, PRIVATE, repos
from evermirror.edge.store.whole import whole
from evermirror.errors import Conflict, NotFound
from evermirror.model.event import NewEvent
from evermirror.model.repo import RepoKey, RepoRecord, RepoStatus

CHUNK = 10_000  # rows handled at a time when all are: a few MB, and no read stays open for long
CONFIGS_IN_QUERY = 2000  # keys in one parameter
KEYS_IN_QUERY = 500  # keys named in one statement; SQLite's oldest limit is 999 parameters


@dataclass(frozen=True, slots=True)
class UpsertCounts:
    """What a bulk load did; ``added`` includes repos that had been removed and are back. ``moved`` are the
    keys of those added or updated; ``left`` those that were left as they are, as something else was said of
    them since; ``told`` is what others are told of them, bounded; ``allowed`` those that other defects of
    objects are allowed in than before, or for another reason."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    moved: tuple[RepoKey, ...] = field(default=(), compare=False, repr=False)
    told: tuple[NewEvent, ...] = field(default=(), compare=False, repr=False)
    left: tuple[RepoKey, ...] = field(default=(), compare=False, repr=False)
    allowed: tuple[RepoKey, ...] = field(default=(), compare=False, repr=False)

    def and_then(self, more: UpsertCounts) -> UpsertCounts:
        """Both loads together."""
        return UpsertCounts(
            self.added + more.added,
            self.updated + more.updated,
            self.unchanged + more.unchanged,
            self.moved + more.moved,
            (self.told + more.told)[:SINGLY_MAX],
            self.left + more.left,
            self.allowed + more.allowed,
        )


@dataclass(frozen=True, slots=True)
class KnownSource:
    """Where a repo came from, and what was said of it through the API."""

    source: str
    info: Mapping[str, object]
    in_catalog: bool  # False: it left


async def upsert(
    db: Database,
    records: Iterable[RepoRecord],
    now: float,
    singly_max: int = SINGLY_MAX,
    *,
    said_stays: bool = False,
    along: Along | None = None,
) -> UpsertCounts:
    """Configuration is taken over; what reports taught stays. All or nothing, in bounded memory.

    ``said_stays``: a repo of which people said other things than its record has is left as it is."""
    total = UpsertCounts()
    remaining = iter(records)
    async with db.write() as c:
        numbers = await numbers_from(c, now)
        while chunk := list(islice(remaining, CHUNK)):
            total = total.and_then(await _upsert_chunk(db, c, chunk, now, numbers, said_stays=said_stays))
        news = catalog_news(total.told, now, added=total.added, changed=total.updated, singly_max=singly_max)
        await events.append(c, news, now)
        if along is not None:
            await along(c)
    return total


async def _upsert_chunk(
    db: Database,
    c: AsyncConnection,
    records: Sequence[RepoRecord],
    now: float,
    numbers: Iterator[int],
    *,
    said_stays: bool,
) -> UpsertCounts:
    configs = {r.key: (rows.config_in(r), r) for r in records}
    known = await _configs(db, c, list(configs))
    left = [key for key in known if said_stays and known[key]["info"] != configs[key][0]["info"]]
    for key in left:
        del configs[key]
    new: list[dict[str, Any]] = []
    taught: list[dict[str, Any]] = []  # new here, and more is known of them than of a repo nobody looked at
    changed: dict[tuple[str, ...], list[dict[str, Any]]] = {}  # by the columns that are others
    back = 0
    told: list[NewEvent] = []
    allowed: list[RepoKey] = []
    for key, (config, record) in configs.items():
        old = known.get(key)
        if old != config and _allowance(old) != _allowance(config):
            allowed.append(key)
        if old != config and len(told) < SINGLY_MAX:
            told.append(catalog_turn(record, old, config, now))
        if old is None:
            row = {**config, "created_at": now, "updated_at": now, "change_seq": next(numbers)}
            if rows.nothing_learnt(record):
                new.append(row | {"status": rows.status_in(record)})
            else:
                taught.append(row | rows.state_in(record))
        elif old != config:
            # UPDATE binds its columns by name, so the row is found by a name that is no column.
            seq = next(numbers) if _served_otherwise(old, config) else None
            names = _otherwise(old, config)
            values = {name: config[name] for name in names}
            changed.setdefault(names, []).append({**values, "at": now, "row_key": key, "seq": seq})
            back += "removed" in old
    try:
        if new:
            await c.execute(_ADD_NEW, new)
        if taught:
            await c.execute(repos.insert(), taught)
        for names, values_of_each in changed.items():
            await c.execute(_take_config(names), values_of_each)
    except IntegrityError:
        raise Conflict("an alias is already that of another repo") from None
    others = [RepoKey(row["row_key"]) for some in changed.values() for row in some]
    added = [RepoKey(row["key"]) for some in (new, taught) for row in some]
    unchanged = len(configs) - len(added) - len(others)
    moved = (*added, *others)
    return UpsertCounts(
        len(added) + back,
        len(others) - back,
        unchanged,
        moved,
        tuple(told),
        tuple(left),
        tuple(allowed),
    )


def _allowance(config: Mapping[str, Any] | None) -> tuple[str, str | None]:
    if config is None or "removed" in config:
        return "[]", None
    return config["fsck_allow"], config["fsck_reason"]


def _otherwise(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns to be written. Aliases go from one repo to another in the order that was given, so all who
    have or had one are written alike."""
    if "removed" in old or old["alias"] != new["alias"]:
        return _CONFIG
    return tuple(name for name in _CONFIG if old[name] != new[name])


def _served_otherwise(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "removed" in old or any(old[name] != new[name] for name in SERVED)


# As rows.config_in makes them.
_CONFIG = (
    "key", "url", "host", "alias", "source", "info", "priority", "interval_s", "mode", "private",
    "credential", "fallbacks", "pins", "fsck_allow", "fsck_reason", "enabled",
)  # fmt: skip

# Of a million that are new nothing is learnt: to bind columns that say so took a sixth of a first start.
_ADD_NEW = repos.insert().values(
    {
        name: sa.null() if value is None else sa.literal_column(repr(value))
        for name, value in rows.NOTHING_LEARNT.items()
    }
)

# A repo that is enabled again, or was restored, is as active as what is known of its mirror.
_REVIVED = sa.case(
    (repos.c.status != RepoStatus.INACTIVE.value, repos.c.status),
    (repos.c.digest.is_not(None), RepoStatus.ACTIVE.value),
    else_=RepoStatus.PENDING.value,
)

# One that is added again starts anew: its mirror went to the trash when it left.
_WAS_REMOVED = repos.c.removed_at.is_not(None)


@lru_cache(64)
def _take_config(names: tuple[str, ...]) -> sa.Update:
    """Takes over these columns, and no other: each that is named costs its indexes, also where it is as it
    was. All of them: also of a repo that had been removed."""
    values: dict[str, Any] = {name: sa.bindparam(name) for name in names if name != "key"}
    is_enabled = sa.bindparam("enabled", type_=sa.Boolean()) if "enabled" in names else repos.c.enabled
    status: list[tuple[Any, Any]] = [(sa.not_(is_enabled), RepoStatus.INACTIVE.value)]
    if names == _CONFIG:
        status.append((_WAS_REMOVED, RepoStatus.PENDING.value))
        learnt = ("digest", "told_digest", "told_status", "verified_at")
        values |= {name: sa.case((_WAS_REMOVED, None), else_=repos.c[name]) for name in learnt}
        values["removed_at"] = None
    values |= {
        "status": sa.case(*status, else_=_REVIVED),
        "updated_at": sa.bindparam("at"),
        "change_seq": sa.func.coalesce(sa.bindparam("seq", type_=sa.BigInteger()), repos.c.change_seq),
    }
    return repos.update().where(repos.c.key == sa.bindparam("row_key")).values(values)


async def _configs(db: Database, c: AsyncConnection, keys: Sequence[str]) -> dict[RepoKey, dict[str, Any]]:
    """Configuration columns by key; a removed repo's differ from any other by the mark ``removed``."""
    statement = sa.select(*(repos.c[name] for name in _CONFIG), repos.c.removed_at)
    found: dict[RepoKey, dict[str, Any]] = {}
    remaining = iter(keys)
    while chunk := list(islice(remaining, CONFIGS_IN_QUERY)):
        for row in await c.execute(statement.where(db.among_many(repos.c.key, chunk))):
            config = dict(zip(_CONFIG, row, strict=False))
            if row.removed_at is not None:
                config["removed"] = True
            found[RepoKey(row.key)] = config
    return found


async def remove(db: Database, keys: Iterable[str], at: float) -> int:
    """They leave the catalog; what is known of them stays. Returns how many were in it."""
    here = sa.select(repos.c.id, repos.c.key).where(IN_CATALOG)
    remaining = iter([key for key in dict.fromkeys(keys) if rows.storable(key)])
    count = 0
    told: list[NewEvent] = []
    async with db.write() as c:
        numbers = await numbers_from(c, at)
        while chunk := list(islice(remaining, KEYS_IN_QUERY)):
            found = (await c.execute(here.where(db.among(repos.c.key, chunk)))).all()
            if found:
                await c.execute(_REMOVE, [{"row_id": r.id, "at": at, "seq": next(numbers)} for r in found])
            count += len(found)
            if count <= SINGLY_MAX:
                told += [repo_removed(RepoKey(row.key), at) for row in found]
        await events.append(c, catalog_news(told, at, removed=count), at)
    return count


_REMOVE = (
    repos.update()
    .where(repos.c.id == sa.bindparam("row_id"))
    .values(
        removed_at=sa.bindparam("at"),
        updated_at=sa.bindparam("at"),
        status=RepoStatus.INACTIVE.value,
        hooked=False,  # what was known of its hooks is forgotten
        change_seq=sa.bindparam("seq"),
    )
)


async def restore(db: Database, key: str, at: float) -> RepoRecord:
    """Back into the catalog, as it was."""
    status = sa.case((repos.c.enabled, _REVIVED), else_=RepoStatus.INACTIVE.value)
    back = repos.update().values(removed_at=None, updated_at=at, status=status).returning(repos)
    if not rows.storable(key):
        raise NotFound(f"no repo {key!r}")
    async with db.write() as c:
        left = sa.select(repos.c.removed_at).where(repos.c.key == key)
        had_left = (await c.execute(left)).scalar_one_or_none() is not None
        back = back.values(change_seq=next(await numbers_from(c, at)))
        try:
            row = (await c.execute(back.where(repos.c.key == key))).one_or_none()
        except IntegrityError:
            raise Conflict(f"the alias of {key} is now that of another repo") from None
        if row is None:
            raise NotFound(f"no repo {key!r}")
        record = rows.repo_out(row)
        await events.append(c, [repo_added(record, at)] if had_left else [], at)
    return record


async def keys_of_source(db: Database, source: str) -> AsyncIterator[list[RepoKey]]:
    """The keys of all repos that are in the catalog because of ``source``, some thousands at a time."""
    query = (
        sa.select(repos.c.id, repos.c.key)
        .where(repos.c.id > sa.bindparam("after"), IN_CATALOG, repos.c.source == source)
        .order_by(repos.c.id)
        .limit(CHUNK)
    )
    after = 0

    async def next_chunk() -> Sequence[Any]:
        async with db.read() as c:
            return (await c.execute(query, {"after": after})).all()

    while found := await whole(next_chunk()):
        after = found[-1].id
        yield [RepoKey(row.key) for row in found]


async def aliases(db: Database) -> dict[str, RepoKey]:
    """Whose alias each is, of the repos in the catalog."""
    query = sa.select(repos.c.alias, repos.c.key).where(IN_CATALOG, repos.c.alias.is_not(None))
    async with db.read() as c:
        return {alias: RepoKey(key) for alias, key in await c.execute(query)}


async def any_private(db: Database) -> bool:
    """Whether the catalog has a private repo: a look into an index of those alone."""
    async with db.read() as c:
        return (await c.execute(sa.select(repos.c.id).where(PRIVATE).limit(1))).first() is not None


async def removed_keys(db: Database) -> list[RepoKey]:
    """The keys of all repos that left the catalog."""
    query = sa.select(repos.c.key).where(repos.c.removed_at.is_not(None)).order_by(repos.c.id)
    async with db.read() as c:
        return [RepoKey(key) for key in await c.scalars(query)]


async def known(db: Database, keys: Sequence[RepoKey] | None) -> dict[RepoKey, KnownSource]:
    """Where these repos came from and what was said of them; those never seen are left out.

    None: all repos that the API brought or of which something was said there."""
    query = sa.select(repos.c.key, repos.c.source, repos.c.info, repos.c.removed_at)
    if keys is None:
        asked: list[sa.ColumnElement[bool]] = [sa.or_(repos.c.source == "api", repos.c.info != "{}")]
    else:
        parts = (keys[start : start + KEYS_IN_QUERY] for start in range(0, len(keys), KEYS_IN_QUERY))
        asked = [db.among(repos.c.key, part) for part in parts]
    found: dict[RepoKey, KnownSource] = {}
    async with db.read() as c:
        for which in asked:
            for key, source, info, removed_at in await c.execute(query.where(which)):
                said = {} if info == "{}" else dict(rows.json_out(info))
                found[RepoKey(key)] = KnownSource(source, said, removed_at is None)
    return found


async def of_source(db: Database, source: str) -> list[RepoRecord]:
    """Every repo that is in the catalog because of ``source``, in the order of keys."""
    query = sa.select(repos).where(IN_CATALOG, repos.c.source == source).order_by(repos.c.key)
    async with db.read() as c:
        return [rows.repo_out(row) for row in await c.execute(query)]
