"""`evermirror worker`: runs one; `worker join` makes it a member of a fleet."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from evermirror.errors import EvermirrorError
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import ConfigFile, DataDir, overrides
from evermirror.faces.cli.output import say
from evermirror.faces.cli.workers import register

if TYPE_CHECKING:
    from pathlib import Path

    from evermirror.config import Config

app = typer.Typer(cls=Group, help="Run a worker of a fleet, or change one.")
register(app)

Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", show_default=False, help="For probes; default 127.0.0.1:8420."),
]


@app.callback(invoke_without_command=True)
def worker(
    context: typer.Context, listen: Listen = None, data: DataDir = None, config: ConfigFile = None
) -> None:
    """Run a worker: it mirrors what its coordinator assigns, and goes on while that is away."""
    if context.invoked_subcommand is None:
        _run(listen, data, config)


@app.command(cls=Command)
def join(
    coordinator: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The coordinator's gRPC address.")],
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="From `token create --role worker`.")],
    listen: Listen = None,
    data: DataDir = None,
    config: ConfigFile = None,
    only: Annotated[
        bool,
        typer.Option("--only", help="Check and remember, do not run."),
    ] = False,
) -> None:
    """Join a fleet and work: the token is tried, remembered in the data folder, and used from then on."""
    from evermirror.config import load_config, split_host_port
    from evermirror.errors import UsageError
    from evermirror.faces.cli.tokens import make_data_dir
    from evermirror.model.failure import FailureError
    from evermirror.nodes.membership_card import Card
    from evermirror.nodes.worker_node import join as try_to_join

    try:
        split_host_port(coordinator)
    except ValueError as error:
        raise UsageError(f"HOST:PORT: {error}", hint="For example coordinator.example.org:8421") from None
    loaded = load_config(config, overrides=overrides(data__dir=data))
    make_data_dir(loaded.data.dir)
    try:
        asyncio.run(try_to_join(loaded, Card(coordinator, token)))
    except FailureError as error:
        raise EvermirrorError(error.failure.message, hint=error.failure.hint) from None
    say(f"joined {coordinator}; remembered in {loaded.data.dir}")
    if not only:
        _run_anew(listen, data, config)


def _run_anew(listen: str | None, data: Path | None, config: Path | None) -> NoReturn:
    """As `evermirror worker`: the token stands on this command line, where others can read it, no longer."""
    said = {"--listen": listen, "--data": data, "--config": config}
    flags = [part for flag, value in said.items() if value is not None for part in (flag, str(value))]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "evermirror", "worker", *flags])  # noqa: S606 (ourselves)


def _run(listen: str | None, data: Path | None, config: Path | None) -> None:
    from evermirror.config import load_config
    from evermirror.log import setup_logging

    flags = overrides(server__listen=listen, data__dir=data)

    def settings() -> Config:
        return load_config(config, overrides=flags)

    loaded = settings()
    setup_logging(loaded.log.level, loaded.log.format, secrets=loaded.secret_values())
    from evermirror.nodes.worker_node import run  # only now: wrong settings are told at once

    raise typer.Exit(run(loaded, settings))
