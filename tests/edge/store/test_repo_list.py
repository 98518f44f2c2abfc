"""How SQLite answers a list: from the index that is made for it."""

from __future__ import annotations

import pytest

from evermirror.edge.store import repo_list
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureKind
from evermirror.model.repo import RepoStatus
from evermirror.model.repo_order import RepoSort
from evermirror.nodes.service import RepoFilter
from tests.support.migrated import tables_at_once


@pytest.fixture
async def store(tmp_path):
    with tables_at_once():
        store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    yield store
    await store.close()


async def test_whole_rows_are_looked_up_for_a_page_alone(store):
    """A million of them would take seconds; a walk through one index takes a tenth of one."""
    for sort in RepoSort:
        for which in (
            RepoFilter(sort=sort),
            RepoFilter(sort=sort, public=True),
            RepoFilter(sort=sort, search="a", host="h", failure=FailureKind.UNKNOWN, public=True),
            RepoFilter(sort=sort, search="https://a", status=RepoStatus.ACTIVE),
        ):
            assert "COVERING INDEX ix_repos_list" in (await plans(store, which))[0], which
            assert "COVERING INDEX ix_repos_list" in (await plans(store, which, count=True))[0], which


async def test_pages_of_a_host_or_status_stop_early_in_an_index_of_their_own(store):
    assert "ix_repos_host_key" in (await plans(store, RepoFilter(host="h")))[0]
    assert "ix_repos_status_key" in (await plans(store, RepoFilter(status=RepoStatus.HELD)))[0]


async def test_aliases_are_looked_through_apart_from_keys(store):
    _, aliases = await plans(store, RepoFilter(search="a"))
    assert "uq_repos_alias (alias>?)" in aliases


async def plans(store, which, *, count=False):
    """SQLite's plan for each part of the list."""
    async with store._db.read() as c:
        may_stop = which.sort.field is None and not count
        parts = await repo_list._parts(store._db, c, which, may_stop=may_stop)
        return [await plan(c, part, which, count=count) for part in parts]


async def plan(c, part, which, *, count):
    if count:
        query = part.over(repo_list.sa.select(repo_list.sa.func.count()))
    else:
        query = part.page(which.sort, repo_list._behind(which), 5)
    text = query.compile(c.sync_connection, compile_kwargs={"literal_binds": True})
    return "\n".join(row[3] for row in await c.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))
