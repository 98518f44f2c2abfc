"""`pull tasks`, `trigger` and `task-status`: what was done, and what is to be done now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, ExitCode, UsageError
from evermirror.faces.cli.client import Client, Fields, connect
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say, warn
from evermirror.faces.cli.pull.boxes import Grid, facts_box, grid_box, show_lines
from evermirror.faces.cli.pull.common import (
    LimitOption,
    PriorityOption,
    ProjectKey,
    ProjectsOption,
    check_priority,
    count_of,
    dicts,
    naming,
    project_path,
    said,
    split_keys,
    tell_more,
    texts,
)
from evermirror.faces.cli.pull.labels import clock, label, pieces, short_clock, times
from evermirror.faces.cli.pull.project_view import status_words, took, wait_words, waiting_lines
from evermirror.faces.cli.sync import wait_for, wait_seconds
from evermirror.model.printable import one_line

TASKS = "/api/pull/tasks"
COMMIT_SHOWN = 12
REFS_SHOWN = 10  # that wait at a target; --json has more

MaybeKey = Annotated[
    str | None, typer.Argument(metavar="KEY", show_default=False, help="One project: runs at once.")
]


def tasks(
    key: ProjectKey,
    limit: LimitOption = 10,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks of a project, newest first."""
    with connect(server, token_file, config) as client, naming(key):
        answer = client.get(project_path(key, "/tasks"), {"limit": limit})
    if as_json:
        print_json(answer)
        return
    items, now = dicts(answer.get("items")), time.time()
    if not items:
        say(f"{key}: {label('no tasks yet')}")
        return
    columns = (
        "Task",
        "Time",
        "State",
        "Took",
        "Changes",
        "Trigger",
        "Source commit",
        "Target commit",
        "Error",
    )
    rows = [
        [
            task.get("task_id"),
            short_clock(task.get("started_at") or task.get("scheduled_at"), now),
            status_words(task),
            took(task.get("duration_seconds")),
            pieces(count_of(task.get("changes_count"))),
            task.get("trigger_type"),
            _short(task.get("source_commit_sha")),
            _short(task.get("target_commit_sha")),
            task.get("error_type"),
        ]
        for task in items
    ]
    show_lines(grid_box(Grid([label(name) for name in columns], rows)))
    if (total := count_of(answer.get("total"))) > len(items):
        tell_more(len(items), total, "--limit")


def task_status(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="As `pull trigger` prints it.")],
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what became of a task."""
    if not (task_id.isascii() and task_id.isdigit()):
        raise UsageError(f"task id {one_line(task_id)!r} is not a number")
    with connect(server, token_file, config) as client, naming(task_id):
        task = client.get(f"{TASKS}/{task_id}")
    if as_json:
        print_json(task)
    else:
        show_lines(facts_box(f"{label('Task')}: {task.get('task_id')}", _facts(task)))


def trigger(
    key: MaybeKey = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where nothing changed: the targets are read and repaired.")
    ] = False,
    keys: ProjectsOption = None,
    priority: PriorityOption = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="[DURATION]", show_default=False, help="Wait for the end, at most so long (default 10m)."
        ),
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Sync a project at once; or several (--projects), or all of a priority, within the limit."""
    named = split_keys(keys)
    if (key is not None) + bool(named) + (priority is not None) != 1:
        raise UsageError("give one of KEY, --projects and --priority")
    check_priority(priority)
    wait_s = wait_seconds(wait) if wait is not None else None
    with connect(server, token_file, config) as client:
        if key is not None:
            _trigger_one(client, key, wait_s, force=force, as_json=as_json)
        else:
            body = said(project_keys=named or None, priority=priority, force=force or None)
            _trigger_many(client, body, wait_s, as_json=as_json)


def _trigger_one(client: Client, key: str, wait_s: float | None, *, force: bool, as_json: bool) -> None:
    with naming(key):
        task = client.post(project_path(key, "/trigger"), {"force": force})
    if wait_s is not None:
        path = f"{TASKS}/{task.get('task_id')}"
        task = {**task, **wait_for(client, task, wait_s, quiet=as_json, path=path)}
    if as_json:
        print_json(task)
    elif wait_s is None:
        message = f" ({label(str(task.get('message')))})" if task.get("message") else ""
        say(f"{label('Task')} {task.get('task_id')}: {task.get('status')}{message}")
    if wait_s is not None:
        if not as_json:
            show_lines(facts_box(f"{label('Task')}: {task.get('task_id')}", _facts(task)))
        _check_ended(task, key, wait_s)


