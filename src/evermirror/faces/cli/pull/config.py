"""`pull config`: a project's rhythm and targets, and the priority of many at once."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.errors import ExitCode, UsageError
from evermirror.faces.cli.client import connect
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say, warn
from evermirror.faces.cli.pull.common import (
    PROJECTS,
    IntervalOption,
    PriorityOption,
    ProjectKey,
    ProjectsOption,
    RetriesOption,
    RetryDelayOption,
    check_priority,
    count_of,
    minutes_of,
    naming,
    project_path,
    said,
    split_keys,
    texts,
)
from evermirror.faces.cli.pull.keyed import KEY, KeyCommand, KeyedGroup
from evermirror.faces.cli.pull.labels import projects
from evermirror.faces.cli.pull.project_view import show_project
from evermirror.faces.cli.pull.projects import TargetCredential, TargetUrls, target_list

app = typer.Typer(
    cls=KeyedGroup,
    no_args_is_help=True,
    subcommand_metavar="KEY|COMMAND [ARGS]...",
    help="Show or change a project's configuration, or the priority of many.",
)


@app.command(KEY, cls=KeyCommand)
def config_of(
    key: ProjectKey,
    priority: PriorityOption = None,
    interval: IntervalOption = None,
    enable: Annotated[
        bool | None,
        typer.Option("--enable/--disable", show_default=False, help="Whether the schedule syncs it."),
    ] = None,
    max_retries: RetriesOption = None,
    retry_delay: RetryDelayOption = None,
    targets: TargetUrls = None,
    target_credentials: TargetCredential = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Take back what was set: the catalog's word, or the defaults.")
    ] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a project's configuration, or change what is given."""
    body = said(
        priority=check_priority(priority),
        sync_interval=minutes_of("--interval", interval),
        enabled=enable,
        max_retries=max_retries,
        retry_delay=minutes_of("--retry-delay", retry_delay),
        targets=target_list(targets, target_credentials) if targets or target_credentials else None,
    )
    if reset and body:
        raise UsageError("--reset takes back what was set, and something to set was given")
    path = project_path(key, "/config")
    with connect(server, token_file, config) as client, naming(key, body):
        if reset:
            answer = client.delete(path)
        elif body:
            answer = client.put(path, body)
        else:
            answer = client.get(path)
    if as_json:
        print_json(answer)
    else:
        show_project(key, answer)


@app.command("batch-set-priority", cls=Command)
def batch_set_priority(
    keys: ProjectsOption = None,
    priority: PriorityOption = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Set the priority of several projects."""
    named = split_keys(keys)
    if not named or priority is None:
        raise UsageError(
            "both --projects and --priority are needed", hint="--projects=a/b,c/d --priority=high"
        )
    body = {"projects": named, "priority": check_priority(priority)}
    with connect(server, token_file, config) as client:
        answer = client.post(f"{PROJECTS}/batch-update-priority", body)
    if as_json:
        print_json(answer)
    else:
        say(f"{projects(count_of(answer.get('updated')))}: {priority}")
    unknown = texts(answer.get("not_found"))
    for key in unknown:
        warn(f"there is no project {key}")
    if unknown:
        raise typer.Exit(ExitCode.NOT_FOUND)
