"""`add`, `remove`, `sync`, `repos`: the catalog as seen through the API."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, ExitCode, UsageError
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.listed import Wanted, read_list
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, console, counted, print_json, print_table, say, warn
from evermirror.model.printable import one_line

WAIT_DEFAULT_S = 600.0  # of `--wait` without a number: a first clone of a large repository takes minutes
POLL_FIRST_S = 0.1
POLL_MAX_S = 1.0  # a person watches; the server answers from memory
REFS_SHOWN = 20
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
ENDED = frozenset({"success", "failure", "failed", "skipped"})  # "failed": of a pull task

Key = Annotated[str, typer.Argument(metavar="KEY", help="Key, alias or URL, such as github.com/owner/name.")]


def add(
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="Repositories to mirror.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="LIST", show_default=False, help="List file, as of a catalog: URL key=value…"
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="CLASS", show_default=False, help="critical, high, normal or low.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="DURATION", show_default=False, help="Fixed gap, such as 10m.")
    ] = None,
    alias: Annotated[
        str | None, typer.Option(metavar="NAME", show_default=False, help="Another name for one repository.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Not shown or served to the public.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Add repositories to the catalog."""
    wanted = [*(Wanted(url, url) for url in urls or []), *(read_list(file) if file else [])]
    if not wanted:
        raise UsageError("no URL was given", hint="Name one or more, or a list with --file")
    if alias and len(wanted) > 1:
        raise UsageError("an alias names one repository, and several URLs were given")
    info: dict[str, object] = {
        "priority": priority,
        "interval": interval,
        "alias": alias,
        "private": private or None,
    }
    body = {name: value for name, value in info.items() if value is not None}

    def post(one: Wanted) -> Fields:
        said = {**body, **one.info}  # a line knows better than the flags that are meant for all
        return client.post(
            "/api/git_urls", {"git_url": one.url, **({"additional_info": said} if said else {})}
        )

    with connect(server, token_file, config) as client:
        _each(wanted, post, as_json=as_json, listed=file is not None)


