"""`add`, `remove`, `sync`, `repos`: the catalog as seen through the API."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from evermirror.errors import EvermirrorError, ExitCode, UsageError
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, console, print_json, print_table, say, warn
from evermirror.model.printable import one_line

WAIT_DEFAULT_S = 600.0  # of `--wait` without a number: a first clone of a large repository takes minutes
POLL_FIRST_S = 0.1
POLL_MAX_S = 1.0  # a person watches; the server answers from memory
REFS_SHOWN = 20
ENDED = frozenset({"success", "failure", "skipped"})
LIST_BYTES_MAX = 200_000_000  # a million lines are about 60 MB

Key = Annotated[str, typer.Argument(metavar="KEY", help="Key, alias or URL, such as github.com/owner/name.")]


def add(
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL…", help="Repositories to mirror.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="LIST", show_default=False, help="One URL a line; # begins a comment."
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
    wanted = [*(urls or []), *(_listed(file) if file else ())]
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
    with connect(server, token_file, config) as client:
        _each(
            wanted,
            lambda url: client.post(
                "/api/git_urls", {"git_url": url, **({"additional_info": body} if body else {})}
            ),
            as_json=as_json,
        )


def remove(
    keys: Annotated[list[str], typer.Argument(metavar="KEY…", help="Keys, aliases or URLs.")],
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
        _each(keys, lambda key: client.delete(repo_path("/api/git_urls", key)), as_json=as_json)


class SyncCommand(TyperCommand):
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
            metavar="[SECONDS]", show_default=False, help="Wait for its end, at most so long (default 10m)."
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
    wait_s = _seconds(wait) if wait is not None else None
    with connect(server, token_file, config) as client:
        task = client.post(
            "/api/tasks", {"git_url": key, "additional_params": {"force": True} if force else {}}
        )
        if wait_s is not None:
            task = _wait(client, task, wait_s, quiet=as_json)
    if as_json:
        print_json(task)
    elif wait_s is None:
        say(f"task {task.get('task_id')}: {task.get('status')}")
    _finish(task, key, wait_s, as_json=as_json)


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


def _each(names: list[str], do: Callable[[str], Fields], *, as_json: bool) -> None:
    """One after the other; a refusal of one does not stop the rest, and shows in the exit code."""
    answers: list[Fields] = []
    worst: EvermirrorError | None = None
    for name in names:
        try:
            answer = do(name)
        except EvermirrorError as error:
            if error.exit_code in (ExitCode.UNREACHABLE, ExitCode.DENIED) or len(names) == 1:
                raise
            worst = worst or error
            warn(f"{name}: {error}")
            answers.append({"git_url": name, "status": "refused", "detail": error.message})
            continue
        answers.append(answer)
        if not as_json:
            say(f"{answer.get('status', 'done')}  {answer.get('git_url', name)}")
    if as_json:
        print_json(answers[0] if len(names) == 1 else answers)
    if worst is not None:
        raise typer.Exit(worst.exit_code)


def _listed(file: Path) -> Iterator[str]:
    try:
        if file.stat().st_size > LIST_BYTES_MAX:
            raise UsageError(f"list {file} is larger than {LIST_BYTES_MAX} bytes")
        with file.open(encoding="utf-8") as opened:
            for line in opened:
                url = line.partition(" #")[0].strip()
                if url and not url.startswith("#"):
                    yield url
    except OSError as error:
        raise UsageError(f"list {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"list {file} is not UTF-8 text") from error


def _seconds(text: str) -> float:
    from evermirror.model.duration import parse_duration

    return parse_duration(f"{text}s" if re.fullmatch(r"[0-9.]+", text) else text)


def _wait(client: Client, task: Fields, wait_s: float, *, quiet: bool) -> Fields:
    """The task's state when it ended, or when the time was up."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    deadline = time.monotonic() + wait_s
    path = f"/api/tasks/{task.get('task_id')}"
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
                description=one_line(str(task.get("phase") or task.get("status"))),
                completed=percent or 0,
                percent="" if percent is None else f"{percent:.0f} %",
            )
            left = deadline - time.monotonic()
            if task.get("status") in ENDED or left <= 0:
                return task
            time.sleep(min(pause, left))
            pause = min(POLL_MAX_S, pause * 1.5)


def _percent(progress: object) -> float | None:
    found = re.match(r"[0-9.]+", progress) if isinstance(progress, str) else None
    return float(found.group()) if found else None


def _finish(task: Fields, key: str, wait_s: float | None, *, as_json: bool) -> None:
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
            _print_changes(key, result, skipped=task.get("status") == "skipped")
        case "pending" | "running" if wait_s is not None:
            raise EvermirrorError(
                f"sync of {key} has not ended after {wait_s:g} s",
                hint=f"It goes on as task {task.get('task_id')}",
            )


def _print_changes(key: str, result: Fields, *, skipped: bool) -> None:
    changes = result.get("changes")
    changes = changes if isinstance(changes, list) else []
    if not changes:
        say(f"{key}: nothing had changed" if skipped else f"{key}: up to date")
        return
    total = result.get("changes_total")
    total = total if isinstance(total, int) else len(changes)
    say(f"{key}: {total} ref{'s' * (total != 1)} moved")
    moved = [c for c in changes if isinstance(c, dict)][:REFS_SHOWN]
    print_table(
        ["ref", "from", "to"],
        [[str(c.get("ref")), _short(c.get("old")), _short(c.get("new"))] for c in moved],
    )
    if total > len(moved):
        say(f"… and {total - len(moved)} more")


def _short(oid: object) -> str:
    return oid[:12] if isinstance(oid, str) else ""
