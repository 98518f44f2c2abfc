"""What a forge said, made of its JSON: checked values, and its own words where it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import FoundProject, TargetProject, Visibility
from evermirror.model.printable import many_lines, one_line

WORDS_MAX = 300  # of a forge's words that are shown
SAID_MAX = 4_000  # of those that are read
TEXT_MAX = 4_000  # of a description; GitLab's own bound is 2,000
ROWS_MAX = 1_000  # of a list that is not asked for by pages
VALUES_MAX = 250_000  # objects and lists in one answer; the braces of 100 long descriptions are fewer

Row = Mapping[str, object]


def parse(data: bytes) -> object:
    """The answer's value; what is no JSON is UNKNOWN. So is one with so much in it that reading it would
    keep everything else waiting."""
    if data.count(b"{") + data.count(b"[") > VALUES_MAX:
        wrong("the answer has more in it than was asked for")
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        wrong("the answer is not JSON")
    return value


def as_row(value: object, what: str = "the answer") -> Row:
    if not isinstance(value, dict):
        wrong(f"{what} is not an object")
    return value


def as_rows(value: object, what: str = "the answer", *, most: int = ROWS_MAX) -> list[Row]:
    """``most``: how many were asked for."""
    if not isinstance(value, list):
        wrong(f"{what} is not a list")
    if len(value) > most:
        wrong(f"{what} has {len(value)} items, and {most} were asked for")
    return [as_row(item, f"an item of {what}") for item in value]


def text(row: Row, name: str) -> str:
    """One line that is there."""
    value = row.get(name)
    if not isinstance(value, str) or not value or len(value) > TEXT_MAX:
        wrong(f"{name!r} is not a text")
    return one_line(value)


def with_path_as_told(found: FoundProject, row: Row, name: str) -> FoundProject:
    """With its path as it was told: whoever lists it must see that it cannot be printed, and pass it over."""
    told = row.get(name)
    return replace(found, path=told) if isinstance(told, str) else found


def text_or_none(row: Row, name: str) -> str | None:
    return None if row.get(name) in (None, "") else text(row, name)


def description(row: Row) -> str:
    value = row.get("description")
    return many_lines(value)[:TEXT_MAX] if isinstance(value, str) else ""


def number(row: Row, name: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        wrong(f"{name!r} is not a number")
    return value


def flag(row: Row, name: str) -> bool:
    """Forges leave out what is not so; null is the same as false."""
    value = row.get(name)
    if value is not None and not isinstance(value, bool):
        wrong(f"{name!r} is neither true nor false")
    return bool(value)


def visibility(row: Row, name: str = "visibility") -> Visibility:
    """One that we do not know is not shown to more people than any that we do."""
    value = row.get(name)
    known = {v.value: v for v in Visibility}
    return known.get(value, Visibility.PRIVATE) if isinstance(value, str) else Visibility.PRIVATE


def target_of(found: FoundProject) -> TargetProject:
    return TargetProject(
        id=found.id,
        path=found.path,
        http_url=found.http_url,
        ssh_url=found.ssh_url,
        visibility=found.visibility,
        default_branch=found.default_branch,
        description=found.description,
        empty=found.empty,
        archived=found.archived,
    )


def wrong(what: str) -> NoReturn:
    raise FailureError(
        Failure(
            FailureKind.UNKNOWN,
            f"not what the forge's API promises: {what}",
            hint="Check that the address is the forge's own, and that no proxy answers in its place",
        )
    )


def refusal(data: bytes) -> str:
    """The forge's own words, where it has some. The caller takes secrets out of them, then cuts them."""
    try:
        told = json.loads(data)
        said = _said(told) if isinstance(told, dict) else told
        return one_line(_flat(said)[:SAID_MAX])
    except (ValueError, RecursionError):  # no JSON, or lists in lists without end
        return one_line(data[:SAID_MAX].decode("utf-8", "replace"))


def _said(told: Row) -> object:
    said = told.get("message") or told.get("error_description") or told.get("error")
    more = told.get("errors")  # GitHub: [{"resource": …, "field": …, "message": …}]
    return told if said is None else [said, more] if more else said


def _flat(said: object) -> str:
    """``{"path": ["is taken"]}`` is "path is taken"."""
    if isinstance(said, dict):
        if isinstance(said.get("message"), str):
            return str(said["message"])
        return "; ".join(f"{name} {_flat(value)}" for name, value in list(said.items())[:10])
    if isinstance(said, list):
        return ", ".join(_flat(value) for value in said[:10])
    return str(said)
