"""Repos in figures: how many there are of each kind, and how fresh they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.model.repo import Priority, RepoStatus


@dataclass(frozen=True, slots=True)
class OverviewCounts:
    """Repos in the catalog. ``failures_by_kind`` counts those whose last attempt failed."""

    total: int
    by_status: Mapping[str, int]
    by_priority: Mapping[str, int]
    failures_by_kind: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Staleness:
    """The oldest verification among repos that upstream still offers us, and how many have none yet."""

    oldest_verified_at: float | None
    never_verified: int


async def overview(db: Database) -> OverviewCounts:
    async with db.read() as c:
        by_status = await _counts(c, repos.c.status, IN_CATALOG)
        by_priority = await _counts(c, repos.c.priority, IN_CATALOG)
        kinds = await _counts(c, repos.c.failure_kind, IN_CATALOG, repos.c.failure_kind.is_not(None))
    return OverviewCounts(
        total=sum(by_status.values()),
        by_status={s.value: by_status[s.value] for s in RepoStatus},
        by_priority={p.value: by_priority[p.value] for p in Priority},
        failures_by_kind=dict(kinds),
    )


async def count_fresh(db: Database, now: float, bound_s: float) -> int:
    """Repos in the catalog that were verified within ``bound_s``."""
    fresh = repos.c.verified_at >= now - bound_s
    query = sa.select(sa.func.count()).select_from(repos).where(IN_CATALOG, *_any_class(RepoStatus), fresh)
    async with db.read() as c:
        return int((await c.execute(query)).scalar_one())


async def staleness(db: Database) -> Staleness:
    """Repos that are switched off, gone or refused at upstream are left out: nobody can make them fresher."""
    live = [s for s in RepoStatus if s not in (RepoStatus.INACTIVE, RepoStatus.GONE, RepoStatus.AUTH)]
    never = (
        sa.select(sa.func.count())
        .select_from(repos)
        .where(IN_CATALOG, *_any_class(live), repos.c.verified_at.is_(None))
    )
    async with db.read() as c:
        oldest = [at for at in (await c.execute(_oldest_of_each(live))).one() if at is not None]
        return Staleness(
            oldest_verified_at=min(oldest, default=None),
            never_verified=int((await c.execute(never)).scalar_one()),
        )


def _any_class(statuses: Iterable[RepoStatus]) -> tuple[sa.ColumnElement[bool], ...]:
    """Names what the index on freshness begins with, so that it is searched and not walked through."""
    return (
        repos.c.pulled.in_([False, True]),
        repos.c.priority.in_([p.value for p in Priority]),
        repos.c.status.in_([s.value for s in statuses]),
    )


def _oldest_of_each(statuses: Iterable[RepoStatus]) -> sa.Select[Any]:
    """The oldest verification in each part of that index: one step each."""
    return sa.select(
        *(
            sa.select(repos.c.verified_at)
            .where(
                IN_CATALOG,
                repos.c.pulled == sa.literal(pulled),
                repos.c.priority == priority.value,
                repos.c.status == status.value,
                repos.c.verified_at.is_not(None),
            )
            .order_by(repos.c.verified_at)
            .limit(1)
            .scalar_subquery()
            for pulled in (False, True)
            for priority in Priority
            for status in statuses
        )
    )


async def _counts(c: AsyncConnection, column: sa.Column[Any], *where: sa.ColumnElement[bool]) -> Counter[str]:
    query = sa.select(column, sa.func.count()).where(*where).group_by(column)
    return Counter({row[0]: row[1] for row in await c.execute(query)})
