"""Files of one process: an older one is brought to the newest version, whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.edge.store.own_file import Layout, OwnFile
from evermirror.errors import EnvironmentUnfit

OLD = Layout(version=1, schema="CREATE TABLE things (name TEXT PRIMARY KEY);")
NEW = Layout(
    version=3,
    schema="CREATE TABLE things (name TEXT PRIMARY KEY, size INTEGER); CREATE TABLE more (id INTEGER);",
    upgrades={1: "ALTER TABLE things ADD COLUMN size INTEGER;", 2: "CREATE TABLE more (id INTEGER);"},
)
ALL = "SELECT * FROM things"
MANY_ROWS = """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
    INSERT INTO things SELECT 'b' || i, i FROM n;
"""


@pytest.fixture
async def path(tmp_path):
    """Of a file of the first version, with one row."""
    file = await OwnFile.open(tmp_path / "own.db", OLD, lambda: 0.0)
    await file.run(lambda c: c.execute("INSERT INTO things VALUES ('a')"))
    await file.close()
    return tmp_path / "own.db"


async def test_an_older_file_is_upgraded_and_keeps_its_rows(path):
    for _ in range(2):
        file = await OwnFile.open(path, NEW, lambda: 0.0)
        assert not file.rebuilt
        assert await file.run(lambda c: c.execute(ALL).fetchall()) == [("a", None)]
        await file.close()


async def test_an_upgrade_that_cannot_finish_changes_nothing(path):
    full = replace(NEW, upgrades={1: f"{NEW.upgrades[1]} PRAGMA max_page_count=1; {MANY_ROWS}"})
    with pytest.raises(EnvironmentUnfit, match="full"):
        await OwnFile.open(path, full, lambda: 0.0)
    file = await OwnFile.open(path, OLD, lambda: 0.0)
    assert not file.rebuilt
    assert await file.run(lambda c: c.execute(ALL).fetchall()) == [("a",)]
    await file.close()


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(path):
    await (await OwnFile.open(path, NEW, lambda: 0.0)).close()
    with pytest.raises(EnvironmentUnfit, match="newer"):
        await OwnFile.open(path, OLD, lambda: 0.0)
    assert [file.name for file in path.parent.iterdir()] == ["own.db"]
