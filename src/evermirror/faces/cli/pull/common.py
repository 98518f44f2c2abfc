"""What the commands of `pull` share: their arguments, addresses, and how fields of answers are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, InvalidValue, UsageError
from evermirror.faces.cli.client import Client, Fields, repo_path
from evermirror.faces.cli.keys import complete_keys
from evermirror.faces.cli.options import PRIORITIES as PRIORITIES
from evermirror.faces.cli.options import priorities
from evermirror.faces.cli.output import as_seconds, warn
from evermirror.faces.cli.pull.labels import label
from evermirror.model.printable import one_line
from evermirror.model.pull import RETRIES_MAX

PROJECTS = "/api/pull/projects"
PAGE_MAX = 1000  # the API's largest page
END_OF_TIME_S = 253_402_300_800.0  # the year 10,000, which no time can be written in
MANY = 1_000_000_000  # of a list that goes on page by page


def whole(least: int, most: int) -> Callable[[object], int]:
    """Reads a whole number between bounds; a refusal names what was given."""

    def read(given: object) -> int:
        text = str(given)
        if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise typer.BadParameter(f"{one_line(text)!r} is not a whole number from {least} to {most}")

    return read


ProjectKey = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        autocompletion=complete_keys,
        help="Project key, such as devops/core; also the repo's key or URL.",
    ),
]
PriorityOption = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="CLASS",
        show_default=False,
        autocompletion=priorities,
        help="critical, high, normal or low.",
    ),
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--interval", metavar="MINUTES", show_default=False, help="From sync to sync: minutes, or such as 2h."
    ),
]
RetriesOption = Annotated[
    int | None,
    typer.Option(
        "--max-retries",
        parser=whole(0, RETRIES_MAX),
        metavar="N",
        show_default=False,
        help="Quick retries after a failure.",
    ),
]
RetryDelayOption = Annotated[
    str | None,
    typer.Option(
        "--retry-delay",
        metavar="MINUTES",
        show_default=False,
        help="Before the first retry; doubles with each.",
    ),
]
LimitOption = Annotated[
    int,
    typer.Option("--limit", parser=whole(1, PAGE_MAX), metavar="N", help="At most so many, newest first."),
]
ProjectsOption = Annotated[
    str | None,
    typer.Option("--projects", metavar="KEY,KEY…", show_default=False, help="Projects, split by commas."),
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", show_default=False, help="Such as 2026-11-15T20:00 or 24h (ago)."),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", show_default=False, help="Its end; default: now.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def project_path(key: str, rest: str = "") -> str:
    """``/api/pull/projects/<key><rest>``; slashes in the key are encoded, so that it is one piece."""
    if not key.strip():
        raise UsageError("the project key is empty", hint="`evermirror pull list` shows all")
    return repo_path(PROJECTS, key) + rest


@contextmanager
def naming(name: str, body: Mapping[str, object] | None = None) -> Iterator[None]:
    """A refusal names what it is about, and the value of ``body`` that is refused, whatever the server's
    words are."""
    try:
        yield
    except EvermirrorError as error:
        if name not in error.message:
            error.message = f"{one_line(name)}: {error.message}"
        if isinstance(error, UsageError):
            error.message += _refused(error.message, body or {})
        raise


def _refused(message: str, body: Mapping[str, object]) -> str:
    """The value of the field that the message speaks of, where it does not say it."""
    for field, value in _fields_of(body):
        _, at, tail = str(value).rpartition("@")  # a URL may hold a password
        shown = one_line(f"***@{tail}" if at else tail)
        if re.search(rf"\b{re.escape(field)}\b", message) and shown not in message.replace(field, ""):
            return f" (given: {shown!r})"
    return ""


def _fields_of(body: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """As the API names them: ``targets.0.url``."""
    for name, value in body.items():
        if isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, dict):
                    yield from ((f"{name}.{number}.{part}", of) for part, of in item.items())
        else:
            yield name, value


def check_priority(text: str | None) -> str | None:
    """One of the four, or none; raises UsageError."""
    if text is not None and text not in PRIORITIES:
        raise UsageError(f"--priority {one_line(text)!r} is not one of {', '.join(PRIORITIES)}")
    return text


def split_keys(text: str | None) -> list[str]:
    """Of ``--projects=a,b``: each once, in their order; raises UsageError where none is named."""
    if text is None:
        return []
    keys = list(dict.fromkeys(key.strip() for key in text.split(",") if key.strip()))
    if not keys:
        raise UsageError(
            f"--projects {one_line(text)!r} names no project", hint="Such as devops/core,devops/web"
        )
    return keys


def minutes_of(option: str, text: str | None) -> float | int | None:
    """Minutes of ``10``, ``10m`` or ``2h``; raises UsageError that names the option."""
    if text is None:
        return None
    from evermirror.model.duration import parse_duration

    try:
        seconds = parse_duration(f"{text}m" if re.fullmatch(r"[0-9.]+", text) else text)
    except InvalidValue:
        raise UsageError(
            f"{option} {one_line(text)!r} is neither minutes nor a duration", hint="Such as 10, or 2h"
        ) from None
    minutes = seconds / 60
    return int(minutes) if minutes == int(minutes) else minutes


def time_range(begin: str | None, end: str | None, now: float) -> dict[str, str | int]:
    """``from`` and ``to`` as the API takes them, for what was given."""
    given = {"from": _moment("--from", begin, now), "to": _moment("--to", end, now)}
    return {
        name: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name, at in given.items()
        if at is not None
    }


def _moment(option: str, text: str | None, now: float) -> float | None:
    """UTC seconds of an ISO time, which is the reader's own where it names no zone, or of a time ago."""
    if text is None:
        return None
    from evermirror.model.duration import parse_duration

    try:
        at: float | None = now - parse_duration(text)
    except InvalidValue:
        at = _iso_seconds(text)
    if at is None or not 0 <= at < END_OF_TIME_S:
        raise UsageError(
            f"{option} {one_line(text)!r} is not a time", hint="Such as 2026-11-15, 2026-11-15T20:00, or 24h"
        )
    return at


def _iso_seconds(text: str) -> float | None:
    try:
        return as_seconds(text)
    except (OverflowError, OSError):
        return None


def said(**fields: object) -> dict[str, object]:
    """What was given, without what was not."""
    return {name: value for name, value in fields.items() if value is not None}


def paged(client: Client, path: str, query: Mapping[str, str | int], limit: int | None) -> Fields:
    """``items`` and ``total`` of a list with numbered pages, up to ``limit`` items (None: all)."""
    items: list[Fields] = []
    size = PAGE_MAX if limit is None else min(limit, PAGE_MAX)
    page = 1
    while True:
        answer = client.get(path, {**query, "page": page, "size": size})
        found = dicts(answer.get("items"))
        items += found
        if len(found) < size or (limit is not None and len(items) >= limit):
            return {**answer, "items": items[:limit], "page": 1, "size": max(size, len(items))}
        page += 1


def tell_more(shown: int, total: int, option: str) -> None:
    """Says that a list goes on, and how to see the rest."""
    warn(label("{shown} of {total} shown; {option} shows more", shown=shown, total=total, option=option))


def dicts(value: object) -> list[Fields]:
    """The objects of a list of the API."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    """The texts of a list of the API."""
    return [str(item) for item in value] if isinstance(value, list) else []


def count_of(value: object) -> int:
    """A number of the API, 0 where there is none."""
    return value if isinstance(value, int) else 0


def number_of(value: object) -> float | None:
    """The same, where none is different from 0."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
