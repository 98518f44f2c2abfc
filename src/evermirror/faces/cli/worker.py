"""`evermirror worker`: runs one; `worker join` makes it a member of a fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.joining import join_fleet, run_anew
from evermirror.faces.cli.options import ConfigFile, DataDir
from evermirror.faces.cli.starting import node_settings
from evermirror.faces.cli.workers import register
from evermirror.importing import kept_for_good

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
    if context.invoked_subcommand is not None:
        return
    loaded, settings = node_settings(config, server__listen=listen, data__dir=data)
    with kept_for_good():
        from evermirror.nodes.worker.worker_node import run

    raise typer.Exit(run(loaded, settings))


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
    join_fleet("worker", coordinator, token, data, config)
    if not only:
        run_anew("worker", listen, data, config)
