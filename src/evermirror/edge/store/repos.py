"""Questions and changes about repos: bulk load, look-up, lists by key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.changes import SERVED, numbers_from
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.edge.store.whole import whole
from evermirror.errors import Conflict, NotFound
from evermirror.model.activity import Activity
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey, RepoRecord, RepoSpec, RepoStatus

LIST_MAX = 1000  # rows of one page, as the API promises
CHUNK = 10_000  # rows handled at a time when all are: a few MB, and no read stays open for long
SPECS_MAX = 1000  # repos of one command to a worker, twice what the fleet's machine puts into one
KEYS_IN_QUERY = 500  # keys named in one statement; SQLite's oldest limit is 999 parameters


class RepoSelection(Protocol):
    """Which repos a list shows; ``after`` is the key of the last one already seen."""

    @property
    def search(self) -> str: ...
    @property
    def status(self) -> RepoStatus | None: ...
    @property
    def host(self) -> str: ...
    @property
    def after(self) -> RepoKey | None: ...
    @property
    def limit(self) -> int: ...


@dataclass(frozen=True, slots=True)
class UpsertCounts:
    """What a bulk load did; ``added`` includes repos that had been removed and are back. ``moved`` are the
    keys of those added or updated."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    moved: tuple[RepoKey, ...] = field(default=(), compare=False, repr=False)

    def and_then(self, more: UpsertCounts) -> UpsertCounts:
        """Both loads together."""
        return UpsertCounts(
            self.added + more.added,
            self.updated + more.updated,
            self.unchanged + more.unchanged,
            self.moved + more.moved,
        )


@dataclass(frozen=True, slots=True)
class KnownRepo:
    """A repo to be mirrored and what earlier holders knew of it."""

    spec: RepoSpec
    digest: RefsDigest | None
    verified_at: float | None
    activity: Activity


@dataclass(frozen=True, slots=True)
class AssignedSpec:
    """A repo as a worker that is to hold it must know it."""

    spec: RepoSpec
    activity: Activity
    enabled: bool


@dataclass(frozen=True, slots=True)
class KnownSource:
    """Where a repo came from, and what was said of it through the API."""

    source: str
    info: Mapping[str, object]
    in_catalog: bool  # False: it left


async def upsert(db: Database, records: Iterable[RepoRecord], now: float) -> UpsertCounts:
    """Configuration is taken over; what reports taught stays. All or nothing, in bounded memory."""
    total = UpsertCounts()
    remaining = iter(records)
    async with db.write() as c:
        numbers = await numbers_from(c, now)
        while chunk := list(islice(remaining, CHUNK)):
            total = total.and_then(await _upsert_chunk(db, c, chunk, now, numbers))
    return total


async def _upsert_chunk(
    db: Database, c: AsyncConnection, records: Sequence[RepoRecord], now: float, numbers: Iterator[int]
) -> UpsertCounts:
    configs = {r.key: (rows.config_in(r), r) for r in records}
    known = await _configs(db, c, list(configs))
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    back = 0
    for key, (config, record) in configs.items():
        old = known.get(key)
        if old is None:
            state = rows.state_in(record)
            new.append({**config, **state, "created_at": now, "updated_at": now, "change_seq": next(numbers)})
        elif old != config:
            # UPDATE binds its columns by name, so the row is found by a name that is no column.
            seq = next(numbers) if _served_otherwise(old, config) else None
            changed.append({**config, "at": now, "row_key": key, "seq": seq})
            back += "removed" in old
    try:
        if new:
            await c.execute(repos.insert(), new)
        if changed:
            await c.execute(_TAKE_CONFIG, changed)
    except IntegrityError:
        raise Conflict("an alias is already that of another repo") from None
    unchanged = len(configs) - len(new) - len(changed)
    moved = tuple(RepoKey(row["key"]) for row in new + changed)
    return UpsertCounts(len(new) + back, len(changed) - back, unchanged, moved)


