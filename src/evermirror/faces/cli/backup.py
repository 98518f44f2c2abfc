"""`evermirror backup`, `restore-backup` and `migrate`: care for the coordinator's database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from evermirror.errors import EvermirrorError, UsageError
from evermirror.faces.cli.options import ConfigFile, DataDir, offline_settings
from evermirror.faces.cli.output import counted, say

if TYPE_CHECKING:
    from evermirror.config import Config
    from evermirror.edge.store.migrate import Migration

T = TypeVar("T")

BackupFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="The backup.")]


def backup(file: BackupFile, data: DataDir = None, config: ConfigFile = None) -> None:
    """Copy the database to a new file, also while the server runs."""
    from evermirror.edge.store.backup import make_backup

    database = _sqlite(offline_settings(config, data), "pg_dump")
    _told(lambda: make_backup(database, file))
    say(f"{file} is a backup of {database}")


def restore_backup(
    file: BackupFile,
    force: Annotated[
        bool, typer.Option("--force", help="Move the present database aside and use the backup instead.")
    ] = False,
    data: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Put a backup in place of the database; the server must be stopped."""
    from evermirror.edge.store.backup import put_back
    from evermirror.nodes.lifecycle import claimed

    loaded = offline_settings(config, data)
    database = _sqlite(loaded, "pg_restore")
    with claimed(loaded.data.dir):
        done = _told(lambda: put_back(file, database, force=force))
    say(f"{database} is what it was in {file}")
    if done.aside is not None:
        say(f"what it was before is in {done.aside}")
    if done.pending:
        say(f"{counted(len(done.pending), 'migration')} will run at the next start")


def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run them and take them back: nothing is changed.")
    ] = False,
    data: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Bring the database to this version, as a start would; the server must be stopped."""
    from evermirror.edge.store.migrate import rehearse
    from evermirror.nodes.lifecycle import claimed

    loaded = offline_settings(config, data)
    if dry_run:
        steps = _run(rehearse(loaded.store_url))
    else:
        with claimed(loaded.data.dir):
            steps = _run(_migrated(loaded.store_url))
    for step in steps:
        say(f"{step.revision} {step.title}")
    ran = "would run" if dry_run else "ran"
    say(f"{counted(len(steps), 'migration')} {ran}" if steps else "the database is up to date")


async def _migrated(url: str) -> tuple[Migration, ...]:
    from evermirror.edge.store.migrate import pending_migrations
    from evermirror.edge.store.store import Store

    steps = await pending_migrations(url)
    await (await Store.open(url)).close()
    return steps


def _sqlite(config: Config, tool: str) -> Path:
    from evermirror.edge.store.database import parse_place

    place = parse_place(config.store_url)
    if place.path is None:
        raise UsageError(f"the database {place.shown} is PostgreSQL", hint=f"Use {tool} for it")
    return place.path


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _told(lambda: asyncio.run(work))


def _told(work: Callable[[], T]) -> T:
    from evermirror.model.failure import FailureError

    try:
        return work()
    except FailureError as error:
        raise EvermirrorError(error.failure.message, hint=error.failure.hint) from None