def _trigger_many(client: Client, body: dict[str, object], wait_s: float | None, *, as_json: bool) -> None:
    answer = client.post("/api/pull/trigger/batch", body)
    ids = texts(answer.get("task_ids"))
    ended: list[Fields] = []
    if wait_s is not None:
        ended = _wait_all(client, ids, wait_s, quiet=as_json)
    if as_json:
        print_json({**answer, "tasks": ended} if wait_s is not None else answer)
    else:
        say(
            label(
                "{created} created, {skipped} skipped (running)",
                created=count_of(answer.get("created_tasks")),
                skipped=count_of(answer.get("skipped_running")),
            )
        )
        for line in waiting_lines(answer.get("waiting")):
            say(line)
        if ended:
            _print_ended(ended)
        elif ids:
            say(f"{label('Task')}: {', '.join(ids)}")
    _check_batch(answer, ended)


def _wait_all(client: Client, ids: Sequence[str], wait_s: float, *, quiet: bool) -> list[Fields]:
    deadline = time.monotonic() + wait_s
    return [
        wait_for(client, {}, max(deadline - time.monotonic(), 0.0), quiet=quiet, path=f"{TASKS}/{task_id}")
        for task_id in ids
    ]


def _print_ended(ended: Sequence[Fields]) -> None:
    columns = ("Task", "Project", "State", "Took", "Changes", "Error")
    rows = [
        [
            task.get("task_id"),
            task.get("project_key"),
            task.get("status"),
            took(task.get("duration_seconds")),
            pieces(count_of(task.get("changes_count"))),
            _error(task),
        ]
        for task in ended
    ]
    show_lines(grid_box(Grid([label(name) for name in columns], rows)))


def _check_batch(answer: Fields, ended: Sequence[Fields]) -> None:
    code = ExitCode.OK
    for key in texts(answer.get("disabled")):
        warn(f"project {key} is disabled: no task was created")
        code = ExitCode.FAILED
    for key in texts(answer.get("not_found")):
        warn(f"there is no project {key}")
        code = ExitCode.NOT_FOUND
    if any(task.get("status") not in ("success", "skipped") for task in ended):
        code = ExitCode.FAILED
    if code:
        raise typer.Exit(code)


def _check_ended(task: Fields, key: str, wait_s: float) -> None:
    match task.get("status"):
        case "success" | "skipped":
            return
        case "failed":
            hint = str(task.get("hint") or "")
            raise EvermirrorError(f"sync of {key} failed: {_error(task) or 'no reason was given'}", hint=hint)
        case _:
            raise EvermirrorError(
                f"sync of {key} has not ended after {wait_s:g} s",
                hint=f"It goes on: `evermirror pull task-status {task.get('task_id')}`",
            )


def _facts(task: Fields) -> list[str]:
    ended = bool(task.get("completed_at"))
    facts: list[tuple[str, object]] = [
        ("Project", task.get("project_key")),
        ("State", status_words(task)),
        ("Progress", None if ended else wait_words(task.get("waiting")) or task.get("progress")),
        ("Trigger", task.get("trigger_type")),
        ("Scheduled", clock(task.get("scheduled_at")) if task.get("scheduled_at") else None),
        ("Started", clock(task.get("started_at")) if task.get("started_at") else None),
        ("Ended", clock(task.get("completed_at")) if ended else None),
        ("Took", took(task.get("duration_seconds"))),
        ("Changes", pieces(count_of(task.get("changes_count"))) if ended else None),
        ("Source commit", task.get("source_commit_sha")),
        ("Target commit", task.get("target_commit_sha")),
        ("Retry", times(task.get("retry_count")) if task.get("retry_count") else None),
        ("Error", _error(task)),
        ("Hint", task.get("hint")),
    ]
    lines = [f"{label(name)}: {one_line(str(value))}" for name, value in facts if value]
    return [*lines, *(line for push in dicts(task.get("pushes")) for line in _pushed(push))]


def _pushed(push: Fields) -> list[str]:
    """One target: what moved there, why something did not, and which refs wait."""
    waiting = [r for r in dicts(push.get("refs")) if r.get("outcome") in ("conflict", "refused")]
    failure = push.get("failure")
    told = [
        label(
            "{put} put, {deleted} deleted, {waiting} waiting",
            put=count_of(push.get("put_total")),
            deleted=count_of(push.get("deleted_total")),
            waiting=count_of(push.get("waiting_total")),
        ),
        f"{failure.get('kind')}: {failure.get('message')}" if isinstance(failure, dict) else "",
        *(f"{ref.get('ref')}: {ref.get('outcome')}: {ref.get('reason')}" for ref in waiting[:REFS_SHOWN]),
        label("… and {more} more", more=len(waiting) - REFS_SHOWN) if len(waiting) > REFS_SHOWN else "",
        str(push.get("warning") or ""),
    ]
    head = f"{label('Target')}: {push.get('target_url') or push.get('target')}"
    return [one_line(head), *(one_line(f"  {line}") for line in told if line)]


def _error(task: Fields) -> str:
    if not task.get("error_type"):
        return ""
    return f"{task.get('error_type')}: {task.get('error_message')}"


def _short(commit: object) -> str:
    return commit[:COMMIT_SHOWN] if isinstance(commit, str) else ""
