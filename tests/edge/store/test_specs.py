"""However many specs are asked for, SQLite's thread takes one step for them."""

from __future__ import annotations

from evermirror.edge.store import sqlite_driver
from evermirror.edge.store.store import Store
from evermirror.model.repo import Host, RepoRecord, RepoSpec


async def test_specs_come_as_one_row(tmp_path, monkeypatch):
    keys = [f"example.org/{i}" for i in range(100)]
    steps = []
    carry_out = sqlite_driver._carry_out

    def counted(*errand):
        done = carry_out(*errand)
        steps.append(len(done[1]))
        return done

    store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    try:
        await store.upsert_repos(RepoRecord(RepoSpec(k, f"https://{k}", Host("example.org"))) for k in keys)
        monkeypatch.setattr(sqlite_driver, "_carry_out", counted)
        assert len(await store.specs_of(keys)) == 100
    finally:
        await store.close()
    assert steps[0] == 1
