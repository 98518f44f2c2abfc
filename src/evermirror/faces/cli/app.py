"""The command line's table of contents, and the place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from evermirror import __version__
from evermirror.errors import ConfigError, EvermirrorError, ExitCode
from evermirror.faces.cli import (
    aggregator,
    backup,
    catalog,
    coordinator,
    doctor,
    history,
    repos,
    serve,
    settings,
    simulate,
    status,
    tokens,
    worker,
    workers,
)
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.output import as_started, counted
from evermirror.faces.cli.pull import app as pull
from evermirror.model.printable import many_lines

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keeps git mirrors fresh, from ten repositories on a laptop to a million on a fleet.",
    epilog="Exit codes: 0 fine, 1 failed, 2 wrong usage or settings, 3 no server, 4 denied, 5 not found.",
)
app.command("up", rich_help_panel="Run", cls=Command)(serve.up)
app.add_typer(coordinator.app, name="coordinator", rich_help_panel="Run")
app.add_typer(worker.app, name="worker", rich_help_panel="Run")
app.add_typer(aggregator.app, name="aggregator", rich_help_panel="Run")
app.command("add", rich_help_panel="Repositories", cls=Command)(repos.add)
app.command("remove", rich_help_panel="Repositories", cls=Command)(repos.remove)
app.command("sync", rich_help_panel="Repositories", cls=repos.SyncCommand)(repos.sync)
app.command("repos", rich_help_panel="Repositories", cls=Command)(repos.list_repos)
app.command("status", rich_help_panel="Repositories", cls=Command)(status.status)
app.command("history", rich_help_panel="Repositories", cls=Command)(history.history)
app.command("restore", rich_help_panel="Repositories", cls=Command)(history.restore)
app.command("confirm", rich_help_panel="Repositories", cls=Command)(history.confirm)
app.add_typer(pull.app, name="pull", rich_help_panel="Repositories")
app.command("workers", rich_help_panel="Operate", cls=Command)(workers.workers)
app.add_typer(catalog.app, name="catalog", rich_help_panel="Operate")
app.add_typer(tokens.app, name="token", rich_help_panel="Operate")
app.command("audit", rich_help_panel="Operate", cls=Command)(tokens.audit)
app.add_typer(settings.app, name="config", rich_help_panel="Operate")
app.command("doctor", rich_help_panel="Operate", cls=Command)(doctor.doctor)
app.command("backup", rich_help_panel="Operate", cls=Command)(backup.backup)
app.command("restore-backup", rich_help_panel="Operate", cls=Command)(backup.restore_backup)
app.command("migrate", rich_help_panel="Operate", cls=Command)(backup.migrate)
app.add_typer(simulate.app, name="simulate", rich_help_panel="Operate")


def _version(context: typer.Context, asked: bool) -> None:
    if asked:
        print(f"{context.find_root().info_name} {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    pass


def run(args: list[str], name: str, *, debug: bool = False) -> int:
    """Runs one command line; returns its exit code."""
    _make_lenient()
    try:
        command = get_command(app)
        _name_as_started(command)
        command(args=args, prog_name=name)
        sys.stdout.flush()
    except SystemExit as end:
        return _flushed(end.code if isinstance(end.code, int) else int(end.code is not None))
    except EvermirrorError as error:
        if debug:
            traceback.print_exc()
        print(_told(error), file=sys.stderr)
        return _flushed(error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _quiet()
    return ExitCode.OK


def _name_as_started(command: object) -> None:
    """In the help of a command and all below it."""
    for told in (command, *getattr(command, "params", ())):
        if isinstance(told, TyperCommand | TyperGroup | TyperArgument | TyperOption) and told.help:
            told.help = as_started(told.help)
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _name_as_started(below)


def _told(error: EvermirrorError) -> str:
    if isinstance(error, ConfigError):
        head = f"error: {counted(len(error.problems), 'problem')} in the settings:"
        return many_lines("\n  ".join([head, *error.problems]))
    text = f"error: {error.message}"
    return many_lines(as_started(f"{text}\n  hint: {error.hint}" if error.hint else text))


def _make_lenient() -> None:
    """A terminal that cannot show a character gets a question mark, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _quiet()
    return code


def _quiet() -> int:
    """Who read our output went away (`| head`): nothing to tell, and nothing more to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return ExitCode.FAILED
