"""`evermirror coordinator`: the one who knows; and `coordinator init`, which makes its certificates."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import ConfigFile, DataDir, overrides
from evermirror.faces.cli.output import say
from evermirror.faces.cli.starting import node_settings
from evermirror.importing import kept_for_good

app = typer.Typer(cls=Group, help="Run the coordinator of a fleet, or prepare one.")


@app.callback(invoke_without_command=True)
def coordinator(
    context: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default=False, help="HTTP address; default 127.0.0.1:8420."),
    ] = None,
    grpc_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default=False, help="For workers; default 127.0.0.1:8421."),
    ] = None,
    data: DataDir = None,
    catalog: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE", help="File, folder or git URL that lists what to mirror (repeatable)."
        ),
    ] = None,
    config: ConfigFile = None,
    accept_removals: Annotated[
        bool,
        typer.Option("--accept-removals", help="Believe a catalog that lost much of what it had, this once."),
    ] = False,
) -> None:
    """Run the coordinator: catalog, placement, API; workers join it."""
    if context.invoked_subcommand is not None:
        return
    loaded, settings = node_settings(
        config,
        server__listen=listen,
        server__grpc_listen=grpc_listen,
        data__dir=data,
        catalog__sources=catalog,
    )
    with kept_for_good():
        from evermirror.nodes.coordinator.coordinator_node import run

    raise typer.Exit(run(loaded, settings, accept_removals=accept_removals))


@app.command(cls=Command)
def init(
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Name or address that workers will reach it by (repeatable)."),
    ] = None,
    data: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Make the coordinator's own CA and certificate; a later start does it too, with the names it knows."""
    from evermirror.config import load_config
    from evermirror.edge.rpc.pki import ca_fingerprint, make_ca
    from evermirror.faces.cli.tokens import make_data_dir
    from evermirror.nodes.coordinator.own_ca import keep_names, pki_folder, server_names

    loaded = load_config(config, overrides=overrides(data__dir=data))
    make_data_dir(loaded.data.dir)
    if name:
        keep_names(loaded, name)
    names = server_names(loaded)
    made = make_ca(pki_folder(loaded), names)
    say(f"CA in {pki_folder(loaded)}, fingerprint {ca_fingerprint(made.ca_pem)}")
    say(f"certificate for {', '.join(names)}")
    say("next: evermirror token create --role worker --name NAME [--trusted]")
