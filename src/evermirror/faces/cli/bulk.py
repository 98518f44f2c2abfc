"""`bulk`: one action on many repositories, named or found by a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from evermirror.errors import NotFound, UsageError
from evermirror.faces.cli.bulk_labels import label, repositories
from evermirror.faces.cli.bulk_wait import finish, leave, list_orders, show
from evermirror.faces.cli.client import Client, Fields, connect
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.keys import complete_keys
from evermirror.faces.cli.options import (
    PRIORITIES,
    STATUSES,
    AsJson,
    ConfigFile,
    Server,
    TokenFile,
    check_choice,
    priorities,
    statuses,
)
from evermirror.faces.cli.output import print_json, say
from evermirror.faces.cli.pull.common import count_of, dicts, whole
from evermirror.model.printable import one_line

ORDERS = "/api/bulk"
_NAMED = "Name repositories, or those that --status, --host … find, or everything with --all"
_MEANINGS = {
    "sync": "{repos} will be synced now.",
    "retry": "Of {repos}, those that fail will be looked at again now.",
    "reset": "Of {repos}, the failures will be forgotten, and projects that paused themselves go on.",
    "pause": "{repos} will be paused: not mirrored until they are resumed.",
    "resume": "{repos} will be resumed.",
    "priority": "{repos} will get the priority {to}.",
}

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="One action on many repositories: synced, retried, reset, paused, resumed, of another priority.",
)


Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY",
        autocompletion=complete_keys,
        help="Keys, aliases or URLs, such as github.com/owner/name.",
    ),
]
Search = Annotated[str, typer.Option(metavar="TEXT", show_default=False, help="Part of the key.")]
Status = Annotated[
    str,
    typer.Option(
        metavar="STATUS", show_default=False, autocompletion=statuses, help=f"One of {', '.join(STATUSES)}."
    ),
]
HostName = Annotated[str, typer.Option("--host", metavar="HOST", show_default=False, help="Upstream host.")]
PriorityIs = Annotated[
    str,
    typer.Option(
        "--priority", metavar="CLASS", show_default=False, autocompletion=priorities, help="Of this class."
    ),
]
WorkerName = Annotated[
    str, typer.Option("--worker", metavar="NAME", show_default=False, help="Held by this worker.")
]
Failure = Annotated[
    str, typer.Option(metavar="TYPE", show_default=False, help="That fail so, as NETWORK_TIMEOUT.")
]
Everything = Annotated[bool, typer.Option("--all", help="The whole catalog.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell how many it would be.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Tell the order's number and leave: it goes on at the server.")
]
OrderId = typer.Argument(metavar="ID", parser=whole(1, 10**18), show_default=False, help="Of an order.")


def _command(action: str, help_: str) -> Callable[..., None]:
    """A command that differs from the others by its action alone."""

    def run(
        keys: Keys = None,
        search: Search = "",
        status: Status = "",
        host: HostName = "",
        priority: PriorityIs = "",
        worker: WorkerName = "",
        failure: Failure = "",
        everything: Everything = False,
        yes: Yes = False,
        dry_run: DryRun = False,
        no_wait: NoWait = False,
        server: Server = None,
        token_file: TokenFile = None,
        config: ConfigFile = None,
        as_json: AsJson = False,
    ) -> None:
        which = _which(keys, _filter(search, status, host, priority, worker, failure), everything=everything)
        _check_asked(yes=yes or dry_run)
        with connect(server, token_file, config) as client:
            _order(
                client,
                {"action": action, **which},
                yes=yes,
                dry_run=dry_run,
                no_wait=no_wait,
                as_json=as_json,
            )

    run.__doc__ = help_
    return run


for _action, _help in (
    ("sync", "Look at upstream now; at most 10,000 repositories."),
    ("retry", "Look again now at those that fail; at most 10,000 repositories."),
    ("reset", "Forget failures; projects that paused themselves go on, those that a person disabled do not."),
    ("pause", "Stop mirroring, keep the mirrors."),
    ("resume", "Mirror again what was paused."),
):
    app.command(_action, cls=Command)(_command(_action, _help))


@app.command("priority", cls=Command)
def set_priority(
    keys: Keys = None,
    to: Annotated[
        str,
        typer.Option("--to", metavar="CLASS", show_default=False, autocompletion=priorities, help="New."),
    ] = "",
    search: Search = "",
    status: Status = "",
    host: HostName = "",
    priority: PriorityIs = "",
    worker: WorkerName = "",
    failure: Failure = "",
    everything: Everything = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Give repositories another priority: critical, high, normal or low."""
    if to not in PRIORITIES:
        raise UsageError(f"--to {one_line(to)!r} is not one of {', '.join(PRIORITIES)}")
    which = _which(keys, _filter(search, status, host, priority, worker, failure), everything=everything)
    _check_asked(yes=yes or dry_run)
    body = {"action": "priority", "priority": to, **which}
    with connect(server, token_file, config) as client:
        _order(client, body, yes=yes, dry_run=dry_run, no_wait=no_wait, as_json=as_json)


