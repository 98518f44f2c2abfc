"""Changes that others follow: each takes the next number, in the transaction that makes it.

Writers take turns (database.py), so numbers become visible in their order: who has seen all up to one misses
nothing by asking for what comes after. A repo has the number of its latest change only, which bounds all that
can ever be asked for. Numbers are never below the clock (in microseconds): a database put back from a backup
goes on above all that it ever gave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import repos
from evermirror.model.changes import Change
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey, RepoStatus

CHANGES_MAX = 1000  # told at once
KEYS_MAX = 500  # asked for at once
MICROSECONDS = 1_000_000

# What whoever serves a repo, or fetches it, must know. Columns of rows.config_in.
SERVED = (
    "url", "host", "alias", "priority", "mode", "private", "credential", "fallbacks", "fsck_allow", "enabled",
)  # fmt: skip

_HELD = RepoStatus.HELD.value


async def numbers_from(c: AsyncConnection, now: float) -> Iterator[int]:
    """Numbers for the changes of this transaction; those that are not used are lost, which is no matter."""
    last = (await c.execute(sa.select(sa.func.max(repos.c.change_seq)))).scalar_one_or_none() or 0
    return count(max(last, int(now * MICROSECONDS)) + 1)


def numbered(seq: sa.ColumnElement[Any], *changed: sa.ColumnElement[bool]) -> sa.Case[Any]:
    """For UPDATE: the new number where any of these holds of the row as it was."""
    return sa.case((sa.or_(*changed), seq), else_=repos.c.change_seq)


def was_held() -> sa.ColumnElement[bool]:
    """A guard held a change of it back."""
    return repos.c.status == _HELD


async def since(db: Database, seq: int, limit: int) -> tuple[Change, ...]:
    """The next changes after this number, in the order of numbers; nobody is named as a holder."""
    query = (
        sa.select(*_COLUMNS)
        .where(repos.c.change_seq > seq)
        .order_by(repos.c.change_seq)
        .limit(max(0, min(limit, CHANGES_MAX)))
    )
    async with db.read() as c:
        return tuple(_change_out(row) for row in await c.execute(query))


async def digests(db: Database, keys: Sequence[RepoKey]) -> dict[RepoKey, RefsDigest | None]:
    """As last reported, of those of the keys that are in the catalog."""
    if len(keys) > KEYS_MAX:
        raise ValueError(f"{len(keys)} repos were asked for, and at most {KEYS_MAX} can be")
    asked = [key for key in dict.fromkeys(keys) if rows.storable(key)]
    query = sa.select(repos.c.key, repos.c.digest).where(
        repos.c.removed_at.is_(None), db.among_many(repos.c.key, asked)
    )
    async with db.read() as c:
        return {RepoKey(key): digest for key, digest in await c.execute(query)}


_COLUMNS = tuple(
    repos.c[name]
    for name in (
        "change_seq", "key", "url", "host", "alias", "priority", "interval_s", "mode", "private",
        "credential", "fallbacks", "pulled", "hooked", "fsck_allow", "enabled", "status", "digest",
        "size_bytes", "verified_at", "changed_at", "removed_at",
    )
)  # fmt: skip


def _change_out(row: rows.Row) -> Change:
    return Change(
        seq=row.change_seq,
        spec=rows.spec_out(row),
        alias=row.alias,
        enabled=row.enabled,
        digest=None if row.digest is None else RefsDigest(row.digest),
        verified_at=row.verified_at,
        changed_at=row.changed_at,
        size_bytes=row.size_bytes,
        held_back=row.status == _HELD,
        removed=row.removed_at is not None,
    )
