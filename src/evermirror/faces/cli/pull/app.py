"""The table of contents of `pull`."""

from __future__ import annotations

import typer

from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.pull import config, discover, errors, progress, projects, report, strategy, tasks
from evermirror.faces.cli.sync import SyncCommand

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Pull mirroring: projects that are synced in a fixed rhythm, and pushed on to targets.",
)
app.command("add", rich_help_panel="Projects", cls=Command)(projects.add)
app.command("remove", rich_help_panel="Projects", cls=Command)(projects.remove)
app.command("list", rich_help_panel="Projects", cls=Command)(projects.list_projects)
app.command("show", rich_help_panel="Projects", cls=Command)(projects.show)
app.add_typer(config.app, name="config", rich_help_panel="Projects")
app.add_typer(projects.targets_app, name="targets", rich_help_panel="Projects")
app.add_typer(discover.app, name="discover", rich_help_panel="Projects")
app.command("progress", rich_help_panel="Follow", cls=Command)(progress.progress)
app.command("report", rich_help_panel="Follow", cls=Command)(report.report)
app.command("tasks", rich_help_panel="Follow", cls=Command)(tasks.tasks)
app.command("task-status", rich_help_panel="Follow", cls=Command)(tasks.task_status)
app.add_typer(errors.app, name="errors", rich_help_panel="Follow")
app.command("trigger", rich_help_panel="Operate", cls=SyncCommand)(tasks.trigger)
app.add_typer(strategy.app, name="strategy", rich_help_panel="Operate")
