"""`evermirror simulate`: policies and changes tried on a model of the world before they are trusted."""

from __future__ import annotations

import typer

from evermirror.faces.cli import simulate_fleet, simulate_polling, simulate_pull
from evermirror.faces.cli.help import Command, Group

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Try a policy, or a change of the fleet, before trusting it."
)
app.command("polling", cls=Command)(simulate_polling.polling)
app.command("fleet", cls=Command)(simulate_fleet.fleet)
app.command("pull", cls=Command)(simulate_pull.pull)
