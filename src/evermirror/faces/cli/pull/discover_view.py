"""Discoveries on a terminal: a bar while a run lasts, then what was done; what a dry run would do."""

from __future__ import annotations

import time
from collections.abc import Callable

from evermirror.faces.cli.client import Client, Fields
from evermirror.faces.cli.following import Step, followed
from evermirror.faces.cli.output import warn
from evermirror.faces.cli.pull.boxes import Grid, facts_box, grid_box, show_lines
from evermirror.faces.cli.pull.common import count_of, dicts, number_of, paged, tell_more
from evermirror.faces.cli.pull.labels import label, minutes, short_clock
from evermirror.model.printable import one_line

DISCOVERIES = "/api/pull/discoveries"
SHOWN = 50

_STATES = ("active", "gone", "renamed", "refused", "clash")
_STEPS = ("create", "keep", "rename", "pause", "resume", "refuse", "hold")
_PHASES = ("listing", "planning", "making", "done")
_WORDS = frozenset((*_STATES, *_STEPS, *_PHASES))  # of the API, that readers get in their language
_COUNTS = (
    ("Found", "found"),
    ("Chosen", "chosen"),
    ("Created", "created"),
    ("Unchanged", "unchanged"),
    ("Renamed", "renamed"),
    ("Gone", "gone"),
    ("Returned", "returned"),
    ("Refused", "refused"),
    ("Held back", "held"),
)


def watched(ask: Callable[[], Fields], ended: Callable[[Fields], bool], *, quiet: bool) -> Fields:
    """The answer in which the run has ended; a bar shows how far it is."""
    return followed(ask, ended, _step, first=label("waiting"), quiet=quiet)


def _step(answer: Fields) -> Step:
    return Step(*_progress(_fields(answer.get("run"))))


def show_discovery(client: Client, answer: Fields, state: str | None, limit: int | None) -> None:
    """Its last run, and its projects: those that need somebody first."""
    path = f"{DISCOVERIES}/{answer.get('id')}/projects"
    found = paged(client, path, {"state": state} if state else {}, limit or SHOWN)
    show_lines(facts_box(_title(answer), _facts(answer)))
    items = sorted(dicts(found.get("items")), key=lambda row: (_calm(row), str(row.get("path"))))
    if items:
        columns = ("Path", "State", "Project", "Target", "Why")
        show_lines(grid_box(Grid([label(name) for name in columns], [_row(item) for item in items])))
    total = count_of(found.get("total"))
    if total > len(items):
        tell_more(len(items), total, "--all")


def tell_held(answer: Fields) -> None:
    """What waits for a person, on stderr."""
    if count_of(_fields(answer.get("last_run")).get("held")):
        words, hint = held_words(answer)
        warn(f"{words}: {hint}")


def held_words(answer: Fields) -> tuple[str, str]:
    """What waits for a person, and how it is said."""
    last = _fields(answer.get("last_run"))
    words = label("{held} projects are gone at once and wait for your word", held=count_of(last.get("held")))
    why = last.get("held_why")
    return (
        f"{words} ({one_line(str(why))})" if why else words,
        f"`evermirror pull discover run {answer.get('id')} --accept`",
    )


def show_list(items: list[Fields]) -> None:
    now = time.time()
    columns = (
        "ID",
        "Group",
        "Source",
        "Target",
        "Every",
        "State",
        "Projects",
        "Refused",
        "Last run",
        "Next run",
    )
    rows = [
        [
            item.get("id"),
            item.get("group"),
            item.get("source_url"),
            item.get("target_url"),
            _every(item),
            state_of(item),
            _counted(item, "active"),
            _counted(item, "refused") + _counted(item, "clash"),
            short_clock(_fields(item.get("last_run")).get("ended_at"), now),
            short_clock(item.get("next_run_at"), now),
        ]
        for item in items
    ]
    show_lines(grid_box(Grid([label(name) for name in columns], rows)))


