"""Options that several commands share, said once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.output import warn

if TYPE_CHECKING:
    from evermirror.config import Config

PRIORITIES = ("critical", "high", "normal", "low")
STATUSES = {
    "pending": "not mirrored yet",
    "active": "mirrored",
    "failing": "the last attempt failed",
    "gone": "not found upstream",
    "auth": "upstream refused the credentials",
    "held": "a guard holds a change back",
    "inactive": "paused",
}
SORTS = {
    "key": "",
    "verified": "last seen equal to upstream",
    "changed": "last change",
    "size": "on the disk",
    "failures": "in a row",
}

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="EVERMIRROR_CONFIG",
        show_default=False,
        help="Settings file; default ./evermirror.toml, then the user's and the system's.",
    ),
]
DataDir = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", show_default=False, help="Data folder (data.dir).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="EVERMIRROR_SERVER",
        show_default=False,
        help="Server to talk to; default: client.server, else http://127.0.0.1:8420.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        show_default=False,
        help="File that holds the token; else EVERMIRROR_TOKEN, else client.token.",
    ),
]


def check_choice(option: str, value: str, known: Iterable[str]) -> None:
    """Refuses what is not known, and lists what is, with its meaning where ``known`` has one."""
    if value and value not in known:
        meanings = known.items() if isinstance(known, Mapping) else ()
        raise UsageError(
            f"{option} {value!r} is not one of {', '.join(known)}",
            hint="; ".join(f"{name}: {meaning}" for name, meaning in meanings if meaning),
        )


def priorities() -> list[str]:
    return list(PRIORITIES)


def statuses() -> list[str]:
    return list(STATUSES)


def overrides(**flags: object) -> dict[str, object]:
    """Flags that were given, by setting: ``server__listen="…"`` sets server.listen."""
    return {
        name.replace("__", "."): str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if value is not None and value != []
    }


def offline_settings(config_file: Path | None, data: Path | None) -> Config:
    """The settings of a command that works on a data folder and asks no server.

    Whoever names a server and no data folder means that server: the default folder is used only where it
    holds a database, and then that is said."""
    from evermirror.config import OriginKind, load

    loaded = load(config_file, overrides=overrides(data__dir=data))
    config = loaded.config
    server = os.environ.get("EVERMIRROR_SERVER") or config.client.server
    places = (("data", "dir"), ("database", "url"))
    if not server or any(loaded.origin(place).kind is not OriginKind.DEFAULT for place in places):
        return config
    database = database_file(config)
    if database is None or not database.exists():
        raise UsageError(
            f"this command works on a data folder, not through a server such as {server}, and no "
            "data folder is named: nothing was done",
            hint="Run it on the server's machine with --data DIR, the folder that the server uses",
        )
    warn(f"on {database.absolute()}; the server {server} is not asked")
    return config


def database_file(config: Config) -> Path | None:
    """The file of a SQLite database, there or not; None for PostgreSQL."""
    from evermirror.edge.store.database import parse_place

    return parse_place(config.store_url).path
