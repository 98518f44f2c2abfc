"""`pull progress`: how far all projects are, or those of one priority."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from evermirror.faces.cli.client import Client, Fields, connect
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.pull.boxes import Grid, drawn, facts_box, grid_box
from evermirror.faces.cli.pull.common import (
    PRIORITIES,
    FromOption,
    PriorityOption,
    ToOption,
    check_priority,
    count_of,
    number_of,
    time_range,
)
from evermirror.faces.cli.pull.labels import clock, label, minutes
from evermirror.faces.cli.pull.project_view import waiting_lines
from evermirror.faces.cli.watch import Watch
from evermirror.faces.cli.watch import show as show_once_or_on

if TYPE_CHECKING:
    from rich.console import Group

OVERVIEW = "/api/pull/progress/overview"
BY_PRIORITY = "/api/pull/progress/by-priority"


def progress(
    priority: PriorityOption = None,
    watch: Watch = False,
    begin: FromOption = None,
    end: ToOption = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show how far all projects are, and those of each priority."""
    chosen = check_priority(priority)
    time_range(begin, end, time.time())  # what is no time is told before anything is asked
    view: Callable[[Fields], Group] = _all if chosen is None else lambda fields: _one(chosen, fields)
    with connect(server, token_file, config) as client:
        show_once_or_on(
            lambda: _ask(client, chosen, time_range(begin, end, time.time())),
            view,
            watch=watch,
            as_json=as_json,
        )


def _ask(client: Client, priority: str | None, query: dict[str, str | int]) -> Fields:
    """The API's fields: of one priority that class alone, otherwise the overview with all classes."""
    classes = client.get(BY_PRIORITY, query)
    if priority is not None:
        return {priority: classes.get(priority) or {}}
    return {**client.get(OVERVIEW, query), "by_priority": classes}


def _all(fields: Fields) -> Group:
    counted = {**fields, "total": fields.get("total_projects")}
    lines = facts_box(label("All projects"), _facts(counted, fields.get("average_delay_minutes")))
    classes = fields.get("by_priority")
    classes = classes if isinstance(classes, dict) else {}
    rows = [_row(name, classes[name]) for name in PRIORITIES if isinstance(classes.get(name), dict)]
    columns = [label(name) for name in ("Priority", "Projects", "Synced", "Average delay")]
    waiting = waiting_lines(fields.get("waiting"))
    return drawn([*lines, *waiting, *grid_box(Grid(columns, rows), label("By priority")), *_period(fields)])


def _one(priority: str, fields: Fields) -> Group:
    found = fields.get(priority)
    found = found if isinstance(found, dict) else {}
    title = f"{label('Priority')}: {priority}"
    return drawn([*facts_box(title, _facts(found, found.get("avg_delay_minutes"))), *_period(found)])


def _facts(fields: Fields, delay: object) -> list[str]:
    total = count_of(fields.get("total"))
    shares = [
        (name, f"{count} ({_percent(count / total if total else 0.0)})")
        for name in ("Synced", "Syncing", "Pending", "Failed", "Disabled")
        if (count := fields.get(name.lower())) is not None and isinstance(count, int)
        if count or name != "Disabled"
    ]
    facts = [
        ("Total projects", str(total)),
        *shares,
        ("Average delay", minutes(delay)),
        ("Success rate", _percent(number_of(fields.get("success_rate")))),
    ]
    return [f"- {label(name)}: {value}" for name, value in facts]


def _row(name: str, found: Fields) -> list[object]:
    total, synced = count_of(found.get("total")), count_of(found.get("synced"))
    share = f"({synced / total:.0%})" if total else ""
    return [name, total, f"{synced}{share}", minutes(found.get("avg_delay_minutes"))]


def _period(fields: Fields) -> list[str]:
    period = fields.get("period")
    if not isinstance(period, dict):
        return []
    title = label("From {begin} to {end}", begin=clock(period.get("from")), end=clock(period.get("to")))
    facts = [
        ("Tasks", "tasks"),
        ("Succeeded", "success"),
        ("Failed", "failed"),
        ("Skipped", "skipped"),
        ("Commits", "changes"),
    ]
    return facts_box(title, [f"- {label(name)}: {count_of(period.get(field))}" for name, field in facts])


def _percent(share: float | None) -> str:
    """``90%``, ``97.5%``."""
    return "–" if share is None else f"{share * 100:.1f}".removesuffix(".0") + "%"
