"""`pull discover`: the projects of a group at a forge, found, mirrored and followed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evermirror.faces.cli.client import connect
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say
from evermirror.faces.cli.pull.common import (
    PAGE_MAX,
    IntervalOption,
    PriorityOption,
    Yes,
    check_priority,
    dicts,
    minutes_of,
    naming,
    paged,
    said,
)
from evermirror.faces.cli.pull.discover_change import change
from evermirror.faces.cli.pull.discover_options import (
    VISIBILITIES,
    CredentialName,
    Every,
    Exclude,
    Include,
    NoWait,
    Number,
    Once,
    Prefix,
    TargetCredential,
    TargetForge,
    TargetUrl,
    Visible,
    every_of,
    forge_of,
    one_of,
    source_of,
    target_of,
    text_option,
)
from evermirror.faces.cli.pull.discover_view import (
    DISCOVERIES,
    show_discovery,
    show_list,
    show_preview,
    tell_held,
)
from evermirror.faces.cli.pull.discover_wait import finish, previewed
from evermirror.faces.cli.pull.keyed import KeyCommand, KeyedGroup
from evermirror.faces.cli.pull.labels import label
from evermirror.faces.cli.pull.projects import confirm

SOURCE = "SOURCE"
STATES = ("active", "gone", "renamed", "refused", "clash")
ALL_MAX = 1_000_000


class SourceGroup(KeyedGroup):
    """`discover SOURCE` beside `discover list`."""

    key = SOURCE


app = typer.Typer(
    cls=SourceGroup,
    no_args_is_help=True,
    subcommand_metavar="SOURCE|COMMAND [ARGS]...",
    help="Find the projects of a group at GitLab, Gitea or GitHub, mirror them, and follow the group.",
)


@app.command(SOURCE, cls=KeyCommand)
def discover(
    source: Annotated[
        str, typer.Argument(metavar=SOURCE, help="The instance, such as https://gitlab.example.com.")
    ],
    group: Annotated[
        str | None,
        text_option("--group", metavar="G", help="devops, or devops/tools; an organisation, a user."),
    ] = None,
    include: Include = None,
    exclude: Exclude = None,
    archived: Annotated[bool, typer.Option("--archived", help="Also archived projects.")] = False,
    no_subgroups: Annotated[bool, typer.Option("--no-subgroups", help="Only the group's own.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    credential: CredentialName = None,
    target: TargetUrl = None,
    target_credential: TargetCredential = None,
    forge: Annotated[
        str | None, text_option("--forge", metavar="KIND", help="Of the source: gitlab, gitea or github.")
    ] = None,
    target_forge: TargetForge = None,
    every: Every = None,
    once: Once = False,
    priority: PriorityOption = None,
    interval: IntervalOption = None,
    prefix: Prefix = None,
    visibility: Visible = None,
    leave_protected: Annotated[
        bool, typer.Option("--leave-protected", help="Protected branches of what is made stay closed.")
    ] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Register our hook at each project that is found.")
    ] = False,
    ssh: Annotated[bool, typer.Option("--ssh", help="git asks by ssh.")] = False,
    no_wait: NoWait = False,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Mirror the projects of a group, and follow it: what is new, renamed or gone there."""
    base, group = source_of(source, group)
    body = said(
        source_url=base,
        group=group,
        forge=forge_of("--forge", forge, base),
        include=list(include) if include else None,
        exclude=list(exclude) if exclude else None,
        archived=archived or None,
        subgroups=False if no_subgroups else None,
        credential=credential,
        target_url=target_of(target),
        target_credential=target_credential,
        target_forge=forge_of("--target-forge", target_forge, target),
        priority=check_priority(priority),
        sync_interval=minutes_of("--interval", interval),
        prefix=prefix,
        visibility=one_of("--visibility", visibility, VISIBILITIES),
        protected_branches="leave" if leave_protected else None,
        hooks=hooks or None,
        over_ssh=ssh or None,
    )
    body |= every_of(every, once=once)
    with connect(server, token_file, config) as client, naming(f"{group} at {base}", body):
        if dry_run or (target is not None and not yes and sys.stdin.isatty()):
            preview = previewed(client, body, quiet=as_json)
            if dry_run and as_json:
                print_json(preview)
                return
            show_preview(preview)
            if dry_run:
                return
            typer.confirm(label("Do this, and follow the group?"), abort=True, err=True)
        made = client.post(DISCOVERIES, body)
        finish(client, made, no_wait=no_wait, as_json=as_json)


@app.command("list", cls=Command)
def list_all(
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the groups that are followed."""
    with connect(server, token_file, config) as client:
        answer = client.get(DISCOVERIES)
    items = dicts(answer.get("items"))
    if as_json:
        print_json(answer)
    elif items:
        show_list(items)
    else:
        say(label("no groups are followed"))


@app.command("show", cls=Command)
def show(
    number: Number,
    state: Annotated[
        str | None,
        text_option("--state", metavar="S", help="Only such: active, gone, renamed, refused, clash."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of its projects, however many.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a group that is followed, and what stands for each of its projects."""
    one_of("--state", state, STATES)
    with connect(server, token_file, config) as client:
        answer = client.get(f"{DISCOVERIES}/{number}")
        if as_json:
            query: dict[str, str | int] = {"state": state} if state else {}
            limit = None if everything else PAGE_MAX
            found = paged(client, f"{DISCOVERIES}/{number}/projects", query, limit)
            print_json({**answer, "found": found})
        else:
            show_discovery(client, answer, state, ALL_MAX if everything else None)
            tell_held(answer)


@app.command("run", cls=Command)
def run(
    number: Number,
    accept: Annotated[bool, typer.Option("--accept", help="Also pause what the last run held back.")] = False,
    no_wait: NoWait = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Look at a group now."""
    with connect(server, token_file, config) as client:
        answer = client.post(f"{DISCOVERIES}/{number}/run", {"accept": accept})
        finish(client, answer, no_wait=no_wait, as_json=as_json)


app.command("change", cls=Command)(change)


@app.command("stop", cls=Command)
def stop(
    number: Number,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop following a group until it is started again; its projects go on."""
    _switch(number, on=False, where=(server, token_file, config), as_json=as_json)


@app.command("start", cls=Command)
def start(
    number: Number,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Follow a group again that was stopped."""
    _switch(number, on=True, where=(server, token_file, config), as_json=as_json)


@app.command("remove", cls=Command)
def remove(
    number: Number,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Follow a group no longer; its projects stay, here and at the target."""
    if not yes:
        meaning = label("Discovery {id} is forgotten; the projects that it made stay.", id=number)
        confirm(meaning, label("Remove it?"))
    with connect(server, token_file, config) as client:
        answer = client.delete(f"{DISCOVERIES}/{number}")
    if as_json:
        print_json(answer)
    else:
        say(f"{label('removed')}  {number}")


def _switch(number: int, *, on: bool, where: tuple[Server, TokenFile, ConfigFile], as_json: bool) -> None:
    with connect(*where) as client:
        answer = client.put(f"{DISCOVERIES}/{number}", {"enabled": on})
    if as_json:
        print_json(answer)
    else:
        say(f"{label('enabled') if on else label('stopped')}  {number}")
