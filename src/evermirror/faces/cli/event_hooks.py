"""`events hooks|letters|retry|forget|test`: how events reach others' servers, and those that could not."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evermirror.errors import ExitCode, UsageError
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, counted, print_json, print_table, say
from evermirror.faces.cli.pull.common import MANY, Yes, count_of, dicts, naming, texts, whole
from evermirror.model.printable import one_line

HOOKS = "/api/event_hooks"
PAGE_MAX = 1_000

Hook = Annotated[str, typer.Argument(metavar="HOOK", help="As `evermirror events hooks` shows it.")]
Letters = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]…", show_default=False, help="Letters of it. Default: all."),
]


def hooks(
    server: Server = None, token_file: TokenFile = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """List the event hooks of the settings, and how their delivery goes."""
    with connect(server, token_file, config) as client:
        answer = client.get(HOOKS)
    items = dicts(answer.get("items"))
    if as_json:
        print_json(answer)
    elif not items:
        say("no event hooks: add [event_hooks.NAME] to the settings")
    else:
        columns = ("Hook", "Host", "Types", "State", "Waiting", "Letters", "Delivered", "Last", "Error")
        print_table(columns, [_hook_row(item) for item in items], right=("Waiting", "Letters", "Delivered"))


def letters(
    hook: Annotated[
        str | None, typer.Argument(metavar="HOOK", show_default=False, help="Only of this one.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole(1, MANY), metavar="N", help="At most so many.")
    ] = 50,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List events that could not be delivered, newest first."""
    with connect(server, token_file, config) as client:
        items = _letters(client, hook, limit)
    if as_json:
        print_json({"items": items})
    elif not items:
        say("no letters: nothing was laid aside")
    else:
        rows: list[list[object]] = [
            [
                item.get("id"),
                item.get("hook"),
                item.get("type"),
                _repo_of(item),
                age(item.get("at")),
                item.get("attempts"),
                "goes again" if item.get("again") else item.get("reason"),
            ]
            for item in items
        ]
        print_table(
            ("Id", "Hook", "Type", "Repo", "Laid aside", "Tries", "Reason"), rows, right=("Id", "Tries")
        )


def retry(
    hook: Hook,
    ids: Letters = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Send letters of an event hook again. One that waits or has stopped is tried at once."""
    with connect(server, token_file, config) as client, naming(hook):
        answer = client.post(_path(hook, "retry"), _body(ids))
    if as_json:
        print_json(answer)
    else:
        count = count_of(answer.get("letters"))
        say(f"{hook}: tried again now; {counted(count, 'letter')} to be sent again")


def forget(
    hook: Hook,
    ids: Letters = None,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Forget letters of an event hook: they are not sent any more."""
    body = _body(ids)
    if not ids and not yes:
        _confirm(hook)
    with connect(server, token_file, config) as client, naming(hook):
        answer = client.post(_path(hook, "forget"), body)
    if as_json:
        print_json(answer)
    else:
        say(f"{hook}: {counted(count_of(answer.get('letters')), 'letter')} forgotten")


def try_hook(
    hook: Hook,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Send a test message to an event hook. Fails where it is not taken."""
    with connect(server, token_file, config) as client, naming(hook):
        answer = client.post(_path(hook, "test"), {})
    sent = bool(answer.get("sent"))
    if as_json:
        print_json(answer)
    else:
        say(f"{hook}: sent" if sent else f"{hook}: not sent: {answer.get('error')}")
    if not sent:
        raise typer.Exit(ExitCode.FAILED)


def join(group: typer.Typer) -> None:
    """Puts these commands into the group `events`."""
    group.command("hooks", cls=Command)(hooks)
    group.command("letters", cls=Command)(letters)
    group.command("retry", cls=Command)(retry)
    group.command("forget", cls=Command)(forget)
    group.command("test", cls=Command)(try_hook)


def _confirm(hook: str) -> None:
    meaning = f"All letters of {one_line(hook)} are removed."
    if not sys.stdin.isatty():
        raise UsageError(f"{meaning} This needs a yes, and there is no terminal to ask at", hint="Add --yes")
    typer.confirm(f"{meaning} Go on?", abort=True, err=True)


def _letters(client: Client, hook: str | None, limit: int) -> list[Fields]:
    """Page by page, until there are enough or no more."""
    found: list[Fields] = []
    asked: dict[str, str | int] = {} if hook is None else {"hook": hook}
    while len(found) < limit:
        size = min(limit - len(found), PAGE_MAX)
        answer = client.get(f"{HOOKS}/letters", {**asked, "limit": size})
        found += dicts(answer.get("items"))
        before = answer.get("next_before")
        if not isinstance(before, int) or isinstance(before, bool):
            break
        asked["before"] = before
    return found


def _path(hook: str, action: str) -> str:
    return f"{repo_path(HOOKS, hook)}/{action}"


def _body(ids: list[str] | None) -> dict[str, object]:
    if not ids:
        return {}
    for text in ids:
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text)):
            hint = "`evermirror events letters` shows them"
            raise UsageError(f"{one_line(text)!r} is not the number of a letter", hint=hint)
    return {"letters": [int(text) for text in ids]}


def _hook_row(item: Fields) -> list[object]:
    return [
        item.get("name"),
        item.get("host"),
        " ".join(texts(item.get("types"))),
        _state(item),
        item.get("waiting"),
        item.get("letters"),
        item.get("delivered_total"),
        age(item.get("delivered_at")),
        item.get("error"),
    ]


def _state(item: Fields) -> str:
    if item.get("state") == "failing":
        return f"failing since {age(item.get('failing_since'))}"
    return str(item.get("state"))


def _repo_of(item: Fields) -> object:
    body = item.get("body")
    return body.get("repo") if isinstance(body, dict) else None