def show_preview(answer: Fields) -> None:
    """What would be done; what stays as it is is only counted."""
    outcome = _fields(answer.get("outcome"))
    show_lines(facts_box(label("Dry run: nothing was changed"), _counts(outcome)))
    steps = [step for step in dicts(answer.get("steps")) if step.get("step") != "keep"]
    if steps:
        columns = ("Step", "Path", "Project", "Target", "Why")
        rows = [_step_row(step) for step in steps]
        show_lines(grid_box(Grid([label(name) for name in columns], rows)))
    more = count_of(answer.get("more"))
    if more:
        warn(label("… and {more} more", more=more))


def error_of(fields: Fields) -> tuple[str, str] | None:
    """The words of a run that failed, and what to do."""
    error = _fields(fields.get("error"))
    if not error:
        return None
    return f"{error.get('error_type')}: {error.get('error_message')}", str(error.get("hint") or "")


def state_of(item: Fields) -> str:
    last = _fields(item.get("last_run"))
    if item.get("run"):
        return label("running")
    if not item.get("enabled"):
        return label("stopped")
    if not last:
        return label("waiting")
    error = _fields(last.get("error"))
    return one_line(str(error.get("error_type"))) if error else label("done")


def _title(answer: Fields) -> str:
    return label(
        "Discovery {id}: {group} at {source}",
        id=answer.get("id"),
        group=answer.get("group"),
        source=answer.get("source_url"),
    )


def _facts(answer: Fields) -> list[str]:
    last = _fields(answer.get("last_run"))
    lines = [
        f"{label('State')}: {state_of(answer)}",
        f"{label('Target')}: {answer.get('target_url') or label('none')}",
        f"{label('Every')}: {_every(answer)}",
        f"{label('Next run')}: {short_clock(answer.get('next_run_at'), time.time())}",
        *_counts(last),
    ]
    trouble = error_of(last)
    if trouble is not None:
        lines.append(f"{label('Error')}: {trouble[0]}")
        lines += [f"{label('Hint')}: {trouble[1]}"] if trouble[1] else []
    return [one_line(line) for line in lines]


def _counts(outcome: Fields) -> list[str]:
    return [f"{label(name)}: {count_of(outcome.get(field))}" for name, field in _COUNTS if field in outcome]


def _row(item: Fields) -> list[object]:
    return [
        item.get("path"),
        _word(item, "state"),
        item.get("project_key"),
        item.get("target_url"),
        item.get("why"),
    ]


def _step_row(step: Fields) -> list[object]:
    target = step.get("target_url")
    made = f" ({label('new')})" if step.get("makes_target") else ""
    was = f"{step.get('was')} → " if step.get("was") else ""
    return [
        _word(step, "step"),
        f"{was}{step.get('path')}",
        step.get("project_key"),
        f"{target}{made}" if target else None,
        step.get("why"),
    ]


def _progress(run: Fields) -> tuple[str, int, int | None]:
    waits = number_of(run.get("waits_s")) or 0.0
    words = _word(run, "phase") if run else label("waiting")
    if waits:
        words = label("waits {seconds} s for the forge's limit", seconds=f"{waits:.0f}")
    if run.get("phase") == "making":
        return words, count_of(run.get("done")), count_of(run.get("steps")) or None
    total = run.get("total")
    return words, count_of(run.get("found")), total if isinstance(total, int) else None


def _word(fields: Fields, name: str) -> str:
    """A word of the API in the reader's language."""
    word = str(fields.get(name))
    return label(word) if word in _WORDS else one_line(word)


def _every(item: Fields) -> str:
    return label("once") if item.get("every") is None else minutes(item.get("every"))


def _counted(item: Fields, state: str) -> int:
    return count_of(_fields(item.get("projects")).get(state))


def _calm(row: Fields) -> bool:
    return row.get("state") not in ("refused", "clash")


def _fields(value: object) -> Fields:
    return value if isinstance(value, dict) else {}
