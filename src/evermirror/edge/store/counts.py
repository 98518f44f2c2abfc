"""Repos in figures: how many there are of each kind, how fresh they are, and what fails.

Counting a million rows is a walk through an index, so there is one walk for all that is counted of every
repo. What is late, or was never verified, is searched for: it is little where all is well. The rest is fresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.model.failure import FailureKind
from evermirror.model.repo import Priority, RepoKey, RepoStatus
from evermirror.model.whole import FailureCount

SAMPLE = 3  # repos that are named of each failure

_LIVE = tuple(status for status in RepoStatus if status.is_live)


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Live repos of one priority: those that upstream still offers us."""

    live: int = 0
    fresh: int = 0
    never_verified: int = 0
    oldest_verified_at: float | None = None


@dataclass(frozen=True, slots=True)
class OverviewCounts:
    """Repos in the catalog. ``failures``: of those whose last attempt failed, most first."""

    by_status: Mapping[str, int]
    by_priority: Mapping[str, int]
    classes: Mapping[Priority, ClassCounts]
    failures: tuple[FailureCount, ...]

    @property
    def total(self) -> int:
        return sum(self.by_status.values())

    @property
    def fresh(self) -> int:
        return sum(one.fresh for one in self.classes.values())

    @property
    def never_verified(self) -> int:
        return sum(one.never_verified for one in self.classes.values())

    @property
    def oldest_verified_at(self) -> float | None:
        times = (one.oldest_verified_at for one in self.classes.values())
        return min((at for at in times if at is not None), default=None)


async def overview(db: Database, fresh_since: float) -> OverviewCounts:
    """Fresh are live repos that were verified at this time or later."""
    async with db.read() as c:
        kinds = (await c.execute(_kinds())).all()
        never = await _by_class(c, repos.c.verified_at.is_(None))
        late = await _by_class(c, repos.c.verified_at < fresh_since)
        oldest = await _oldest(c)
        failures = await _failures(c)
    by_status: Counter[str] = Counter()
    by_priority: Counter[str] = Counter()
    live: Counter[str] = Counter()
    for _, priority, status, count in kinds:
        by_status[status] += count
        by_priority[priority] += count
        live[priority] += count if RepoStatus(status).is_live else 0
    return OverviewCounts(
        by_status={s.value: by_status[s.value] for s in RepoStatus},
        by_priority={p.value: by_priority[p.value] for p in Priority},
        classes={
            p: ClassCounts(
                live[p.value],
                live[p.value] - late[p.value] - never[p.value],
                never[p.value],
                oldest.get(p.value),
            )
            for p in Priority
        },
        failures=failures,
    )


def _kinds() -> sa.Select[Any]:
    kind = (repos.c.pulled, repos.c.priority, repos.c.status)  # as the index on freshness begins
    return sa.select(*kind, sa.func.count()).where(IN_CATALOG).group_by(*kind)


async def _by_class(c: AsyncConnection, verified: sa.ColumnElement[bool]) -> Counter[str]:
    """Live repos. The columns that the index on freshness begins with are named, so that it is searched and
    not walked through."""
    counted: Counter[str] = Counter()
    begin = (repos.c.pulled, repos.c.priority)
    query = (
        sa.select(*begin, sa.func.count())
        .where(
            IN_CATALOG,
            repos.c.pulled.in_([False, True]),
            repos.c.priority.in_([p.value for p in Priority]),
            repos.c.status.in_([s.value for s in _LIVE]),
            verified,
        )
        .group_by(*begin)
    )
    for _, priority, count in await c.execute(query):
        counted[priority] += count
    return counted


async def _oldest(c: AsyncConnection) -> dict[str, float]:
    """The oldest verification of each class."""
    parts = [(pulled, p.value, s.value) for pulled in (False, True) for p in Priority for s in _LIVE]
    times = (await c.execute(sa.select(*(_oldest_of(*part) for part in parts)))).one()
    oldest: dict[str, float] = {}
    for (_, priority, _), at in zip(parts, times, strict=True):
        if at is not None:
            oldest[priority] = min(at, oldest.get(priority, at))
    return oldest


def _oldest_of(pulled: bool, priority: str, status: str) -> sa.ScalarSelect[Any]:
    """In one part of the index on freshness: one step."""
    return (
        sa.select(repos.c.verified_at)
        .where(
            IN_CATALOG,
            repos.c.pulled == sa.literal(pulled),
            repos.c.priority == priority,
            repos.c.status == status,
            repos.c.verified_at.is_not(None),
        )
        .order_by(repos.c.verified_at)
        .limit(1)
        .scalar_subquery()
    )


async def _failures(c: AsyncConnection) -> tuple[FailureCount, ...]:
    kind = repos.c.failure_kind
    query = sa.select(kind, sa.func.count()).where(IN_CATALOG, kind.is_not(None)).group_by(kind)
    counted = {row[0]: row[1] for row in await c.execute(query)}
    samples = await _samples(c, counted)
    most_first = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(FailureCount(name, count, samples.get(name, ())) for name, count in most_first)


async def _samples(c: AsyncConnection, kinds: Iterable[str]) -> dict[str, tuple[RepoKey, ...]]:
    """Some repos of each kind, whichever the index has first."""
    some = [
        sa.select(repos.c.failure_kind, repos.c.key)
        .where(IN_CATALOG, repos.c.failure_kind == kind)
        .limit(SAMPLE)
        .subquery()
        for kind in sorted(kinds)[: len(FailureKind)]
    ]
    if not some:
        return {}
    found: dict[str, tuple[RepoKey, ...]] = {}
    for name, key in await c.execute(sa.union_all(*(sa.select(one) for one in some))):
        found[name] = (*found.get(name, ()), key)
    return {name: tuple(sorted(keys)) for name, keys in found.items()}
