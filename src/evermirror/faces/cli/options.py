"""Options that several commands share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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


def overrides(**flags: object) -> dict[str, object]:
    """Flags that were given, by setting: ``server__listen="…"`` sets server.listen."""
    return {
        name.replace("__", "."): str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if value is not None and value != []
    }
