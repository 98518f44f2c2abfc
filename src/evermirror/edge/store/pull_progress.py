"""How far pull mirroring is: all projects counted in one walk over an index.

core/watch/progress.py says what each project counts as. What does not depend on the time is written with the
project (``standing``); here it is only looked whether it is overdue meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.watch.progress import SyncState
from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, pull_projects, repos
from evermirror.model.figures import ClassProgress
from evermirror.model.repo import Priority

KEYS_IN_QUERY = 500

_LEFT = sa.select(repos.c.id).where(repos.c.removed_at.is_not(None), repos.c.pulled)
_NOW: sa.BindParameter[float] = sa.bindparam("p_now", type_=sa.Double())


async def progress(db: Database, now: float, syncing: Collection[str]) -> Mapping[Priority, ClassProgress]:
    """Each class, also those without a project. ``syncing``: those whose task runs, a bounded number."""
    times = {"p_now": now}
    tallies = {priority.value: _Tally() for priority in Priority}
    async with db.read() as c:
        for row in await c.execute(_COUNT_PROJECTS, times):
            tallies[row.priority].add(SyncState(row.standing), row)
        await _move_to_syncing(db, c, times, syncing, tallies)
    return {Priority(name): tally.told() for name, tally in tallies.items()}


@dataclass(slots=True)
class _Tally:
    """One class. Of what is well, or only waits, some is late: that is pending."""

    states: dict[SyncState, int] = field(default_factory=lambda: dict.fromkeys(SyncState, 0))
    measured: int = 0
    delays_s: float = 0.0
    worst_s: float | None = None

    def add(self, state: SyncState, row: rows.Row) -> None:
        late = int(row.late or 0) if state is SyncState.SYNCED else 0
        self.states[state] += row.count_ - late
        self.states[SyncState.PENDING] += late
        if state is not SyncState.DISABLED:
            self._measure(row)

    def move_to_syncing(self, state: SyncState, row: rows.Row) -> None:
        """One that was counted; a disabled one is measured from now on."""
        late = state is SyncState.SYNCED and row.late
        self.states[SyncState.PENDING if late else state] -= 1
        self.states[SyncState.SYNCING] += 1
        if state is SyncState.DISABLED:
            self._measure(row)

    def _measure(self, row: rows.Row) -> None:
        self.measured += row.measured
        self.delays_s += row.delays_s or 0.0
        if row.worst_s is not None:
            self.worst_s = max(row.worst_s, self.worst_s or 0.0)

    def told(self) -> ClassProgress:
        states = self.states
        return ClassProgress(
            total=sum(states.values()),
            synced=states[SyncState.SYNCED],
            syncing=states[SyncState.SYNCING],
            pending=states[SyncState.PENDING],
            failed=states[SyncState.FAILED],
            disabled=states[SyncState.DISABLED],
            average_delay_s=self.delays_s / self.measured if self.measured else None,
            measured=self.measured,
            worst_delay_s=self.worst_s,
        )


async def _move_to_syncing(
    db: Database,
    c: AsyncConnection,
    times: Mapping[str, float],
    syncing: Collection[str],
    tallies: Mapping[str, _Tally],
) -> None:
    remaining = iter([key for key in dict.fromkeys(syncing) if rows.storable(key)])
    while chunk := list(islice(remaining, KEYS_IN_QUERY)):
        these = (IN_CATALOG, db.among_many(repos.c.key, chunk))
        for row in await c.execute(_EACH_PROJECT.where(*these), times):
            tallies[row.priority].move_to_syncing(SyncState(row.standing), row)


def _late(of: sa.ColumnElement[bool]) -> sa.Case[Any]:
    return sa.case((of, 1), else_=0)


def _delay(at: sa.Column[Any]) -> sa.Case[Any]:
    """NULL where it was never synced."""
    return sa.case((at < _NOW, _NOW - at), (at >= _NOW, 0.0))


_OVERDUE = _late(pull_projects.c.overdue_at < _NOW)


def _counted(late: sa.ColumnElement[Any], at: sa.Column[Any]) -> tuple[sa.ColumnElement[Any], ...]:
    return (
        sa.func.count().label("count_"),
        sa.func.sum(late).label("late"),
        sa.func.count(at).label("measured"),
        sa.func.sum(_delay(at)).label("delays_s"),
        sa.func.max(_delay(at)).label("worst_s"),
    )


def _single(late: sa.ColumnElement[Any], at: sa.Column[Any]) -> tuple[sa.ColumnElement[Any], ...]:
    measured = sa.case((at.is_(None), 0), else_=1).label("measured")
    return late.label("late"), measured, _delay(at).label("delays_s"), _delay(at).label("worst_s")


_COUNT_PROJECTS = (
    sa.select(
        pull_projects.c.priority,
        pull_projects.c.standing,
        *_counted(_OVERDUE, pull_projects.c.last_sync_at),
    )
    .where(pull_projects.c.repo.not_in(_LEFT))
    .group_by(pull_projects.c.priority, pull_projects.c.standing)
)
_EACH_PROJECT = sa.select(
    pull_projects.c.priority, pull_projects.c.standing, *_single(_OVERDUE, pull_projects.c.last_sync_at)
).select_from(pull_projects.join(repos, repos.c.id == pull_projects.c.repo))
