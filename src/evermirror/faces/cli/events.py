"""`events`: what happened, and what happens; below it, how events reach others' servers."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli import event_hooks
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.event_follow import EVENTS, follow
from evermirror.faces.cli.event_lines import line_of
from evermirror.faces.cli.help import Group
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say, warn
from evermirror.faces.cli.pull.common import dicts, whole
from evermirror.model.printable import one_line

PAGE_MAX = 1_000

app = typer.Typer(cls=Group, invoke_without_command=True)


def _types() -> list[str]:
    from evermirror.model.event import EventType

    return [type_.value for type_ in EventType]


@app.callback()
def events(
    context: typer.Context,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on, until Ctrl-C.")] = False,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--types",
            metavar="TYPES",
            show_default=False,
            autocompletion=_types,
            help='Such as refs.changed or "repo.*"; several by commas.',
        ),
    ] = None,
    repo: Annotated[
        list[str] | None,
        typer.Option(
            "--repo", metavar="KEY", show_default=False, help='A repo\'s key, or a pattern such as "*/linux".'
        ),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option("--worker", metavar="NAME", show_default=False, help="Only of this worker."),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            "--after",
            parser=whole(0, 2**63 - 1),
            metavar="ID",
            show_default=False,
            help="Those after this one.",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", parser=whole(1, PAGE_MAX), metavar="N", help="At most so many; not with --follow."
        ),
    ] = 20,
    progress: Annotated[
        bool, typer.Option("--progress", help="With --follow: also how far syncs are.")
    ] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """What happened lately, oldest first; or, with --follow, what happens."""
    if context.invoked_subcommand is not None:
        _check_alone(context)
        return
    _check_together(context, following=following)
    query = _query(types, repo, worker, after)
    with connect(server, token_file, config) as client:
        if not following:
            answer = client.get(EVENTS, {**query, "limit": limit})
            _show_page(answer, as_json=as_json)
            return
        if progress:
            query["progress"] = "true"
        for event in follow(client, query):
            _show(event, as_json=as_json)


event_hooks.join(app)


def _given(context: typer.Context) -> set[str]:
    return {
        name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    }


def _check_together(context: typer.Context, *, following: bool) -> None:
    """An option without effect would be lost without a word."""
    given = _given(context)
    if following and "limit" in given:
        raise UsageError("--limit and --follow do not go together", hint="--follow goes on until Ctrl-C")
    if not following and "progress" in given:
        raise UsageError("--progress is for --follow", hint="How far syncs are is not kept: add --follow")


def _check_alone(context: typer.Context) -> None:
    """An option before a command below would be lost without a word."""
    if _given(context):
        raise UsageError(
            f"an option of `events` stands before {context.invoked_subcommand}",
            hint=f"Write it behind: `evermirror events {context.invoked_subcommand} --…`",
        )


def _query(
    types: list[str] | None, repos: list[str] | None, worker: str | None, after: int | None
) -> dict[str, str | int]:
    for repo in repos or ():
        if "://" in repo:
            raise UsageError(
                f"--repo {one_line(repo)!r} is a URL", hint="Use its key, such as github.com/o/r"
            )
    told = {"types": ",".join(types or ()), "repos": ",".join(repos or ()), "worker": worker, "after": after}
    return {name: value for name, value in told.items() if value is not None and value != ""}


def _show_page(answer: Fields, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    if answer.get("gap"):
        warn("some of these are no longer kept")
    items = dicts(answer.get("items"))
    for item in items:
        print(line_of(item))
    if not items:
        say("no events")


def _show(event: Fields, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(event), flush=True)
    elif event.get("type") == "gap":
        warn("some events are no longer kept: what is known may have changed meanwhile")
    else:
        print(line_of(event), flush=True)
