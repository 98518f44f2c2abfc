"""`sync`: a repository is looked at now; whoever waits sees how far it is, and then what moved."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, UsageError
from evermirror.faces.cli.client import Client, Fields, connect
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.keys import Key, by_name
from evermirror.faces.cli.options import PRIORITIES, AsJson, ConfigFile, Server, TokenFile, check_choice
from evermirror.faces.cli.output import console, counted, print_json, print_table, say, span, warn
from evermirror.model.duration import format_size
from evermirror.model.printable import one_line

WAIT_DEFAULT_S = 600.0  # of `--wait` without a number: a first clone of a large repository takes minutes
WITHIN_MAX_S = 3600.0  # the server looks for a commit no longer than that
POLL_FIRST_S = 0.1
POLL_MAX_S = 1.0  # a person watches; the server answers from memory
COLLECT_S = 10.0  # for an aggregator to have what a sync brought; it goes on without anybody waiting
REFS_SHOWN = 20
_COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
ENDED = frozenset({"success", "failure", "failed", "skipped"})  # "failed": of a pull task


class SyncCommand(Command):
    """`--wait` may stand alone: then a number is filled in, as the parser wants one."""

    _AMOUNT = re.compile(r"[0-9.]+[A-Za-z]*")  # also one that is no duration: it is told so, by its name

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
    min_commit: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="Succeed only with this commit; waited for with --wait."
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="CLASS", show_default=False, help="critical, high, normal or low.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch and compare even where nothing seems to have changed.")
    ] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Look at a repository now, and fetch what changed."""
    wait_s = wait_seconds(wait) if wait is not None else None
    params = _params(min_commit, priority, force=force, wait_s=wait_s)
    with connect(server, token_file, config) as client:
        task = by_name(
            client,
            key,
            lambda name: client.post("/api/tasks", {"git_url": name, "additional_params": params}),
        )
        if wait_s is not None:
            task = wait_for(client, task, wait_s, quiet=as_json)
    if as_json:
        print_json(task)
    elif wait_s is None:
        say(f"task {task.get('task_id')}: {task.get('status')}")
    finish(task, key, wait_s, as_json=as_json, force=force)


def _params(
    min_commit: str | None, priority: str | None, *, force: bool, wait_s: float | None
) -> dict[str, object]:
    """What is asked for besides; wrong ones are refused before anything is."""
    if min_commit is not None and not _COMMIT.fullmatch(min_commit):
        raise UsageError(
            f"--min-commit {min_commit!r} is no commit id", hint="Give it whole: 40 or 64 hex digits"
        )
    check_choice("--priority", priority or "", PRIORITIES)
    params: dict[str, object] = {}
    if force:
        params["force"] = True
    if priority is not None:
        params["priority"] = priority
    if min_commit is not None:
        params["min_commit"] = min_commit
        if wait_s is not None:
            params["within"] = min(wait_s, WITHIN_MAX_S)
    return params


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
    collected_by = 0.0  # asked through an aggregator: it is given a while to have what the sync brought
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
    with bar, _goes_on(task, quiet=quiet):
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
            if task.get("status") in ENDED and task.get("served") is False:
                collected_by = collected_by or time.monotonic() + COLLECT_S
                left = min(left, collected_by - time.monotonic())
            elif task.get("status") in ENDED:
                return task
            if left <= 0:
                return task
            time.sleep(min(pause, left))
            pause = min(POLL_MAX_S, pause * 1.5)


@contextmanager
def _goes_on(task: Fields, *, quiet: bool) -> Iterator[None]:
    """Whoever leaves with Ctrl-C has only stopped waiting."""
    try:
        yield
    except KeyboardInterrupt:
        if not quiet:
            warn(f"task {task.get('task_id')} goes on without you")
        raise


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
            _print_changes(
                key, result, same="nothing had changed; all refs and objects were compared" if force else same
            )
            if task.get("served") is False:
                warn("this aggregator does not have it yet: it follows, or fetches it at the first clone")
        case "pending" | "running" if wait_s is not None:
            raise EvermirrorError(
                f"sync of {key} has not ended after {wait_s:g} s",
                hint=f"It goes on as task {task.get('task_id')}",
            )


def _print_changes(key: str, result: Fields, *, same: str) -> None:
    changes = result.get("changes")
    changes = [c for c in changes if isinstance(c, dict)] if isinstance(changes, list) else []
    if not changes:
        say(f"{key}: {same}{_how(result)}")
        return
    total = result.get("changes_total")
    total = total if isinstance(total, int) else len(changes)
    say(f"{key}: {counted(total, 'ref')} moved{_how(result)}")
    rewritten = _rewritten(result)
    print_table(
        ["ref", "from", "to", ""],
        [
            [str(c.get("ref")), _short(c.get("old")), _short(c.get("new")), _mark(c, rewritten) or " "]
            for c in changes[:REFS_SHOWN]
        ],
    )
    if total > min(len(changes), REFS_SHOWN):
        say(f"… and {total - min(len(changes), REFS_SHOWN)} more")


def _how(result: Fields) -> str:
    """`` (3 commits, 1.2kB, in 800 ms, by ann)``, as far as it is known."""
    commits, received = result.get("commits"), result.get("received_bytes")
    took, worker = result.get("duration_s"), result.get("worker")
    parts = [
        counted(commits, "commit") if isinstance(commits, int) and commits else "",
        format_size(received) if isinstance(received, int) and received else "",
        f"in {_took(took)}" if isinstance(took, int | float) else "",
        f"by {one_line(worker)}" if isinstance(worker, str) and worker else "",
    ]
    told = ", ".join(part for part in parts if part)
    return f" ({told})" if told else ""


def _took(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else span(seconds)


def _rewritten(result: Fields) -> set[object]:
    """Refs whose old tip is not behind the new one: it is kept."""
    kept = result.get("kept")
    tips = [tip for tip in kept if isinstance(tip, dict)] if isinstance(kept, list) else []
    return {tip.get("ref") for tip in tips if tip.get("why") == "rewritten"}


def _mark(change: Fields, rewritten: set[object]) -> str:
    if change.get("old") is None:
        return "new"
    if change.get("new") is None:
        return "deleted"
    return "rewritten" if change.get("ref") in rewritten else ""


def _short(oid: object) -> str:
    return oid[:12] if isinstance(oid, str) else ""
