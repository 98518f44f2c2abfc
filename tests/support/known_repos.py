"""Every repo that is to be mirrored, as its row has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.repos import IN_CATALOG
from evermirror.edge.store.store import Store
from evermirror.edge.store.tables import repos
from evermirror.model.activity import Activity
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoSpec


@dataclass(frozen=True, slots=True)
class KnownRepo:
    spec: RepoSpec
    digest: RefsDigest | None
    verified_at: float | None
    activity: Activity


async def known_repos(store: Store) -> list[KnownRepo]:
    query = sa.select(repos).where(IN_CATALOG, repos.c.enabled).order_by(repos.c.id)
    async with store._db.read() as c:
        found = (await c.execute(query)).all()
    return [KnownRepo(rows.spec_out(r), r.digest, r.verified_at, _activity(r)) for r in found]


def _activity(row: Any) -> Activity:
    counts = (row.activity_fast, row.activity_middle, row.activity_slow)
    return rows.activity_of(*counts, row.activity_as_of, row.last_push_at, row.activity_rhythm)
