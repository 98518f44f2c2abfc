"""`evermirror config`: what is in force and from where, whether it is right, a file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile
from evermirror.faces.cli.output import print_json, print_table, say

app = typer.Typer(cls=Group, no_args_is_help=True, help="Show, check and begin settings.")


@app.command(cls=Command)
def show(
    config: ConfigFile = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every setting in force, secrets masked, and where it came from."""
    from evermirror.config import OriginKind, load
    from evermirror.config.show import as_toml, shown_settings

    loaded = load(config)
    shown = [s for s in shown_settings(loaded) if not changed or s.origin.kind is not OriginKind.DEFAULT]
    if as_json:
        print_json({s.name: {"value": s.value, "from": str(s.origin)} for s in shown})
    else:
        print_table(["setting", "value", "from"], [[s.name, as_toml(s.value), s.origin] for s in shown])


@app.command(cls=Command)
def check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check the settings; every problem is told with its place."""
    from evermirror.config import load
    from evermirror.errors import ConfigError

    try:
        loaded = load(config)
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "problems": error.problems})
        raise
    file = str(loaded.file) if loaded.file else None
    if as_json:
        print_json({"ok": True, "problems": [], "file": file})
    else:
        say(f"settings are fine ({file or 'no file'})")


@app.command(cls=Command)
def init(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False, help="Write here instead of printing."
        ),
    ] = None,
) -> None:
    """Print (or write) a settings file with everything in it, explained and commented out."""
    from evermirror.config.show import template

    if output is None:
        print(template(), end="")
        return
    try:
        with output.open("x", encoding="utf-8") as opened:
            opened.write(template())
    except FileExistsError as error:
        raise UsageError(
            f"{output} is there already", hint="Choose another name; nothing was changed"
        ) from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    say(f"wrote {output}")
