"""A project as a box: its configuration, how it is, its targets, and its last tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evermirror.faces.cli.client import Fields
from evermirror.faces.cli.pull.boxes import Grid, facts_box, grid_box, show_lines, terminal_width
from evermirror.faces.cli.pull.common import count_of, dicts, number_of, texts
from evermirror.faces.cli.pull.labels import clock, is_chinese, label, minutes, pieces, short_clock, times
from evermirror.faces.cli.repos import error_words
from evermirror.model.printable import one_line


def show_project(key: str, project: Fields, tasks: Sequence[Fields] | None = None) -> None:
    """Prints the box; with the history where ``tasks`` are given."""
    lines = _facts(project)
    for target in dicts(project.get("targets")):
        lines.append(f"{label('Target')}: {one_line(str(target.get('url')))}")
        lines.append(f"  {one_line(target_state(target))}")
    if tasks is not None:
        lines += ["", f"{label('Recent tasks')}:", *_history(tasks)]
    show_lines(facts_box(f"{label('Project')}: {project.get('project_key') or key}", lines))


def _facts(p: Fields) -> list[str]:
    configured = p.get("configured", True)
    interval = minutes(p.get("sync_interval"))
    facts: list[tuple[str, object]] = [
        ("Priority", priority_words(p)),
        ("Interval", interval if configured else f"{interval} ({label('adaptive')})"),
        ("State", state_words(p)),
        ("Waiting", wait_words(p.get("waiting"))),
        ("Last sync", clock(p.get("last_sync_at")) if p.get("last_sync_at") else label("never")),
        ("Next sync", clock(p.get("next_sync_at"))),
        ("Failures in a row", times(count_of(p.get("consecutive_failures")))),
        ("Source", p.get("source_url")),
        ("Retries", times(count_of(p.get("max_retries"))) if configured else None),
        ("Retry delay", minutes(p.get("retry_delay")) if configured else None),
        ("Set by hand", ", ".join(texts(p.get("overrides")))),
        ("Last error", error_words(p.get("last_error"))),
    ]
    return [f"{label(name)}: {one_line(str(value))}" for name, value in facts if value]


def priority_words(project: Fields) -> str:
    """``critical``; of one that fails also the class that it counts as."""
    own, counts_as = project.get("priority"), project.get("effective_priority")
    if counts_as is None or counts_as == own:
        return str(own or "")
    return f"{own} ({label('counts as {priority} after failures', priority=counts_as)})"


def state_words(project: Fields) -> str:
    """Enabled, disabled, or paused and why."""
    if project.get("paused"):
        return f"{label('paused')}: {project.get('paused')}"
    if project.get("configured") is False:
        return label("no pull configuration; `pull config KEY --interval=…` makes it a project")
    return label("enabled" if project.get("enabled") else "disabled")


def target_state(target: Fields) -> str:
    """One line: paused and why, the last failure, or since when it is up to date."""
    if target.get("adopt"):
        return label("the next push overwrites what is there")
    if target.get("paused"):
        return f"{label('paused')}: {target.get('paused')}"
    if count_of(target.get("failures")) and isinstance(target.get("last_error"), dict):
        error = error_words(target.get("last_error"))
        return label("failed {count}× in a row: {error}", count=target.get("failures"), error=error)
    if target.get("put_at"):
        return label("up to date since {at}", at=clock(target.get("put_at")))
    return label("nothing pushed yet")


def wait_words(wait: object) -> str:
    """What a task waits for, in the reader's language; empty: nothing."""
    if not isinstance(wait, dict):
        return ""
    if not is_chinese():
        return str(wait.get("text"))
    until = wait.get("clock")
    known = {
        "peak": "waits until {clock}: only critical and high run in peak hours",
        "load": "waits while the source is under load",
        "source": "waits until {clock}: its source fails for all, or asked us to wait",
        "room": "waits for room",
        "worker": "waits for a worker that can do it",
    }
    if wait.get("reason") == "peak" and not until:
        return label("waits: only critical and high run in peak hours")
    text = known.get(str(wait.get("reason")))
    return label(text, clock=until) if text is not None else str(wait.get("text"))


def waiting_lines(waiting: object) -> list[str]:
    """How many wait for what: ``12 wait until 18:00: …``."""
    told = [one for one in waiting if isinstance(one, dict)] if isinstance(waiting, list) else []
    return [f"{one.get('count')} 个{wait_words(one)}" if is_chinese() else _many_wait(one) for one in told]


def _many_wait(one: Fields) -> str:
    text = str(one.get("text"))
    return f"{one.get('count')} " + (text if one.get("count") == 1 else text.replace("waits", "wait", 1))


def _history(tasks: Sequence[Fields]) -> list[str]:
    if not tasks:
        return [label("no tasks yet")]
    now = time.time()
    rows = [
        [
            short_clock(task.get("started_at") or task.get("scheduled_at"), now),
            status_words(task),
            took(task.get("duration_seconds")),
            pieces(count_of(task.get("changes_count"))),
        ]
        for task in tasks
    ]
    columns = [label(name) for name in ("Time", "State", "Took", "Changes")]
    return grid_box(Grid(columns, rows), width=terminal_width() - 4)


def status_words(task: Fields) -> str:
    """``success``; ``skipped ×12`` where one row stands for so many looks."""
    repeated = count_of(task.get("repeated"))
    return f"{task.get('status')} ×{repeated + 1}" if repeated else str(task.get("status"))


def took(seconds: object) -> str | None:
    """``2.3s``, as the tasks' duration is told."""
    value = number_of(seconds)
    return None if value is None else f"{value:.1f}s"
