"""`pull discover change`: a group is followed in another way; what was made and found stays known."""

from __future__ import annotations

from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.pull.common import (
    IntervalOption,
    PriorityOption,
    check_priority,
    minutes_of,
    naming,
    said,
)
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
    target_of,
)
from evermirror.faces.cli.pull.discover_view import DISCOVERIES
from evermirror.faces.cli.pull.discover_wait import finish

# What can be taken back, and as what the API has nothing.
_NOTHING: dict[str, object] = {
    "include": [],
    "exclude": [],
    "credential": None,
    "target": None,
    "prefix": "",
    "visibility": None,
    "interval": None,
}
_FIELDS = {"target": "target_url", "interval": "sync_interval"}  # where the API has another name


def change(
    number: Number,
    include: Include = None,
    exclude: Exclude = None,
    archived: Annotated[
        bool | None, typer.Option("--archived/--no-archived", help="Also archived projects.")
    ] = None,
    subgroups: Annotated[
        bool | None, typer.Option("--subgroups/--no-subgroups", help="Also those of subgroups.")
    ] = None,
    credential: CredentialName = None,
    target: TargetUrl = None,
    target_credential: TargetCredential = None,
    target_forge: TargetForge = None,
    every: Every = None,
    once: Once = False,
    priority: PriorityOption = None,
    interval: IntervalOption = None,
    prefix: Prefix = None,
    visibility: Visible = None,
    leave_protected: Annotated[
        bool | None,
        typer.Option(
            "--leave-protected/--open-protected", help="Protected branches of what is made from now on."
        ),
    ] = None,
    hooks: Annotated[
        bool | None, typer.Option("--hooks/--no-hooks", help="Register our hook at what is found.")
    ] = None,
    ssh: Annotated[bool | None, typer.Option("--ssh/--no-ssh", help="git asks by ssh.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="OPTION", show_default=False, help=f"None of: {', '.join(_NOTHING)}."
        ),
    ] = None,
    no_wait: NoWait = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Follow a group in another way; what is not given stays. Looks at the group at once.

    What was made stays as it is. The group itself cannot be changed: discover the other one."""
    body = said(
        include=list(include) if include else None,
        exclude=list(exclude) if exclude else None,
        archived=archived,
        subgroups=subgroups,
        credential=credential,
        target_url=target_of(target),
        target_credential=target_credential,
        target_forge=forge_of("--target-forge", target_forge, target),
        priority=check_priority(priority),
        sync_interval=minutes_of("--interval", interval),
        prefix=prefix,
        visibility=one_of("--visibility", visibility, VISIBILITIES),
        protected_branches=None if leave_protected is None else "leave" if leave_protected else "open",
        hooks=hooks,
        over_ssh=ssh,
    )
    body |= every_of(every, once=once)
    body |= _taken_back(without or [], body)
    if not body:
        raise UsageError("nothing is to change", hint="Such as --exclude 'devops/sandbox/*', or --every 2h")
    with connect(server, token_file, config) as client, naming(f"discovery {number}", body):
        changed = client.put(f"{DISCOVERIES}/{number}", body)
        is_followed = changed.get("enabled") is True
        finish(client, changed, no_wait=no_wait or not is_followed, as_json=as_json)


def _taken_back(options: list[str], given: Fields) -> Fields:
    """The fields of ``--without``; one that is also given would be both."""
    known = tuple(_NOTHING)
    names = [one_of("--without", option.removeprefix("--"), known) or "" for option in options]
    for name in names:
        if _FIELDS.get(name, name) in given:
            raise UsageError(f"--{name} and --without {name} are both given", hint="Keep one")
    return {_FIELDS.get(name, name): _NOTHING[name] for name in names}
