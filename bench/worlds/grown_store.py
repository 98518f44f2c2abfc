"""Questions to a coordinator's database with very many repos, and what people would write instead."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa

from evermirror.edge.store.store import Store
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.model.repo import RepoKey
from evermirror.model.repo_order import RepoSort
from evermirror.nodes.coordinator.overview import Figures
from evermirror.nodes.service import RepoFilter

PAGE = 100

Ask = Callable[[], Awaitable[object]]

PAGED = "a page of a list, in the order of keys"
SORTED = "a page of a list, the stalest first"
SEARCHED = "a search that finds one repo"
COUNTED = "the overview counted anew"
ANSWER = "the overview answered, asked each second"


def questions(store: Store, n: int) -> dict[str, tuple[Ask, Ask]]:
    """Ours, and what people would write."""
    middle = f"forge-3.example/team-{n // 2}"
    rare = RepoFilter(search=f"repository-{n - 1}", limit=PAGE)
    deep = RepoFilter(after=RepoKey(middle), limit=PAGE)
    stalest = RepoFilter(sort=RepoSort.VERIFIED, limit=PAGE)
    by_row = sa.select(repos).where(IN_CATALOG)
    fresh = sa.func.sum(sa.cast(repos.c.verified_at >= time.time() - 3600, sa.Integer()))
    kinds = sa.select(repos.c.status, repos.c.priority, sa.func.count(), fresh).where(IN_CATALOG)
    kinds = kinds.group_by(repos.c.status, repos.c.priority).with_hint(repos, "NOT INDEXED", "sqlite")
    like = by_row.where(repos.c.url.like(f"%{rare.search}%")).order_by(repos.c.key).limit(PAGE)

    def plain(query: sa.Select[Any]) -> Ask:
        async def ask() -> object:
            async with store._db.read() as c:
                return (await c.execute(query)).all()

        return ask

    return {
        PAGED: (
            lambda: store.list_repos(deep),
            plain(by_row.order_by(repos.c.key).limit(PAGE).offset(n // 2)),
        ),
        SORTED: (
            lambda: store.list_repos(stalest),
            plain(by_row.order_by(repos.c.verified_at, repos.c.key).limit(PAGE)),
        ),
        SEARCHED: (lambda: store.list_repos(rare), plain(like)),
        COUNTED: (lambda: store.overview_counts(time.time() - 3600), plain(kinds)),
    }


async def ms_of(ask: Ask) -> float:
    started = time.process_time()
    await ask()
    return (time.process_time() - started) * 1000


async def answer_ms(store: Store, answers: int) -> float:
    """Of each answer in a minute, as the API gives it; seconds go by between them."""
    gone_by_s = 0.0
    figures = Figures(store, {}, 3600.0, lambda: time.time() + gone_by_s)
    await figures.overview()
    spent_s = 0.0
    for _ in range(answers):
        gone_by_s += 1.0
        started = time.process_time()
        await figures.overview()
        spent_s += time.process_time() - started
    return spent_s / answers * 1000
