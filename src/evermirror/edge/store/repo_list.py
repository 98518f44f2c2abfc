"""Lists of repos: filtered, searched, in any order, a page at a time, and counted.

A page goes on behind the last repo shown (its value and its key), never by a number of rows to skip: so what
keeps its place is shown once, whatever comes, goes or moves meanwhile. What never happened (null) is the
least of all, on both engines.

A question is answered from ``ix_repos_list``, which holds in the order of keys all that one can ask and sort
by: at the worst one walk through it, which is a tenth of a second for a million repos, and whole rows are
looked up for the page alone. Where SQLite would choose less well, it is told which index to take. An alias is
too long for that index, beside a key, on PostgreSQL: those few are looked through on their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import repo_search, rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, copies, repos, workers
from evermirror.model.failure import FailureKind
from evermirror.model.repo import Priority, RepoKey, RepoRecord, RepoStatus
from evermirror.model.repo_order import RepoSort, SortValue

LIST_MAX = 1000  # rows of one page, as the API promises
KEYS_MAX = 10_000  # keys of one step through a selection
FEW = 20_000  # a worker's copies: so many are sooner looked up than those of a page are found in the list
MANY = 300_000  # the same where the whole list would be walked through
_WORKER_ID = re.compile(r"[0-9]{1,9}", re.ASCII)


class RepoSelection(Protocol):
    """Which repos a list shows; ``after`` and ``after_value`` tell the last one already seen."""

    @property
    def search(self) -> str: ...
    @property
    def status(self) -> RepoStatus | None: ...
    @property
    def host(self) -> str: ...
    @property
    def priority(self) -> Priority | None: ...
    @property
    def worker(self) -> str: ...
    @property
    def failure(self) -> FailureKind | None: ...
    @property
    def public(self) -> bool: ...
    @property
    def sort(self) -> RepoSort: ...
    @property
    def after(self) -> RepoKey | None: ...
    @property
    def after_value(self) -> SortValue: ...
    @property
    def limit(self) -> int: ...


async def page(db: Database, which: RepoSelection) -> tuple[RepoRecord, ...]:
    """The next repos of the list, at most 1,000."""
    async with db.read(planned_anew=True) as c:
        parts = await _parts(db, c, which, may_stop=which.sort.field is None)
        if not parts:
            return ()
        here = _page(parts, which.sort, _behind(which), max(0, min(which.limit, LIST_MAX))).subquery()
        query = sa.select(repos).where(repos.c.id.in_(sa.select(here.c.id)))
        query = query.order_by(*_order(which.sort, _value(which.sort), repos.c.key))
        found = await c.execute(query.with_hint(repos, _BY_NUMBER, "sqlite"))
        return tuple(rows.repo_out(row) for row in found)


async def keys(db: Database, which: RepoSelection) -> tuple[RepoKey, ...]:
    """The keys of the next repos behind ``after`` in the order of keys, at most 10,000; ``sort`` is nothing
    here."""
    behind = sa.true() if which.after is None else repos.c.key > which.after
    async with db.read(planned_anew=True) as c:
        parts = await _parts(db, c, which, may_stop=True)
        if not parts:
            return ()
        here = _page(parts, RepoSort.KEY, behind, max(0, min(which.limit, KEYS_MAX))).subquery()
        found = await c.scalars(sa.select(here.c.key).order_by(here.c.key))
        return tuple(RepoKey(key) for key in found)


async def count(db: Database, which: RepoSelection) -> int:
    """How many repos the whole list shows."""
    async with db.read(planned_anew=True) as c:
        parts = await _parts(db, c, which, may_stop=False)
        return sum([(await c.execute(part.over(sa.select(sa.func.count())))).scalar_one() for part in parts])


@dataclass(frozen=True, slots=True)
class _Part:
    """Repos of a list, and which index SQLite is told to take for them; it may be none."""

    where: tuple[sa.ColumnElement[bool], ...]
    hint: str

    def page(self, sort: RepoSort, behind: sa.ColumnElement[bool], limit: int) -> sa.Select[Any]:
        value = _value(sort)
        of_value = sa.null() if value is None else value
        query = sa.select(repos.c.id, repos.c.key, of_value.label("value")).where(behind)
        return self.over(query).order_by(*_order(sort, value, repos.c.key)).limit(limit)

    def over(self, query: sa.Select[Any]) -> sa.Select[Any]:
        query = query.select_from(repos).where(IN_CATALOG, *self.where)
        return query.with_hint(repos, self.hint, "sqlite") if self.hint else query


def _page(
    parts: Sequence[_Part], sort: RepoSort, behind: sa.ColumnElement[bool], limit: int
) -> sa.Select[Any]:
    """The first of all parts together."""
    firsts = [part.page(sort, behind, limit).subquery() for part in parts]
    if len(firsts) == 1:
        return sa.select(firsts[0])
    all_of_them = sa.union_all(*(sa.select(first) for first in firsts)).subquery()
    value, key = all_of_them.c.value, all_of_them.c.key
    return sa.select(all_of_them).order_by(*_order(sort, value, key)).limit(limit)


_LIST = "INDEXED BY ix_repos_list"
_ALIASES = "INDEXED BY uq_repos_alias"
_BY_NUMBER = "NOT INDEXED"  # by the rows' own numbers


async def _parts(
    db: Database, c: AsyncConnection, which: RepoSelection, *, may_stop: bool
) -> tuple[_Part, ...]:
    """The parts of a list, no two of which hold the same repo; none where no repo is like that.

    ``may_stop``: they are walked through in the order of keys, until a page is full."""
    texts = (which.search, which.host, which.worker, which.after or "")
    if not all(rows.storable(t) for t in texts) or len(which.search.encode()) > rows.NAME_BYTES_MAX:
        return ()  # no stored text is like that
    where, hint = _filters(which), _LIST
    patterns = repo_search.key_patterns(which.search)
    alone = len(where) == 1 and patterns is None
    if which.worker:
        held = await _held(c, which.worker, FEW if may_stop or patterns is not None else MANY)
        if held is None:
            return ()
        where, hint = (*where, held.condition), _BY_NUMBER if held.few else _LIST
    elif alone and may_stop and (which.host or which.status is not None):
        hint = ""  # each has its own index, in the order of keys
    if patterns is None:
        return (_Part(where, hint),)
    in_key = _found(db, repos.c.key, *patterns)
    in_alias = _found(db, repos.c.alias, repo_search.part_pattern(which.search))
    by_alias = (repos.c.alias >= "", in_alias, sa.not_(in_key))
    return (_Part((*where, in_key), hint), _Part((*where, *by_alias), _ALIASES))


def _filters(which: RepoSelection) -> tuple[sa.ColumnElement[bool], ...]:
    asked: list[sa.ColumnElement[bool]] = []
    if which.status is not None:
        asked.append(repos.c.status == which.status.value)
    if which.host:
        asked.append(repos.c.host == which.host)
    if which.priority is not None:
        asked.append(repos.c.priority == which.priority.value)
    if which.failure is not None:
        asked.append(repos.c.failure_kind == which.failure.value)
    if which.public:
        asked.append(repos.c.private.is_(False))
    return tuple(asked)


@dataclass(frozen=True, slots=True)
class _Held:
    condition: sa.ColumnElement[bool]
    few: bool


async def _held(c: AsyncConnection, name: str, few: int) -> _Held | None:
    """That a repo is held by this worker, or should be; None: nobody is called so.

    As elsewhere a worker is named by its name, or by its number where nobody has such a name."""
    ids = list(await c.scalars(sa.select(workers.c.id).where(workers.c.name == name)))
    if not ids and _WORKER_ID.fullmatch(name):
        ids = list(await c.scalars(sa.select(workers.c.id).where(workers.c.id == int(name))))
    if not ids:
        return None
    its = sa.select(copies.c.repo).where(copies.c.worker.in_(ids))
    some = its.limit(few + 1).subquery()
    number = (await c.execute(sa.select(sa.func.count()).select_from(some))).scalar_one()
    if number <= few:
        return _Held(repos.c.id.in_(its), few=True)
    return _Held(its.where(copies.c.repo == repos.c.id).exists(), few=False)


def _found(db: Database, column: sa.Column[Any], *patterns: str) -> sa.ColumnElement[bool]:
    """Whether a text is like one of these, in any ASCII case. PostgreSQL would turn the whole text into small
    letters for each ILIKE: so it is told to once, and is asked with all patterns together."""
    if db.is_sqlite:
        return sa.or_(*(column.like(pattern, escape=repo_search.ESCAPE) for pattern in patterns))
    small = sa.literal([repo_search.small(pattern) for pattern in patterns], postgresql.ARRAY(sa.Text()))
    return sa.func.lower(column).op("LIKE", is_comparison=True)(sa.any_(small))


# Order


def _value(sort: RepoSort) -> sa.Column[Any] | None:
    return None if sort.field is None else repos.c[sort.field]


def _order(
    sort: RepoSort, value: sa.ColumnElement[Any] | None, key: sa.ColumnElement[Any]
) -> list[sa.ColumnElement[Any]]:
    by_key = key.desc() if sort.descending else key.asc()
    if sort.field is None or value is None:
        return [by_key]
    return [value.desc().nulls_last() if sort.descending else value.asc().nulls_first(), by_key]


def _behind(which: RepoSelection) -> sa.ColumnElement[bool]:
    """What comes after the last one seen."""
    if which.after is None:
        return sa.true()
    down = which.sort.descending
    key = repos.c.key < which.after if down else repos.c.key > which.after
    value, seen = _value(which.sort), which.after_value
    if value is None:
        return key
    if seen is None:
        alike = sa.and_(value.is_(None), key)
        return alike if down else sa.or_(value.is_not(None), alike)
    at = sa.literal(seen, sa.BigInteger() if isinstance(seen, int) else sa.Double())
    alike = sa.and_(value == at, key)
    return sa.or_(value < at, value.is_(None), alike) if down else sa.or_(value > at, alike)
