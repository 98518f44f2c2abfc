"""`pull add`, `remove`, `list`, `show` and `targets adopt`: projects, and what they are pushed to."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say
from evermirror.faces.cli.pull.boxes import Grid, grid_box, show_lines
from evermirror.faces.cli.pull.common import (
    MANY,
    PROJECTS,
    IntervalOption,
    PriorityOption,
    ProjectKey,
    RetriesOption,
    RetryDelayOption,
    Yes,
    check_priority,
    count_of,
    dicts,
    minutes_of,
    naming,
    paged,
    project_path,
    said,
    tell_more,
    whole,
)
from evermirror.faces.cli.pull.labels import label, minutes, short_clock, times
from evermirror.faces.cli.pull.project_view import priority_words, show_project, state_words
from evermirror.model.printable import one_line

TASKS_SHOWN = 10

targets_app = typer.Typer(cls=Group, no_args_is_help=True, help="What projects are pushed on to.")

TargetUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="URL",
        show_default=False,
        help="Where it is pushed on to; repeatable.",
    ),
]
TargetCredential = Annotated[
    list[str] | None,
    typer.Option(
        "--target-credential",
        metavar="NAME",
        show_default=False,
        help="A credential of the settings: one for all targets, or one for each in their order.",
    ),
]


def target_list(urls: Sequence[str] | None, credentials: Sequence[str] | None) -> list[dict[str, str]]:
    """Targets as the API takes them; raises UsageError where the credentials do not fit."""
    urls, names = list(urls or ()), list(credentials or ())
    if len(names) == 1:
        names *= len(urls)
    if len(names) not in (0, len(urls)) or (credentials and not urls):
        raise UsageError(
            f"{len(credentials or ())} credentials for {len(urls)} targets",
            hint="Give --target-credential once, or once for each --target",
        )
    if not names:
        return [{"url": url} for url in urls]
    return [{"url": url, "credential": name} for url, name in zip(urls, names, strict=True)]


def add(
    key: Annotated[str, typer.Argument(metavar="KEY", help="What to call it, such as devops/core.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE_URL", help="Where it is pulled from.")],
    targets: TargetUrls = None,
    credential: Annotated[
        str | None,
        typer.Option(
            "--credential",
            metavar="NAME",
            show_default=False,
            help="A credential of the settings, for the source.",
        ),
    ] = None,
    target_credentials: TargetCredential = None,
    priority: PriorityOption = None,
    interval: IntervalOption = None,
    max_retries: RetriesOption = None,
    retry_delay: RetryDelayOption = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a project: it is synced at once, and from then on in its rhythm."""
    body = said(
        project_key=key,
        source_url=source,
        source_credential=credential,
        targets=target_list(targets, target_credentials),
        priority=check_priority(priority),
        sync_interval=minutes_of("--interval", interval),
        max_retries=max_retries,
        retry_delay=minutes_of("--retry-delay", retry_delay),
    )
    with connect(server, token_file, config) as client, naming(key, body):
        answer = client.post(PROJECTS, body)
    if as_json:
        print_json(answer)
    else:
        show_project(key, answer)


def remove(
    key: ProjectKey,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """End a project: it is no longer mirrored; its targets stay as they are."""
    path = project_path(key)
    if not yes:
        confirm(f"{key} is no longer mirrored, its mirror goes to the trash.", "Remove it?")
    with connect(server, token_file, config) as client, naming(key):
        answer = client.delete(path)
    if as_json:
        print_json(answer)
    else:
        say(f"{answer.get('status', 'removed')}  {answer.get('project_key', key)}")


def list_projects(
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", show_default=False, help="Part of the key.")
    ] = "",
    priority: PriorityOption = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole(1, MANY), metavar="N", help="At most so many.")
    ] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List projects."""
    query: dict[str, str | int] = {"search": search} if search else {}
    if check_priority(priority):
        query["priority"] = str(priority)
    with connect(server, token_file, config) as client:
        answer = paged(client, PROJECTS, query, None if everything else limit)
    if as_json:
        print_json(answer)
        return
    items, total = dicts(answer.get("items")), count_of(answer.get("total"))
    if not items:
        say(label("no projects with a pull configuration"))
        return
    now = time.time()
    columns = ("Project", "Priority", "Interval", "State", "Last sync", "Next sync", "Failures", "Targets")
    show_lines(grid_box(Grid([label(name) for name in columns], [_row(item, now) for item in items])))
    if total > len(items):
        tell_more(len(items), total, "--all")


def _row(p: Fields, now: float) -> list[object]:
    return [
        p.get("project_key"),
        priority_words(p),
        minutes(p.get("sync_interval")),
        state_words(p),
        short_clock(p.get("last_sync_at"), now),
        short_clock(p.get("next_sync_at"), now),
        times(count_of(p.get("consecutive_failures"))),
        p.get("targets_total", len(dicts(p.get("targets")))),
    ]


def show(
    key: ProjectKey,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a project with its last ten tasks."""
    with connect(server, token_file, config) as client, naming(key):
        project = client.get(project_path(key, "/config"))
        tasks = client.get(project_path(key, "/tasks"), {"limit": TASKS_SHOWN})
    if as_json:
        print_json({**project, "tasks": tasks})
    else:
        show_project(key, project, dicts(tasks.get("items")))


@targets_app.command("adopt", cls=Command)
def adopt(
    key: ProjectKey,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", show_default=False, help="One of its targets; default: all."),
    ] = None,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let the next push overwrite what others put at a target, and push at once."""
    path = project_path(key, "/targets/adopt")
    if not yes:
        where = url or f"the targets of {key}"
        confirm(f"What others put at {where} is overwritten by what the source has.", "Overwrite it?")
    with connect(server, token_file, config) as client, naming(key, said(url=url)):
        answer = client.post(path, said(url=url))
    if as_json:
        print_json(answer)
    else:
        show_project(key, answer)


def confirm(meaning: str, question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{meaning} This needs a yes, and there is no terminal to ask at", hint="Add --yes")
    print(one_line(meaning), file=sys.stderr)
    typer.confirm(question, abort=True, err=True)
