"""The command line's table of contents."""

from __future__ import annotations

from evermirror.faces.cli import (
    aggregator,
    alerts,
    backup,
    bulk,
    catalog,
    coordinator,
    doctor,
    events,
    history,
    repos,
    serve,
    settings,
    simulate,
    status,
    sync,
    tokens,
    webhook,
    worker,
    workers,
)
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.pull import app as pull
from evermirror.faces.cli.root import bare_program

app = bare_program()
app.command("up", rich_help_panel="Run", cls=Command)(serve.up)
app.add_typer(coordinator.app, name="coordinator", rich_help_panel="Run")
app.add_typer(worker.app, name="worker", rich_help_panel="Run")
app.add_typer(aggregator.app, name="aggregator", rich_help_panel="Run")
app.command("add", rich_help_panel="Repositories", cls=Command)(repos.add)
app.command("remove", rich_help_panel="Repositories", cls=Command)(repos.remove)
app.command("sync", rich_help_panel="Repositories", cls=sync.SyncCommand)(sync.sync)
app.command("repos", rich_help_panel="Repositories", cls=Command)(repos.list_repos)
app.command("status", rich_help_panel="Repositories", cls=Command)(status.status)
app.command("pause", rich_help_panel="Repositories", cls=Command)(repos.pause)
app.command("resume", rich_help_panel="Repositories", cls=Command)(repos.resume)
app.command("history", rich_help_panel="Repositories", cls=Command)(history.history)
app.command("restore", rich_help_panel="Repositories", cls=Command)(history.restore)
app.command("confirm", rich_help_panel="Repositories", cls=Command)(history.confirm)
app.command("allow", rich_help_panel="Repositories", cls=Command)(repos.allow)
app.add_typer(bulk.app, name="bulk", rich_help_panel="Repositories")
app.add_typer(pull.app, name="pull", rich_help_panel="Repositories")
app.add_typer(webhook.app, name="webhook", rich_help_panel="Repositories")
app.add_typer(alerts.app, name="alerts", rich_help_panel="Operate")
app.add_typer(events.app, name="events", rich_help_panel="Operate")
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
