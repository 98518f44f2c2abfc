"""A project as a box: its configuration, how it is, its targets, and its last tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evermirror.faces.cli.client import Fields
from evermirror.faces.cli.pull.boxes import Grid, facts_box, grid_box, show_lines, terminal_width
from evermirror.faces.cli.pull.common import count_of, dicts, number_of, texts
from evermirror.faces.cli.pull.labels import clock, label, minutes, pieces, short_clock, times, wait_words
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
        return str(own)
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
