"""`evermirror up`: everything in one process."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.faces.cli.options import ConfigFile, DataDir
from evermirror.faces.cli.starting import node_settings
from evermirror.importing import kept_for_good


def up(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default=False, help="HTTP address; default 127.0.0.1:8420."),
    ] = None,
    grpc_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default=False, help="gRPC address; default 127.0.0.1:8421."),
    ] = None,
    data: DataDir = None,
    catalog: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE", help="File, folder or git URL that lists what to mirror (repeatable)."
        ),
    ] = None,
    config: ConfigFile = None,
    playground: Annotated[
        bool, typer.Option("--playground", help="Make small upstreams here and mirror them, to look around.")
    ] = False,
    accept_removals: Annotated[
        bool,
        typer.Option("--accept-removals", help="Believe a catalog that lost much of what it had, this once."),
    ] = False,
) -> None:
    """Run everything in one process: catalog, polling, mirrors, API and dashboard."""
    loaded, settings = node_settings(
        config,
        server__listen=listen,
        server__grpc_listen=grpc_listen,
        data__dir=data,
        catalog__sources=catalog,
    )
    with kept_for_good():
        from evermirror.nodes.all_in_one import UpOptions, run

    options = UpOptions(playground=playground, accept_removals=accept_removals)
    raise typer.Exit(run(loaded, options, settings))
