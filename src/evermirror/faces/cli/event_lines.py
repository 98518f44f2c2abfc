"""Events as one line each, for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from evermirror.faces.cli.client import Fields
from evermirror.faces.cli.output import as_seconds, counted
from evermirror.model.printable import one_line

_TYPE_WIDTH = 15


def line_of(event: Fields) -> str:
    """``2026-11-16 12:00:00  refs.changed     github.com/o/r  2 refs, 5 commits``."""
    kind = str(event.get("type") or "")
    data = event.get("data")
    told = _TOLD.get(kind, _anything)(data if isinstance(data, dict) else {})
    worker = event.get("worker")
    subject = event.get("repo") or worker or ""
    by = f"({worker})" if worker and event.get("repo") else ""
    parts = (_time(event.get("at")), kind.ljust(_TYPE_WIDTH), str(subject), told, by)
    return one_line("  ".join(part for part in parts if part))


def _time(at: object) -> str:
    seconds = as_seconds(at)
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _refs(data: Mapping[str, object]) -> str:
    total, commits = _number(data.get("changes_total")), _number(data.get("commits"))
    moved = counted(total, "ref")
    changes = data.get("changes")
    if total == 1 and isinstance(changes, list) and changes and isinstance(changes[0], dict):
        moved = str(changes[0].get("ref")).removeprefix("refs/heads/").removeprefix("refs/tags/")
    return f"{'first sync: ' if data.get('first') else ''}{moved}, {counted(commits, 'commit')}"


def _failed(data: Mapping[str, object]) -> str:
    failures = _number(data.get("consecutive_failures"))
    times = f" ({failures} in a row)" if failures > 1 else ""
    return f"{data.get('error_type')}: {data.get('error_message')}{times}"


def _recovered(data: Mapping[str, object]) -> str:
    return f"after {counted(_number(data.get('consecutive_failures')), 'failure')}"


def _task(data: Mapping[str, object]) -> str:
    failure = data.get("failure")
    why = f": {failure.get('error_message')}" if isinstance(failure, dict) else ""
    return f"task {data.get('task_id')} {data.get('status')}{why}"


def _pull(data: Mapping[str, object]) -> str:
    failure = data.get("failure")
    if isinstance(failure, dict):
        return f"task {data.get('task_id')} {failure.get('error_type')}: {failure.get('error_message')}"
    return f"task {data.get('task_id')} {counted(_number(data.get('changes_count')), 'commit')}"


def _push(data: Mapping[str, object]) -> str:
    failure = data.get("failure")
    if isinstance(failure, dict):
        return f"target {data.get('target')}: {failure.get('error_message')}"
    put, deleted = _number(data.get("put_total")), _number(data.get("deleted_total"))
    return f"target {data.get('target')}: {counted(put, 'ref')} put, {deleted} deleted"


def _problem(data: Mapping[str, object]) -> str:
    return str(data.get("error_message") or "")


def _alert(data: Mapping[str, object]) -> str:
    return f"{data.get('level')} {data.get('kind')} {data.get('about')}: {data.get('text')}"


def _progress(data: Mapping[str, object]) -> str:
    percent = data.get("percent")
    return f"{data.get('phase')} {'' if percent is None else f'{percent:.0f} %'}".strip()


def _anything(data: Mapping[str, object]) -> str:
    """Of a type that says it all by its few values, or that this program does not know yet."""
    shown = ((name, value) for name, value in data.items() if value is not None and value != "")
    return ", ".join(f"{name}: {_short(value)}" for name, value in shown)


def _short(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


_TOLD: dict[str, Callable[[Mapping[str, object]], str]] = {
    "refs.changed": _refs,
    "sync.failed": _failed,
    "sync.recovered": _recovered,
    "task.ended": _task,
    "push.ended": _push,
    "pull_sync_success": _pull,
    "pull_sync_failed": _pull,
    "repo.gone": _problem,
    "repo.held": _problem,
    "alert.raised": _alert,
    "alert.over": _alert,
    "progress": _progress,
}
