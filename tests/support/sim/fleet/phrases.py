"""Phrases: a line of a script against a table of patterns, and the small words that patterns share."""

from __future__ import annotations

import re
from collections.abc import Callable

from evermirror.model.repo import RepoKey
from tests.support.sim.fleet.stage import Stage

KEY = r"(?P<key>\S+\.\S+/\S+?)"
KEYS = r"(?P<keys>\S+\.\S+/\S+?(?:(?:, | and )\S+\.\S+/\S+?)*)"
WHO = r"(?P<who>[A-Z]\w*)"
WHOS = r"[A-Z]\w*(?:(?:, | and )[A-Z]\w*)*"
VERSION = r" at v(?P<version>\d+)"

Play = Callable[[Stage], None]
Table = tuple[tuple[re.Pattern[str], Callable[..., None]], ...]


class Failed(Exception):
    """What is wrong with the line being played; its place is added by the script."""


def table(*rows: tuple[str, Callable[..., None]]) -> Table:
    """Each pattern with what it does: a function of the stage and the pattern's named groups."""
    return tuple((re.compile(pattern), does) for pattern, does in rows)


def find(phrases: Table, text: str) -> Play:
    for pattern, does in phrases:
        if match := pattern.fullmatch(text):
            return _bound(does, match.groupdict())
    raise Failed(f"this cannot be read: {text!r}")


def _bound(does: Callable[..., None], words: dict[str, str | None]) -> Play:
    return lambda stage: does(stage, **words)


def split(text: str) -> list[str]:
    """The items of "A, B and C"."""
    return re.split(r", | and ", text)


def keys_of(text: str) -> tuple[RepoKey, ...]:
    return tuple(RepoKey(part) for part in split(text))


def clock(now_s: float) -> str:
    minutes, seconds = divmod(round(now_s), 60)
    return f"{minutes}:{seconds:02}"
