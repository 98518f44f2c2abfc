"""`pull errors`: what failed, by project and by type; and the end of a pause."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say
from evermirror.faces.cli.pull.boxes import Grid, grid_box, show_lines
from evermirror.faces.cli.pull.common import (
    MANY,
    PROJECTS,
    FromOption,
    LimitOption,
    ProjectKey,
    ToOption,
    count_of,
    dicts,
    naming,
    paged,
    project_path,
    tell_more,
    time_range,
    whole,
)
from evermirror.faces.cli.pull.keyed import KEY, KeyCommand, KeyedGroup
from evermirror.faces.cli.pull.labels import clock, label, projects, spell, times
from evermirror.faces.cli.pull.project_view import priority_words, show_project, state_words

HOURS_MAX = 24 * 366
FAILURES_MAX = 1_000_000

app = typer.Typer(
    cls=KeyedGroup,
    no_args_is_help=True,
    subcommand_metavar="KEY|COMMAND [ARGS]...",
    help="What failed: of one project, by type, which projects; and the end of a pause.",
)


KindOption = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", show_default=False, help="Only such, as NETWORK_TIMEOUT."),
]


@app.command(KEY, cls=KeyCommand)
def errors_of(
    key: ProjectKey,
    limit: LimitOption = 10,
    kind: KindOption = None,
    begin: FromOption = None,
    end: ToOption = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the errors of a project, newest first."""
    query = _query(limit, kind, begin, end)
    with connect(server, token_file, config) as client, naming(key):
        answer = client.get(project_path(key, "/errors"), query)
    if as_json:
        print_json(answer)
    else:
        _print_errors(answer, label("Errors of {key}", key=key), every=False)


@app.command("recent", cls=Command)
def recent(
    limit: LimitOption = 50,
    kind: KindOption = None,
    begin: FromOption = None,
    end: ToOption = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the errors of all projects, newest first."""
    query = _query(limit, kind, begin, end)
    with connect(server, token_file, config) as client:
        answer = client.get("/api/pull/errors", query)
    if as_json:
        print_json(answer)
    else:
        _print_errors(answer, label("Errors of all projects"), every=True)


@app.command("statistics", cls=Command)
def statistics(
    hours: Annotated[
        int, typer.Option("--hours", parser=whole(1, HOURS_MAX), metavar="N", help="Of the last so many.")
    ] = 24,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Count errors by type."""
    with connect(server, token_file, config) as client:
        answer = client.get("/api/pull/errors/statistics", {"hours": hours})
    if as_json:
        print_json(answer)
        return
    by_type = answer.get("by_type")
    found = {k: v for k, v in by_type.items() if isinstance(v, dict)} if isinstance(by_type, dict) else {}
    ordered = sorted(found.items(), key=lambda item: (-count_of(item[1].get("count")), item[0]))
    rows = [[kind, count_of(c.get("count")), projects(c.get("affected_projects"))] for kind, c in ordered]
    columns = [label(name) for name in ("Error type", "Count", "Projects hit")]
    title = label("Errors by type (last {span})", span=_hours(hours))
    show_lines(grid_box(Grid(columns, rows), title))


@app.command("failed-projects", cls=Command)
def failed_projects(
    at_least: Annotated[
        int | None,
        typer.Option(
            "--at-least",
            parser=whole(1, FAILURES_MAX),
            metavar="N",
            show_default=False,
            help="Failures in a row.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole(1, MANY), metavar="N", help="At most so many.")
    ] = 100,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List projects that failed, most failures in a row first."""
    query: dict[str, str | int] = {"consecutive_failures_gte": at_least} if at_least is not None else {}
    with connect(server, token_file, config) as client:
        answer = paged(client, f"{PROJECTS}/failed", query, limit)
    if as_json:
        print_json(answer)
        return
    items = dicts(answer.get("items"))
    if not items:
        say(label("no projects"))
        return
    rows = [
        [
            item.get("project_key"),
            priority_words(item),
            times(count_of(item.get("consecutive_failures"))),
            state_words(item),
            item.get("last_error_type"),
            item.get("last_error_message"),
            clock(item.get("last_failed_at")),
        ]
        for item in items
    ]
    names = ("Project", "Priority", "Failures", "State", "Error type", "Last error", "Time")
    columns = [label(name) for name in names]
    show_lines(grid_box(Grid(columns, rows), label("Failed projects")))
    if (total := count_of(answer.get("total"))) > len(items):
        tell_more(len(items), total, "--limit")


@app.command("reset", cls=Command)
def reset(
    key: ProjectKey,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Forget a project's failures: it and its targets are enabled again, and it is synced at once."""
    with connect(server, token_file, config) as client, naming(key):
        answer = client.post(project_path(key, "/reset-failures"), {})
    if as_json:
        print_json(answer)
    else:
        show_project(key, answer)


def _query(limit: int, kind: str | None, begin: str | None, end: str | None) -> dict[str, str | int]:
    return {"limit": limit, **({"type": kind} if kind else {}), **time_range(begin, end, time.time())}


def _print_errors(answer: Fields, title: str, *, every: bool) -> None:
    items = dicts(answer.get("items"))
    if not items:
        say(f"{title}: {label('none')}")
        return
    columns = ["Time", *(["Project"] if every else []), "Task", "Error type", "Error", "Git command", "Retry"]
    rows = [_row(item, every=every) for item in items]
    show_lines(grid_box(Grid([label(name) for name in columns], rows), title))
    if (total := count_of(answer.get("total"))) > len(items):
        tell_more(len(items), total, "--limit")


def _row(item: Fields, *, every: bool) -> list[object]:
    return [
        clock(item.get("occurred_at")),
        *([item.get("project_key")] if every else []),
        item.get("task_id"),
        item.get("error_type"),
        item.get("error_message"),
        item.get("git_command"),
        times(count_of(item.get("retry_count"))),
    ]


def _hours(hours: int) -> str:
    """Always in hours, as they were asked for."""
    return spell(3600.0).replace("1", str(hours), 1)
