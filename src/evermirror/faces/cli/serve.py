"""`evermirror up`: everything in one process."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.faces.cli.options import ConfigFile, DataDir, overrides


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
    from evermirror.config import Config, load_config
    from evermirror.log import setup_logging

    flags = overrides(
        server__listen=listen,
        server__grpc_listen=grpc_listen,
        data__dir=data,
        catalog__sources=catalog,
    )

    def settings() -> Config:
        return load_config(config, overrides=flags)

    loaded = settings()
    setup_logging(loaded.log.level, loaded.log.format, secrets=loaded.secret_values())
    from evermirror.nodes.all_in_one import UpOptions, run  # only now: wrong settings are told at once

    options = UpOptions(playground=playground, accept_removals=accept_removals)
    raise typer.Exit(run(loaded, options, settings))