def remove(
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Keys, aliases or URLs.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Take repositories out of the catalog."""
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("removing needs a yes, and there is no terminal to ask at", hint="Add --yes")
        for key in keys:
            print(f"  {one_line(key)}", file=sys.stderr)
        typer.confirm("Stop mirroring these?", abort=True, err=True)
    with connect(server, token_file, config) as client:
        _each(
            [Wanted(key, key) for key in keys],
            lambda one: client.delete(repo_path("/api/git_urls", one.url)),
            as_json=as_json,
        )


class SyncCommand(Command):
    """`--wait` may stand alone: then a number is filled in, as the parser wants one."""

    _AMOUNT = re.compile(r"[0-9.]+(ms|[smhd])?")

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        filled = [
            f"--wait={WAIT_DEFAULT_S:g}" if arg == "--wait" and not self._AMOUNT.fullmatch(after) else arg
            for arg, after in zip(args, [*args[1:], ""], strict=False)
        ]
        return super().parse_args(ctx, filled)


def sync(
    key: Key,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="[DURATION]", show_default=False, help="Wait for its end, at most so long (default 10m)."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch even where nothing seems to have changed.")
    ] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Look at a repository now, and fetch what changed."""
    wait_s = wait_seconds(wait) if wait is not None else None
    with connect(server, token_file, config) as client:
        task = client.post(
            "/api/tasks", {"git_url": key, "additional_params": {"force": True} if force else {}}
        )
        if wait_s is not None:
            task = wait_for(client, task, wait_s, quiet=as_json)
    if as_json:
        print_json(task)
    elif wait_s is None:
        say(f"task {task.get('task_id')}: {task.get('status')}")
    finish(task, key, wait_s, as_json=as_json, force=force)


def list_repos(
    search: Annotated[str, typer.Option(metavar="TEXT", show_default=False, help="Part of the key.")] = "",
    status: Annotated[
        str,
        typer.Option(
            metavar="STATUS",
            show_default=False,
            help="pending, active, failing, gone, auth, held or inactive.",
        ),
    ] = "",
    host: Annotated[str, typer.Option(metavar="HOST", show_default=False, help="Upstream host.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List repositories."""
    query: dict[str, str | int] = {
        name: value for name, value in (("search", search), ("status", status), ("host", host)) if value
    }
    with connect(server, token_file, config) as client:
        pages = client.pages("/api/git_urls", query, None if everything else limit)
        if as_json:
            _stream_json(pages)
            return
        shown, more = 0, False
        for items, cursor in pages:
            shown, more = shown + len(items), bool(cursor)
            if items or shown == 0:
                print_table(
                    ["repository", "status", "priority", "verified", "changed", "last error"], _rows(items)
                )
    if more and sys.stdout.isatty():
        warn(f"{shown} shown; --all shows the rest")


def _rows(items: list[Fields]) -> list[list[object]]:
    now = time.time()
    return [
        [
            item.get("key"),
            item.get("status"),
            item.get("priority"),
            age(item.get("verified_at"), now),
            age(item.get("last_updated"), now),
            error_words(item.get("last_error")),
        ]
        for item in items
    ]


def error_words(error: object) -> str:
    """``NETWORK_TIMEOUT: connection refused``, or nothing."""
    return f"{error.get('error_type')}: {error.get('error_message')}" if isinstance(error, dict) else ""


def _stream_json(pages: Iterator[tuple[list[Fields], object]]) -> None:
    """One JSON object however many pages there are, without holding them all."""
    last: object = None
    before = '{"items": [\n  '
    for items, cursor in pages:  # the first page may be refused: nothing is printed before it
        last = cursor
        for item in items:
            print(before + json.dumps(item), end="")
            before = ",\n  "
    print(("" if before.startswith(",") else '{"items": [') + f'], "next_cursor": {json.dumps(last)}}}')


def _each(
    wanted: Sequence[Wanted],
    do: Callable[[Wanted], Fields],
    *,
    as_json: bool,
    listed: bool = False,
) -> None:
    """One after the other; a refusal of one does not stop the rest, and shows in the exit code.

    ``listed``: they come from a list, so that a refusal is a part that failed, not wrong usage."""
    answers: list[Fields] = []
    code = ExitCode.OK
    alone = len(wanted) == 1 and not listed
    for one in wanted:
        try:
            if one.refusal:
                raise UsageError(one.refusal)
            answer = do(one)
        except EvermirrorError as error:
            if alone or error.exit_code is ExitCode.UNREACHABLE:
                raise
            if error.exit_code is ExitCode.DENIED:  # the next ones would be as well
                raise type(error)(f"{one.name}: {error.message}", hint=error.hint) from error
            code = code or (ExitCode.FAILED if listed else error.exit_code)
            warn(f"{one.name}: {error}")
            answers.append({"git_url": one.url, "status": "refused", "detail": error.message})
            continue
        answers.append(answer)
        if not as_json:
            say(f"{answer.get('status', 'done')}  {answer.get('git_url', one.url)}")
    if as_json:
        print_json(answers[0] if alone else answers)
    if code:
        raise typer.Exit(code)


def wait_seconds(text: str) -> float:
    """Of ``30``, ``30s`` or ``2m``."""
    from evermirror.model.duration import parse_duration

    return parse_duration(f"{text}s" if re.fullmatch(r"[0-9.]+", text) else text)


def wait_for(client: Client, task: Fields, wait_s: float, *, quiet: bool, path: str = "") -> Fields:
    """The task's state when it ended, or when the time was up; ``path`` is its address, where it has
    another than tasks have."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    deadline = time.monotonic() + wait_s
    path = path or f"/api/tasks/{task.get('task_id')}"
    pause = POLL_FIRST_S
    shown = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[percent]}", markup=False),
        TimeElapsedColumn(),
        console=shown,
        transient=True,
        disable=quiet or not shown.is_terminal,
    )
    with bar:
        line = bar.add_task("waiting", total=100, percent="")
        while True:
            task = client.get(path)
            percent = _percent(task.get("progress"))
            bar.update(
                line,
                description=one_line(_doing(task)),
                completed=percent or 0,
                percent="" if percent is None else f"{percent:.0f} %",
            )
            left = deadline - time.monotonic()
            if task.get("status") in ENDED or left <= 0:
                return task
            time.sleep(min(pause, left))
            pause = min(POLL_MAX_S, pause * 1.5)


def _percent(progress: object) -> float | None:
    found = _PERCENT.search(progress) if isinstance(progress, str) else None
    return float(found[1]) if found else None


def _doing(task: Fields) -> str:
    """What is being done, in a word or, of a pull task, in its own words."""
    words = _PERCENT.sub("", str(task.get("progress") or "")).strip()
    return str(task.get("phase") or words or task.get("status"))


def finish(task: Fields, key: str, wait_s: float | None, *, as_json: bool, force: bool) -> None:
    """Says how the task ended and ends the command accordingly."""
    result = task.get("result")
    result = result if isinstance(result, dict) else {}
    match task.get("status"):
        case "failure":
            message = (
                f"{result.get('error_type', 'UNKNOWN')}: {result.get('error_message', 'no reason was given')}"
            )
            raise EvermirrorError(f"sync of {key} failed: {message}", hint=str(result.get("hint") or ""))
        case "success" | "skipped" if not as_json and wait_s is not None:
            same = "nothing had changed" if task.get("status") == "skipped" else "up to date"
            _print_changes(key, result, same="verified; everything was fetched again" if force else same)
        case "pending" | "running" if wait_s is not None:
            raise EvermirrorError(
                f"sync of {key} has not ended after {wait_s:g} s",
                hint=f"It goes on as task {task.get('task_id')}",
            )


def _print_changes(key: str, result: Fields, *, same: str) -> None:
    changes = result.get("changes")
    changes = changes if isinstance(changes, list) else []
    if not changes:
        say(f"{key}: {same}")
        return
    total = result.get("changes_total")
    total = total if isinstance(total, int) else len(changes)
    say(f"{key}: {counted(total, 'ref')} moved")
    moved = [c for c in changes if isinstance(c, dict)][:REFS_SHOWN]
    print_table(
        ["ref", "from", "to"],
        [[str(c.get("ref")), _short(c.get("old")), _short(c.get("new"))] for c in moved],
    )
    if total > len(moved):
        say(f"… and {total - len(moved)} more")


def _short(oid: object) -> str:
    return oid[:12] if isinstance(oid, str) else ""