@app.command("list", cls=Command)
def list_(
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the last 20 orders, and how far they are."""
    with connect(server, token_file, config) as client:
        answer = client.get(ORDERS)
    if as_json:
        print_json(answer)
    else:
        list_orders(dicts(answer.get("items")))


@app.command("stop", cls=Command)
def stop(
    number: Annotated[int, OrderId],
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop an order; what it did stays done."""
    with connect(server, token_file, config) as client:
        answer = client.post(f"{ORDERS}/{number}/stop", {})
    if as_json:
        print_json(answer)
    else:
        show(answer)


def _filter(search: str, status: str, host: str, priority: str, worker: str, failure: str) -> dict[str, str]:
    """What was said of it; raises UsageError."""
    check_choice("--status", status, STATUSES)
    check_choice("--priority", priority, PRIORITIES)
    said = {
        "search": search,
        "status": status,
        "host": host,
        "priority": priority,
        "worker": worker,
        "failure": failure.upper(),
    }
    return {name: value for name, value in said.items() if value}


def _which(keys: list[str] | None, found: dict[str, str], *, everything: bool) -> Fields:
    """As the API takes it; raises UsageError."""
    given = [bool(keys), bool(found), everything]
    if not any(given):
        raise UsageError("no repository was named", hint=_NAMED)
    if sum(given) > 1:
        raise UsageError("names, a filter and --all are given together", hint=_NAMED)
    if any(not key.strip() for key in keys or []):
        raise UsageError("a repository's name is empty", hint=_NAMED)
    return {"keys": list(keys)} if keys else {"filter": found}


def _check_asked(*, yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise UsageError("this needs a yes, and there is no terminal to ask at", hint="Add --yes")


def _order(client: Client, body: Fields, *, yes: bool, dry_run: bool, no_wait: bool, as_json: bool) -> None:
    """Counted, confirmed with the count, and given for just that count."""
    counted = client.post(ORDERS, {**body, "dry_run": True})
    matched = count_of(counted.get("matched"))
    if dry_run:
        if as_json:
            print_json(counted)
        else:
            say(label("{repos} would be concerned", repos=repositories(matched)))
        return
    if not matched:
        raise NotFound(
            label("no repository matches"), hint=label("`evermirror repos` lists them with the same options")
        )
    if not yes:
        meaning = label(_MEANINGS[str(body["action"])], repos=repositories(matched), to=body.get("priority"))
        print(one_line(meaning), file=sys.stderr)
        typer.confirm(label("Go on?"), abort=True, err=True)
    begun = client.post(ORDERS, {**body, "expected": matched})
    if no_wait:
        leave(begun, as_json=as_json)
    else:
        finish(client, f"{ORDERS}/{begun.get('id')}", as_json=as_json)
