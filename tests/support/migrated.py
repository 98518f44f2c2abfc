"""New SQLite stores that get all tables at once: the steps of the migrations run for the first one only.

They take most of the time that a new store takes. Tests of the steps themselves (tests/contracts and
tests/edge/store) run them each time, and one there shows that what is made here is the same.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from evermirror.edge.store import store
from evermirror.edge.store.database import Database
from evermirror.edge.store.migrate import FOLDER, Migration, migrate

FIRST, NEXT = "0001", "0002"  # the step that there is, and the one that ``add_step`` adds
_STEP = """
\"""One more.\"""

from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade():
    for statement in {statements!r}:
        op.execute(statement)
"""


def add_step(patch: pytest.MonkeyPatch, folder: Path, *statements: str) -> None:
    """From now on the program has one more step, which runs these statements."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = _STEP.format(revision=NEXT, before=FIRST, statements=statements)
    (folder / "versions" / f"{NEXT}_next.py").write_text(text)
    patch.setattr("evermirror.edge.store.migrate.FOLDER", folder)


class TablesAtOnce:
    """In the place of ``migrate``: remembers what the steps made of the first empty file."""

    def __init__(self) -> None:
        self._script: list[str] = []
        self._steps: tuple[Migration, ...] = ()

    async def __call__(self, database: Database) -> tuple[Migration, ...]:
        if not database.is_sqlite:
            return await migrate(database)
        if not self._script:
            return await self._learn(database)
        async with database.write() as c:
            if await c.run_sync(_is_empty):
                await c.run_sync(_play, self._script)
                return self._steps
        return await migrate(database)

    async def _learn(self, database: Database) -> tuple[Migration, ...]:
        async with database.read() as c:
            was_empty = await c.run_sync(_is_empty)
        steps = await migrate(database)
        if was_empty:
            async with database.read() as c:
                self._script, self._steps = await c.run_sync(_script), steps
        return steps


def _is_empty(connection: sa.Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one() == 0)


def _script(connection: sa.Connection) -> list[str]:
    """Tables and indexes, in the order in which they were made, and the step that they are at."""
    made = connection.exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    at = connection.exec_driver_sql(
        "SELECT 'INSERT INTO alembic_version VALUES (' || quote(version_num) || ')' FROM alembic_version"
    )
    return [*made.scalars(), at.scalar_one()]


def _play(connection: sa.Connection, script: list[str]) -> None:
    for statement in script:
        connection.exec_driver_sql(statement)


AT_ONCE = TablesAtOnce()


@contextlib.contextmanager
def tables_at_once() -> Iterator[None]:
    """For the tests of a folder where none is about how tables are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "migrate", AT_ONCE)
        yield
