"""`history`, `restore`, `confirm`: what upstream threw away, and what a guard holds back."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, UsageError
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.keys import Key, by_name
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, print_table, say, warn
from evermirror.faces.cli.sync import WAIT_DEFAULT_S, finish, wait_for

_DATE = re.compile(r"[0-9]{4}[0-9TZ:.-]*")

Limit = Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")]


def history(
    key: Key,
    limit: Limit = 100,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List old tips that upstream threw away and that are kept."""

    def read(name: str) -> tuple[list[Fields], bool]:
        pages = list(client.pages(repo_path("/api/repos", name) + "/-/history", {}, limit))
        return [item for page, _ in pages for item in page], bool(pages and pages[-1][1])

    with connect(server, token_file, config) as client:
        items, more = by_name(client, key, read)
    if as_json:
        print_json({"items": items})
        return
    if not items:
        say(f"{key}: nothing was thrown away upstream, or it is no longer kept")
        return
    rows = [[i.get("date"), i.get("ref"), i.get("why"), i.get("old"), i.get("new")] for i in items]
    print_table(["date", "ref", "why", "old", "new"], rows)
    if more:
        warn(f"{len(items)} shown; --limit shows more")


def restore(
    key: Key,
    tip: Annotated[
        str | None,
        typer.Argument(
            metavar="[REF[@DATE]]",
            show_default=False,
            help="As history shows it; without a date the newest. Without all: the removed repository.",
        ),
    ] = None,
    as_name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", show_default=False, help="Name below refs/restored/."),
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show an old tip again, or bring a removed repository back."""
    with connect(server, token_file, config) as client:
        if tip is None:
            if as_name is not None:
                raise UsageError("--as names a ref, and none was given", hint="See `evermirror history`")
            _undelete(client, key, as_json=as_json)
            return
        ref, date = split_tip(tip)
        repo = by_name(client, key, lambda name: client.get(repo_path("/api/git_urls", name)))
        path = repo_path("/api/repos", str(repo.get("key")))
        body = {"ref": ref, "date": date, "as": as_name}
        task = client.post(f"{path}/-/restore", {n: v for n, v in body.items() if v is not None})
        task = wait_for(client, task, WAIT_DEFAULT_S, quiet=as_json)
        repo = client.get(path)
    result = task.get("result")
    result = result if isinstance(result, dict) else {}
    if task.get("status") != "success":
        words = result.get("error_message") or f"it has not ended after {WAIT_DEFAULT_S:g} s"
        raise EvermirrorError(f"{tip} was not restored: {words}", hint=str(result.get("hint") or ""))
    fetch = shlex.join(["git", "fetch", f"{client.server}{repo.get('clone_path')}", str(result.get("ref"))])
    if as_json:
        print_json({**result, "fetch": fetch})
        return
    say(f"restored {result.get('oid')} as {result.get('ref')}")
    say(f"  {fetch}")


def confirm(
    key: Key,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Follow upstream where a guard holds its change back."""
    with connect(server, token_file, config) as client:
        task = by_name(
            client, key, lambda name: client.post(repo_path("/api/repos", name) + "/-/confirm", {})
        )
        task = wait_for(client, task, WAIT_DEFAULT_S, quiet=as_json)
    if as_json:
        print_json(task)
    finish(task, key, WAIT_DEFAULT_S, as_json=as_json, force=False)


def _undelete(client: Client, key: str, *, as_json: bool) -> None:
    answer = client.post(repo_path("/api/repos", key) + "/-/undelete", {})
    if as_json:
        print_json(answer)
    else:
        say(f"{answer.get('status')}  {answer.get('git_url')}")


def split_tip(tip: str) -> tuple[str, str | None]:
    """``REF@DATE``; an ``@`` that no date follows belongs to the ref."""
    ref, at, date = tip.rpartition("@")
    if not at or not _DATE.fullmatch(date):
        return tip, None
    if not ref:
        raise UsageError(f"{tip!r} names no ref", hint="Such as main@2026-11-15")
    return ref, date
