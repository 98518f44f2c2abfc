"""However many specs are asked for, SQLite gives them as one row."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import sqlalchemy as sa

from evermirror.edge.store.store import Store
from evermirror.model.repo import Host, RepoRecord, RepoSpec


async def test_specs_come_as_one_row(tmp_path):
    keys = [f"example.org/{i}" for i in range(100)]
    asked = []

    def note(connection, cursor, statement, parameters, context, executemany):
        asked.append((statement, parameters))

    store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    try:
        await store.upsert_repos(RepoRecord(RepoSpec(k, f"https://{k}", Host("example.org"))) for k in keys)
        sa.event.listen(sa.Engine, "before_cursor_execute", note)
        assert len(await store.specs_of(keys)) == 100
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
        await store.close()
    begin, query = asked
    assert begin == ("BEGIN", ())
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert len(connection.execute(*query).fetchall()) == 1
