"""What benchmarks are measured on and share: made quickly, and as they say it is."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

from bench.worlds.big_repo import BIG, HISTORY, make_big
from bench.worlds.many_repos import STORE, filling, make_store
from bench.worlds.population import link_tree
from evermirror.edge.store.store import Store
from tests.support.gitrepo import UpstreamRepo, run_git


def test_a_large_repository_is_one_pack_as_large_as_asked_with_its_history(tmp_path):
    make_big(tmp_path, 6)
    repo = tmp_path / BIG
    (pack,) = (repo / "objects/pack").glob("*.pack")
    assert 6_000_000 < pack.stat().st_size < 6_400_000
    assert int(run_git(repo, "rev-list", "--count", "main")) == HISTORY + 2
    assert [
        int(size)
        for size in run_git(repo, "ls-tree", "--format=%(objectsize)", "main", "0.bin", "4.bin").split()
    ] == [4_000_000, 2_000_000]
    run_git(repo, "fsck", "--strict")


def test_a_linked_tree_is_the_same_repository_and_changes_alone(tmp_path):
    first = UpstreamRepo.init(tmp_path / "first.git", "first", "")
    tip = first.commit()
    link_tree(first.path, tmp_path / "deep/er/second.git")
    second = UpstreamRepo(tmp_path / "deep/er/second.git", "second", "")
    assert second.tip() == tip
    second.commit()
    assert first.tip() == tip != second.tip()
    run_git(second.path, "fsck", "--strict")


async def test_a_filled_store_has_all_its_indexes_again(tmp_path):
    await (await Store.open(f"sqlite:///{tmp_path / 'new.db'}")).close()
    await asyncio.to_thread(make_store, tmp_path, 300)
    asked = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"
    with (
        closing(sqlite3.connect(tmp_path / STORE)) as full,
        closing(sqlite3.connect(tmp_path / "new.db")) as new,
    ):
        assert full.execute("SELECT count(DISTINCT key) FROM repos").fetchone() == (300,)
        assert full.execute(asked).fetchall() == new.execute(asked).fetchall()
    with filling(tmp_path / STORE, "repos") as connection:
        left = [
            name
            for kind, name, table, sql in connection.execute(asked)
            if (kind, table) == ("index", "repos") and sql
        ]
    assert not left
