"""Looks of the schedule that saw no change: a run of them is one row, however long it goes on.

A look that was a task of its own (pull mirroring) takes over the row before it, so that its own id stays the
one to ask for. ``folded`` counts the further looks of the run, ``created_at`` is when the run began, and the
other times are those of its newest look. A look that carries a failure (of a target) is never folded.

    success 7   skipped 8 (+3)   skipped 9      ->      success 7   skipped 9 (+4)

What a row stands for is taken over with it in one transaction, and the row is gone: so nothing is counted
twice, however often a report is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store.tables import tasks
from evermirror.model.task import TaskStatus, Trigger

IDS_IN_QUERY = 500  # named in one statement; SQLite's oldest limit is 999 parameters


async def fold_into_newest(c: AsyncConnection, repo: str, count: int, at: float) -> bool:
    """Adds looks that left no row of their own to the repo's newest row; False where that is no such run."""
    return bool((await c.execute(_FOLD, {"p_repo": repo, "p_count": count, "p_at": at})).rowcount)


async def fold_ended(c: AsyncConnection, ids: Iterable[int]) -> None:
    """Of these tasks those that ended as such a look take over the rows before them."""
    asked = sorted(set(ids))
    for begin in range(0, len(asked), IDS_IN_QUERY):
        pairs = (await c.execute(_PAIRS, {"p_ids": asked[begin : begin + IDS_IN_QUERY]})).all()
        if pairs:
            await _take_over(c, pairs)


@dataclass(slots=True)
class _Run:
    """What a row stands for: so many looks besides its own, since then."""

    folded: int
    since: float


async def _take_over(c: AsyncConnection, pairs: Sequence[Any]) -> None:
    """In the order of ids, as one that takes over may be taken over itself."""
    runs: dict[int, _Run] = {}
    for new, own, old, others, since in pairs:
        before = runs.pop(old, _Run(others, since))
        runs[new] = _Run(own + 1 + before.folded, before.since)
    await c.execute(_DROP, [{"p_id": pair.old} for pair in pairs])
    await c.execute(
        _KEEP, [{"p_id": new, "p_folded": run.folded, "p_since": run.since} for new, run in runs.items()]
    )


def _is_such_a_look(of: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(
        of.c.status == TaskStatus.SKIPPED.value,
        of.c.trigger == Trigger.SCHEDULE.value,
        of.c.failure_kind.is_(None),
    )


_FOLD = (
    tasks.update()
    .where(
        tasks.c.id
        == sa.select(sa.func.max(tasks.c.id)).where(tasks.c.repo == sa.bindparam("p_repo")).scalar_subquery(),
        _is_such_a_look(tasks),
    )
    .values(
        folded=tasks.c.folded + sa.bindparam("p_count", type_=sa.BigInteger()),
        completed_at=sa.bindparam("p_at"),
        updated_at=sa.bindparam("p_at"),
    )
)

_new, _old, _any = tasks.alias("newer"), tasks.alias("older"), tasks.alias("others")
_BEFORE = (
    sa.select(sa.func.max(_any.c.id))
    .where(_any.c.repo == _new.c.repo, _any.c.id < _new.c.id)
    .correlate(_new)
    .scalar_subquery()
)
_PAIRS = (
    sa.select(
        _new.c.id.label("new"),
        _new.c.folded.label("own"),
        _old.c.id.label("old"),
        _old.c.folded.label("others"),
        _old.c.created_at.label("since"),
    )
    .select_from(_new)
    .join(_old, _old.c.id == _BEFORE)
    .where(_new.c.id.in_(sa.bindparam("p_ids", expanding=True)), _is_such_a_look(_new), _is_such_a_look(_old))
    .order_by(_new.c.id)
)
_THIS = tasks.c.id == sa.bindparam("p_id")
_DROP = tasks.delete().where(_THIS)
_KEEP = (
    tasks.update().where(_THIS).values(folded=sa.bindparam("p_folded"), created_at=sa.bindparam("p_since"))
)
