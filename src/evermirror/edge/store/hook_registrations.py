"""Our hooks at forges, as last seen; and the catalog's repos, in the order in which forges are asked.

A *lot* is the repos of one host that sign in alike: what is decided about one holds for all of it. Lots are
counted first and read page by page, so that a million repos are never in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.news_tables import hook_registrations
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.edge.store.whole import whole
from evermirror.model.forge import Forge
from evermirror.model.hook import HookRegistration, RegistrationState
from evermirror.model.repo import Host, RepoKey

PAGE_MAX = 1_000
KEYS_IN_QUERY = 500


@dataclass(frozen=True, slots=True)
class HookScope:
    """Which of the catalog's repos. ``group``: the beginning of their keys, up to a slash; "": all."""

    group: str = ""
    disabled_too: bool = False


@dataclass(frozen=True, slots=True)
class Lot:
    """``count``: how many repos it has."""

    host: Host
    credential: str | None
    count: int


@dataclass(frozen=True, slots=True)
class HookedRepo:
    """What is asked about."""

    key: RepoKey
    url: str
    host: Host
    credential: str | None


class RegistrationStore(StorePart):
    async def put_registrations(self, registrations: Sequence[HookRegistration]) -> None:
        """In the place of what was known of these repos; one transaction."""
        if registrations:
            await whole(put(self._db, registrations))

    async def registrations_of(self, keys: Iterable[RepoKey]) -> dict[RepoKey, HookRegistration]:
        return await whole(of_keys(self._db, keys))

    async def hook_lots(self, scope: HookScope) -> tuple[Lot, ...]:
        """In the order of hosts."""
        return await whole(lots(self._db, scope))

    async def hook_page(
        self, scope: HookScope, lot: Lot, after: RepoKey | None, limit: int
    ) -> tuple[HookedRepo, ...]:
        """The next of a lot in the order of keys; at most 1,000."""
        return await whole(page(self._db, scope, lot, after, limit))


async def put(db: Database, registrations: Sequence[HookRegistration]) -> None:
    insert = db.insert(hook_registrations)
    columns = [c.name for c in hook_registrations.c if c.name != "key"]
    statement = insert.on_conflict_do_update(
        index_elements=["key"], set_={name: insert.excluded[name] for name in columns}
    )
    values = [_row(registration) for registration in {r.key: r for r in registrations}.values()]
    async with db.write() as c:
        await c.execute(statement, values)


async def of_keys(db: Database, keys: Iterable[RepoKey]) -> dict[RepoKey, HookRegistration]:
    remaining = iter([key for key in dict.fromkeys(keys) if rows.storable(key)])
    found: dict[RepoKey, HookRegistration] = {}
    async with db.read() as c:
        while chunk := list(islice(remaining, KEYS_IN_QUERY)):
            query = sa.select(hook_registrations).where(db.among(hook_registrations.c.key, chunk))
            for row in await c.execute(query):
                found[RepoKey(row.key)] = registration_out(row)
    return found


async def lots(db: Database, scope: HookScope) -> tuple[Lot, ...]:
    query = (
        sa.select(repos.c.host, repos.c.credential, sa.func.count().label("repos"))
        .where(*_within(scope))
        .group_by(repos.c.host, repos.c.credential)
        .order_by(repos.c.host, sa.func.coalesce(repos.c.credential, ""))
    )
    async with db.read() as c:
        return tuple(Lot(Host(r.host), r.credential, r.repos) for r in await c.execute(query))


async def page(
    db: Database, scope: HookScope, lot: Lot, after: RepoKey | None, limit: int
) -> tuple[HookedRepo, ...]:
    same_login = (
        repos.c.credential.is_(None) if lot.credential is None else repos.c.credential == lot.credential
    )
    query = (
        sa.select(repos.c.key, repos.c.url, repos.c.host, repos.c.credential)
        .where(*_within(scope), _below(lot.host), repos.c.host == lot.host, same_login)
        .order_by(repos.c.key)
        .limit(max(0, min(limit, PAGE_MAX)))
    )
    if after is not None:
        query = query.where(repos.c.key > after)
    async with db.read() as c:
        return tuple(
            HookedRepo(RepoKey(r.key), r.url, Host(r.host), r.credential) for r in await c.execute(query)
        )


def registration_out(row: sa.Row[tuple[object, ...]]) -> HookRegistration:
    return HookRegistration(
        RepoKey(row.key),
        Forge(row.forge),
        RegistrationState(row.state),
        row.hook_id,
        row.problem,
        row.checked_at,
    )


def _within(scope: HookScope) -> list[sa.ColumnElement[bool]]:
    which: list[sa.ColumnElement[bool]] = [IN_CATALOG]
    if not scope.disabled_too:
        which.append(repos.c.enabled)
    if scope.group:
        beginning = scope.group.rstrip("/")
        which.append(sa.or_(repos.c.key == beginning, _below(beginning)))
    return which


def _below(beginning: str) -> sa.ColumnElement[bool]:
    """By the index of keys, which begin with their host; "0" is the sign after "/"."""
    return sa.and_(repos.c.key > f"{beginning}/", repos.c.key < f"{beginning}0")


def _row(registration: HookRegistration) -> dict[str, object]:
    return {
        "key": rows.name_in(registration.key, "repo"),
        "forge": registration.forge.value,
        "state": registration.state.value,
        "hook_id": rows.free_text(registration.hook_id),
        "problem": rows.free_text(registration.problem),
        "checked_at": registration.checked_at,
    }
