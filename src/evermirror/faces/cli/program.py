"""One command line run: the place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from copy import copy

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from evermirror.errors import ConfigError, EvermirrorError, ExitCode
from evermirror.faces.cli.output import as_started, counted, without_passwords
from evermirror.faces.cli.root import bare_program
from evermirror.model.printable import many_lines

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def run(args: list[str], name: str, *, debug: bool = False) -> int:
    """Runs one command line; returns its exit code."""
    _make_lenient()
    try:
        command = get_command(_asked_for(args))
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


def _asked_for(args: list[str]) -> typer.Typer:
    """The program with the one command that is named, where one is: to make all of them takes a tenth of a
    second, which only their list is worth. What runs for weeks does not even import the others."""
    if args[:1] == ["coordinator"]:
        return _coordinator()
    from evermirror.faces.cli.app import app

    alone = copy(app)
    alone.registered_commands = [c for c in app.registered_commands if c.name in args[:1]]
    alone.registered_groups = [g for g in app.registered_groups if g.name in args[:1]]
    return alone if alone.registered_commands or alone.registered_groups else app


def _coordinator() -> typer.Typer:
    from evermirror.faces.cli import coordinator

    alone = bare_program()
    alone.add_typer(coordinator.app, name="coordinator")
    return alone


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
    text = f"{text}\n  hint: {error.hint}" if error.hint else text
    return many_lines(without_passwords(as_started(text)))


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