def _served_otherwise(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "removed" in old or any(old[name] != new[name] for name in SERVED)


# As rows.config_in makes them.
_CONFIG = (
    "key", "url", "host", "alias", "source", "info", "priority", "interval_s", "mode", "private",
    "credential", "fallbacks", "pins", "enabled",
)  # fmt: skip

# A repo that is enabled again, or was restored, is as active as what is known of its mirror.
_REVIVED = sa.case(
    (repos.c.status != RepoStatus.INACTIVE.value, repos.c.status),
    (repos.c.digest.is_not(None), RepoStatus.ACTIVE.value),
    else_=RepoStatus.PENDING.value,
)

# One that is added again starts anew: its mirror went to the trash when it left.
_WAS_REMOVED = repos.c.removed_at.is_not(None)

_TAKE_CONFIG = (
    repos.update()
    .where(repos.c.key == sa.bindparam("row_key"))
    .values(
        {name: sa.bindparam(name) for name in _CONFIG if name != "key"}
        | {
            "removed_at": None,
            "status": sa.case(
                (sa.not_(sa.bindparam("enabled", type_=sa.Boolean())), RepoStatus.INACTIVE.value),
                (_WAS_REMOVED, RepoStatus.PENDING.value),
                else_=_REVIVED,
            ),
            "digest": sa.case((_WAS_REMOVED, None), else_=repos.c.digest),
            "verified_at": sa.case((_WAS_REMOVED, None), else_=repos.c.verified_at),
            "updated_at": sa.bindparam("at"),
            "change_seq": sa.func.coalesce(sa.bindparam("seq", type_=sa.BigInteger()), repos.c.change_seq),
        }
    )
)


async def _configs(db: Database, c: AsyncConnection, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Configuration columns by key; a removed repo's differ from any other by the mark ``removed``."""
    statement = sa.select(*(repos.c[name] for name in _CONFIG), repos.c.removed_at)
    found: dict[str, dict[str, Any]] = {}
    remaining = iter(keys)
    while chunk := list(islice(remaining, KEYS_IN_QUERY)):
        for row in await c.execute(statement.where(db.among(repos.c.key, chunk))):
            config = dict(zip(_CONFIG, row, strict=False))
            if row.removed_at is not None:
                config["removed"] = True
            found[row.key] = config
    return found


async def page(db: Database, which: RepoSelection) -> tuple[RepoRecord, ...]:
    """The next repos in the order of keys. Search finds a part of key, URL or alias, in any ASCII case."""
    texts = (which.search, which.host, which.after or "")
    if not all(rows.storable(t) for t in texts) or len(which.search.encode()) > rows.NAME_BYTES_MAX:
        return ()  # no stored text is like that
    query = sa.select(repos).where(IN_CATALOG).order_by(repos.c.key).limit(max(0, min(which.limit, LIST_MAX)))
    if which.after is not None:
        query = query.where(repos.c.key > which.after)
    if which.status is not None:
        query = query.where(repos.c.status == which.status.value)
    if which.host:
        query = query.where(repos.c.host == which.host)
    if which.search:
        columns = (repos.c.key, repos.c.url, repos.c.alias)
        query = query.where(sa.or_(*(c.icontains(which.search, autoescape=True) for c in columns)))
    async with db.read() as c:
        return tuple(rows.repo_out(r) for r in await c.execute(query))


async def remove(db: Database, keys: Iterable[str], at: float) -> int:
    """They leave the catalog; what is known of them stays. Returns how many were in it."""
    here = sa.select(repos.c.id).where(IN_CATALOG)
    remaining = iter([key for key in dict.fromkeys(keys) if rows.storable(key)])
    count = 0
    async with db.write() as c:
        numbers = await numbers_from(c, at)
        while chunk := list(islice(remaining, KEYS_IN_QUERY)):
            found = (await c.scalars(here.where(db.among(repos.c.key, chunk)))).all()
            if found:
                await c.execute(_REMOVE, [{"row_id": i, "at": at, "seq": next(numbers)} for i in found])
            count += len(found)
    return count


_REMOVE = (
    repos.update()
    .where(repos.c.id == sa.bindparam("row_id"))
    .values(
        removed_at=sa.bindparam("at"),
        updated_at=sa.bindparam("at"),
        status=RepoStatus.INACTIVE.value,
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
        back = back.values(change_seq=next(await numbers_from(c, at)))
        try:
            row = (await c.execute(back.where(repos.c.key == key))).one_or_none()
        except IntegrityError:
            raise Conflict(f"the alias of {key} is now that of another repo") from None
    if row is None:
        raise NotFound(f"no repo {key!r}")
    return rows.repo_out(row)


async def chunks(db: Database) -> AsyncIterator[tuple[KnownRepo, ...]]:
    """Every repo that is to be mirrored, some thousands at a time, each chunk read in its own transaction."""
    unused = {"info", "last_failure"}  # the large ones
    query = (
        sa.select(*(c for c in repos.c if c.name not in unused))
        .where(repos.c.id > sa.bindparam("after"), IN_CATALOG, repos.c.enabled)
        .order_by(repos.c.id)
        .limit(CHUNK)
    )
    after = 0

    async def next_chunk() -> Sequence[Any]:
        async with db.read() as c:
            return (await c.execute(query, {"after": after})).all()

    while found := await whole(next_chunk()):
        after = found[-1].id
        yield tuple(KnownRepo(rows.spec_out(r), r.digest, r.verified_at, rows.activity_out(r)) for r in found)


async def assigned(db: Database, keys: Sequence[RepoKey]) -> list[AssignedSpec]:
    """Those of the keys that are in the catalog, in the order asked; one statement."""
    if len(keys) > SPECS_MAX:
        raise ValueError(f"{len(keys)} repos were asked for, and at most {SPECS_MAX} can be")
    asked = [key for key in dict.fromkeys(keys) if rows.storable(key)]
    query = sa.select(*_SPEC).where(IN_CATALOG, db.among_many(repos.c.key, asked))
    async with db.read() as c:
        found = {
            row.key: AssignedSpec(rows.spec_out(row), rows.activity_out(row), row.enabled)
            for row in await c.execute(query)
        }
    return [found[key] for key in asked if key in found]


_SPEC = tuple(
    repos.c[name]
    for name in (
        "key", "url", "host", "priority", "interval_s", "mode", "private", "credential", "fallbacks",
        "pulled", "enabled", *rows.activity_in(Activity()),
    )
)  # fmt: skip


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
