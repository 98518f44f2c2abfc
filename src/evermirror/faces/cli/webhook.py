"""`webhook`: our hooks at forges, registered, checked and removed; what is known of those that come."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli import webhook_list
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json
from evermirror.faces.cli.pull.common import dicts, whole
from evermirror.faces.cli.webhook_wait import finish, leave, list_orders, show
from evermirror.model.printable import one_line

ORDERS = "/api/hooks/registrations"
FORGES = ("github", "gitlab", "gitee", "gitea")
_NAMED = "Name repositories, or a group with --group github.com/owner, or everything with --all"

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Hooks of forges: registered there, checked, removed, listed."
)
webhook_list.join(app)


def _forges() -> list[str]:
    return list(FORGES)


Repos = Annotated[
    list[str] | None,
    typer.Argument(metavar="REPO", help="Keys, aliases or URLs, such as github.com/owner/name."),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="G", show_default=False, help="All of a beginning of keys: github.com/owner."
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="The whole catalog.")]
CredentialOption = Annotated[
    str | None,
    typer.Option(
        "--credential",
        metavar="NAME",
        show_default=False,
        help="Of the server's settings; default: the repository's own, else the one that names its host.",
    ),
]
ForgeOption = Annotated[
    str | None,
    typer.Option(
        "--forge",
        metavar="KIND",
        show_default=False,
        autocompletion=_forges,
        help="github, gitlab, gitee or gitea; default: by the host, or the credential's.",
    ),
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Tell the order's number and leave: it goes on at the server.")
]
OrderId = typer.Argument(metavar="ID", parser=whole(1, 10**18), show_default=False, help="Of an order.")
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("register", cls=Command)
def register(
    repos: Repos = None,
    group: GroupOption = None,
    everything: Everything = False,
    credential: CredentialOption = None,
    forge: ForgeOption = None,
    no_wait: NoWait = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Also write hooks that look right again: the secret was changed.")
    ] = False,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Have forges tell us of pushes; what is there and not as it should be is mended.

    Given again it changes nothing that is right. It goes on at the server after Ctrl-C; `webhook stop` stops
    it."""
    body = _body("register", repos, group, credential, forge, everything=everything)
    if everything and not yes:
        _confirm("Every repository of the catalog gets a hook at its forge.", "Register them?")
    _order(
        {**body, **({"renew": True} if renew else {})},
        (server, token_file, config),
        no_wait=no_wait,
        as_json=as_json,
    )


@app.command("check", cls=Command)
def check(
    repos: Repos = None,
    group: GroupOption = None,
    everything: Everything = False,
    credential: CredentialOption = None,
    forge: ForgeOption = None,
    no_wait: NoWait = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Look whether our hooks are there and as they should be; changes nothing. 1 where one is not."""
    body = _body("check", repos, group, credential, forge, everything=everything)
    _order(body, (server, token_file, config), no_wait=no_wait, as_json=as_json)


@app.command("remove", cls=Command)
def remove(
    repos: Repos = None,
    group: GroupOption = None,
    everything: Everything = False,
    credential: CredentialOption = None,
    forge: ForgeOption = None,
    no_wait: NoWait = False,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove our hooks at forges, and no others."""
    body = _body("remove", repos, group, credential, forge, everything=everything)
    if not yes:
        whose = "all repositories" if everything else one_line(group or ", ".join(repos or []))
        _confirm(f"The hooks of {whose} are removed at their forges.", "Remove them?")
    _order(body, (server, token_file, config), no_wait=no_wait, as_json=as_json)


@app.command("status", cls=Command)
def status(
    number: Annotated[int | None, OrderId] = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the order under way and the last ones; with ID what became of its repositories so far."""
    with connect(server, token_file, config) as client:
        answer = client.get(ORDERS if number is None else f"{ORDERS}/{number}")
    if as_json:
        print_json(answer)
    elif number is None:
        list_orders(dicts(answer.get("items")))
    else:
        list_orders([answer])
        show(answer)


@app.command("stop", cls=Command)
def stop(
    number: Annotated[int, OrderId],
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop an order that is under way; what it did stays done."""
    with connect(server, token_file, config) as client:
        answer = client.delete(f"{ORDERS}/{number}")
    if as_json:
        print_json(answer)
    else:
        show(answer)


def _body(
    action: str,
    repos: list[str] | None,
    group: str | None,
    credential: str | None,
    forge: str | None,
    *,
    everything: bool,
) -> Fields:
    """The order, as the API takes it; raises UsageError."""
    given = [bool(repos), group is not None, everything]
    if not any(given):
        raise UsageError("no repository was named", hint=_NAMED)
    if sum(given) > 1:
        raise UsageError("repositories, --group and --all are given together", hint=_NAMED)
    if group is not None and not group.strip("/ "):
        raise UsageError("--group is empty", hint=_NAMED)
    if any(not repo.strip() for repo in repos or []):
        raise UsageError("a repository's name is empty", hint=_NAMED)
    if forge is not None and forge not in FORGES:
        raise UsageError(f"--forge {one_line(forge)!r} is not one of {', '.join(FORGES)}")
    about: Fields = (
        {"all": True} if everything else {"group": group} if group else {"repos": list(repos or [])}
    )
    further = {"credential": credential, "forge": forge}
    return {
        "action": action,
        **about,
        **{name: value for name, value in further.items() if value is not None},
    }


def _order(
    body: Fields, where: tuple[Server, TokenFile, ConfigFile], *, no_wait: bool, as_json: bool
) -> None:
    with connect(*where) as client:
        begun = client.post(ORDERS, body)
        if no_wait:
            leave(begun, as_json=as_json)
            return
        finish(client, f"{ORDERS}/{begun.get('id')}", named="repos" in body, as_json=as_json)


def _confirm(meaning: str, question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{meaning} This needs a yes, and there is no terminal to ask at", hint="Add --yes")
    print(one_line(meaning), file=sys.stderr)
    typer.confirm(question, abort=True, err=True)
