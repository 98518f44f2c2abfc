"""The program above all its commands: what stands before a command, and what its help says."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror import __version__
from evermirror.faces.cli.help import Group


def bare_program() -> typer.Typer:
    """Without any command yet."""
    made = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Keeps git mirrors fresh, from ten repositories on a laptop to a million on a fleet.",
        epilog="Exit codes: 0 fine, 1 failed, 2 wrong usage or settings, 3 no server, 4 denied, 5 not found.",
    )
    made.callback()(_root)
    return made


def _version(context: typer.Context, asked: bool) -> None:
    if asked:
        print(f"{context.find_root().info_name} {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    pass
