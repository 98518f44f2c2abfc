"""`webhook list`: how far repos' hooks can be relied on, and how ours stand at their forges."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, console, print_table, say, warn
from evermirror.faces.cli.pull.labels import is_chinese, short_clock
from evermirror.faces.cli.repos import stream_json
from evermirror.faces.cli.webhook_labels import label, word

HOOKS = "/api/hooks"
WIDE_FROM = 120  # letters of a terminal that has room for all columns
_COLUMNS = ("repository", "hooks", "since", "last hook", "told", "missed", "at the forge", "problem")
_NARROW = ("repository", "hooks", "last hook", "at the forge")


def join(group: typer.Typer) -> None:
    """The command belongs to that group."""
    group.command("list", cls=Command)(list_hooks)


def list_hooks(
    silent: Annotated[
        bool, typer.Option("--silent", help="Polls found changes that no hook told of.")
    ] = False,
    reliable: Annotated[bool, typer.Option("--reliable", help="Those that are polled less.")] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="Ours was registered, and is not at the forge.")
    ] = False,
    search: Annotated[str, typer.Option(metavar="TEXT", show_default=False, help="Part of the key.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List repositories for which hooks came or were registered."""
    if silent and reliable:
        raise UsageError("--silent and --reliable are given together", hint="No repository is both")
    trust = "silent" if silent else "reliable" if reliable else ""
    asked = (("search", search), ("trust", trust), ("state", "missing" if missing else ""))
    query: dict[str, str | int] = {name: value for name, value in asked if value}
    with connect(server, token_file, config) as client:
        pages = client.pages(HOOKS, query, None if everything else limit)
        if as_json:
            stream_json(pages)
            return
        shown, more = 0, False
        for items, cursor in pages:
            if items:
                _print(items)
            elif shown == 0:
                say(label("no repositories"))
            shown, more = shown + len(items), bool(cursor)
    if more and sys.stdout.isatty():
        warn(label("{shown} shown; --all shows the rest", shown=shown))


def _print(items: Sequence[Fields]) -> None:
    """What has no room beside the keys is left out; problems have lines of their own then."""
    now, is_wide = time.time(), console().width >= WIDE_FROM
    columns = _COLUMNS if is_wide else _NARROW
    rows = [_row(item, now) for item in items]
    print_table(
        [label(column) for column in columns],
        [[row[column] for column in columns] for row in rows],
        right=[label("told"), label("missed")],
    )
    for row in rows:
        if row["problem"] and not is_wide:
            say(f"{row['repository']}: {row['problem']}")


def _row(item: Fields, now: float) -> dict[str, object]:
    """By column. Told and missed: all in all."""
    hooks, registration = item.get("hooks"), item.get("registration")
    known = hooks if isinstance(hooks, dict) else {}
    made = registration if isinstance(registration, dict) else {}
    return {
        "repository": item.get("repo"),
        "hooks": word(known.get("trust")),
        "since": _ago(known.get("since"), now),
        "last hook": _ago(known.get("last_at"), now),
        "told": known.get("told_total"),
        "missed": known.get("missed_total"),
        "at the forge": word(made.get("state")),
        "problem": made.get("problem"),
    }


def _ago(at: object, now: float) -> str:
    """As long ago as that; Chinese readers get the time itself, as `pull` has it."""
    return short_clock(at, now) if is_chinese() else age(at, now)
