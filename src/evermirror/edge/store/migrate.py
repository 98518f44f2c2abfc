"""Brings a database to this program's tables: in one transaction, and once, however many processes start.

Beside the tables are views for people and other programs: what pull mirroring is configured to do and what it
did, in the columns that the API has. They are not read here. They go before the steps and are made anew after
them, so that a step may change any table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from evermirror.edge.store.database import Database, parse_place
from evermirror.errors import EnvironmentUnfit


@dataclass(frozen=True, slots=True)
class Migration:
    """One step that a database has not taken yet."""

    revision: str
    title: str


async def pending_migrations(url: str) -> tuple[Migration, ...]:
    """What ``Store.open`` would run, oldest first; changes nothing, and makes no file."""
    place = parse_place(url)
    if place.path is not None and not place.path.exists():
        return steps_after(None)
    database = await Database.open(place)
    try:
        async with database.read() as c:
            return await c.run_sync(lambda s: steps_after(_revision(s)))
    finally:
        await database.close()


async def rehearse(url: str) -> tuple[Migration, ...]:
    """Runs what is pending and takes it back, so that what would fail has failed; makes no file."""
    steps = await pending_migrations(url)
    place = parse_place(url)
    if not steps or (place.path is not None and not place.path.exists()):
        return steps
    database = await Database.open(place)
    try:
        async with database.rebuild() as c:
            steps = await c.run_sync(_upgrade)
            await c.rollback()
    finally:
        await database.close()
    return steps


async def migrate(database: Database) -> tuple[Migration, ...]:
    """Runs what is pending. Writers take turns, so of several starters the later ones find it done."""
    async with database.read() as c:
        if await c.run_sync(_is_newest) or not await c.run_sync(lambda s: steps_after(_revision(s))):
            return ()
    async with database.rebuild() as c:
        return await c.run_sync(_upgrade)


def _is_newest(connection: sa.Connection) -> bool:
    """Nearly every start: told without Alembic, which would stay in memory."""
    if not sa.inspect(connection).has_table(_VERSION.name):
        return False
    newest = max(step.name.partition("_")[0] for step in (FOLDER / "versions").glob("[0-9]*.py"))
    return connection.scalars(sa.select(_VERSION.c.version_num)).all() == [newest]


def _upgrade(connection: sa.Connection) -> tuple[Migration, ...]:
    from alembic import command
    from alembic.config import Config

    steps = steps_after(_revision(connection))
    if steps:
        config = Config()
        config.set_main_option("script_location", _escaped(FOLDER))
        config.attributes["connection"] = connection
        _drop_views(connection)
        command.upgrade(config, "head")
        _make_views(connection)
    return steps


def _drop_views(connection: sa.Connection) -> None:
    for name in _VIEWS:
        connection.execute(sa.text(f"DROP VIEW IF EXISTS {name}"))


def _make_views(connection: sa.Connection) -> None:
    on_sqlite = connection.dialect.name == "sqlite"
    urls = "group_concat(url, ' ')" if on_sqlite else "string_agg(url, ' ' ORDER BY place)"
    for name, query in _VIEWS.items():
        connection.execute(sa.text(f"CREATE VIEW {name} AS {query.replace(_URLS, urls)}"))


_URLS = "all_urls"
# Times are UTC seconds since 1970, intervals minutes.
_VIEWS = {
    "pull_sync_config": """
        SELECT p.repo AS sync_project_id, coalesce(r.alias, r.key) AS project_key, r.priority,
            p.interval_s / 60 AS sync_interval, p.enabled, p.max_retries, p.retry_delay_s / 60 AS retry_delay,
            p.last_sync_at, p.next_sync_at, p.failures AS consecutive_failures,
            (SELECT all_urls FROM pull_targets t WHERE t.repo = p.repo) AS targets,
            p.created_at, p.updated_at
        FROM pull_projects p JOIN repos r ON r.id = p.repo WHERE r.removed_at IS NULL
    """,
    "pull_sync_task": """
        SELECT t.id AS task_id, r.id AS sync_project_id, t.status AS task_status,
            t."trigger" AS trigger_type, t."user" AS trigger_user, t.scheduled_at, t.started_at,
            t.completed_at, t.source_commit AS source_commit_sha, t.target_commit AS target_commit_sha,
            t.has_changes, t.changes_count, t.failure AS error_message, t.retry_count, t.created_at,
            t.updated_at
        FROM tasks t JOIN repos r ON r.key = t.repo WHERE r.pulled
    """,
}


FOLDER = Path(__file__).parent / "migrations"
_VERSION = sa.table("alembic_version", sa.column("version_num"))  # Alembic's own


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")  # Alembic reads its options with interpolation


def _revision(connection: sa.Connection) -> str | None:
    """The step the database is at; None for an empty one."""
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def steps_after(current: str | None) -> tuple[Migration, ...]:
    """What is to run on a database that is at this step, oldest first; raises for one that is not known."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(FOLDER))
    newest_first = list(scripts.walk_revisions())
    if current is not None and current not in {s.revision for s in newest_first}:
        newest = newest_first[0].revision
        raise EnvironmentUnfit(
            f"the database is at step {current}, and this program knows steps up to {newest}",
            hint="It was used by a newer evermirror: run that version, or restore a backup made before",
        )
    steps: list[Migration] = []
    for script in newest_first:
        if script.revision == current:
            break
        steps.append(Migration(script.revision, script.doc))
    return tuple(reversed(steps))
