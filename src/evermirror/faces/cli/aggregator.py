"""`evermirror aggregator`: runs one; `aggregator join` makes it a member of a fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.joining import join_fleet, run_anew
from evermirror.faces.cli.options import ConfigFile, DataDir
from evermirror.faces.cli.starting import node_settings
from evermirror.importing import kept_for_good

app = typer.Typer(cls=Group, help="Run the aggregator of a fleet: it serves what the workers mirror.")

Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", show_default=False, help="HTTP address; default 127.0.0.1:8420."),
]


@app.callback(invoke_without_command=True)
def aggregator(
    context: typer.Context, listen: Listen = None, data: DataDir = None, config: ConfigFile = None
) -> None:
    """Run an aggregator: it fetches from workers what they mirror, checks it, and serves it."""
    if context.invoked_subcommand is not None:
        return
    loaded, _ = node_settings(config, server__listen=listen, data__dir=data)
    with kept_for_good():
        from evermirror.nodes.aggregator.aggregator_node import run

    raise typer.Exit(run(loaded))


@app.command(cls=Command)
def join(
    coordinator: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The coordinator's gRPC address.")],
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="From `token create --role aggregator`.")],
    listen: Listen = None,
    data: DataDir = None,
    config: ConfigFile = None,
    only: Annotated[
        bool,
        typer.Option("--only", help="Check and remember, do not run."),
    ] = False,
) -> None:
    """Join a fleet and serve: the token is tried, remembered in the data folder, and used from then on."""
    join_fleet("aggregator", coordinator, token, data, config)
    if not only:
        run_anew("aggregator", listen, data, config)
