"""What a catalog file says: entries, and problems with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from evermirror.model.pull import TargetSpec
from evermirror.model.repo import RepoKey, RepoSpec

TEXT_SHOWN_CHARS = 200  # of a bad line: enough to find it
SECRET_SOUGHT_CHARS = 4_096  # of a bad line: covers long tokens, and bounds the search on hostile lines
PROBLEMS_PER_FILE_MAX = 1_000  # a file that is something else altogether; the rest is counted in one line

_SECRET = re.compile(r"(?<=://)\S*@|(?<!\S)[^\s/@:]+:[^\s/]*@")  # also where the scheme was forgotten


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One repo of the catalog. Where it is written is no part of it: moving a line changes nothing."""

    spec: RepoSpec
    alias: str | None = None
    targets: tuple[TargetSpec, ...] = ()  # what it is pushed on to: pull mirroring
    pins: tuple[str, ...] = ()  # workers that are to hold it, as given; understood by placement
    fsck_reason: str | None = None  # why spec.fsck_allow is
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def key(self) -> RepoKey:
        return self.spec.key


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was not taken. ``line`` is 0 where the file as a whole is meant."""

    file: str
    line: int
    text: str  # at most 200 characters, printable, without passwords
    reason: str
    key: RepoKey | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one file says. ``unsure`` are repos of lines that were not understood: they stay as they are.

    A ``broken`` file as a whole was not understood: what it said before stays."""

    entries: tuple[CatalogEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    unsure: frozenset[RepoKey] = frozenset()
    broken: bool = False

    @classmethod
    def of(cls, entries: Iterable[CatalogEntry], problems: Sequence[Problem]) -> Parsed:
        """With problems cut to a bounded number, and what they were about remembered."""
        taken = tuple(entries)
        unsure = frozenset(p.key for p in problems if p.key is not None)
        unsure = unsure.difference(e.key for e in taken) if unsure else unsure
        return cls(taken, tuple(few(problems)), unsure)

    @classmethod
    def no_use(cls, file: str, reason: str, *, line: int = 0, text: str = "", broken: bool = True) -> Parsed:
        """Nothing in it can be used."""
        return cls((), (Problem(file, line, shown(text), reason),), broken=broken)


class BadLine(Exception):
    """Ends the reading of one line or item."""

    def __init__(self, reason: str, key: RepoKey | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key


def few(problems: Sequence[Problem]) -> list[Problem]:
    """At most so many of one file, and a line that counts the rest."""
    some = list(problems[:PROBLEMS_PER_FILE_MAX])
    more = len(problems) - len(some)
    if more:
        words = "1 more line has a problem" if more == 1 else f"{more} more lines have problems"
        some.append(Problem(problems[0].file, 0, "", words))
    return some


def without_repeats(entries: Iterable[CatalogEntry]) -> tuple[list[CatalogEntry], list[Problem]]:
    """Of entries for one repo, or with one alias, the first stays; the others are problems."""
    by_key: dict[RepoKey, CatalogEntry] = {}
    problems: list[Problem] = []
    for entry in entries:
        first = by_key.setdefault(entry.spec.key, entry)
        if first is not entry:
            problems.append(repeat(entry, f"repeats {first.file}:{first.line}"))
    aliased = [entry for entry in by_key.values() if entry.alias is not None]
    taken: dict[str, CatalogEntry] = {}
    for entry in aliased:
        alias = entry.alias or ""
        first = by_key.get(RepoKey(alias)) or taken.setdefault(alias, entry)
        if first is not entry:
            problems.append(repeat(entry, f"its alias is that of {first.file}:{first.line}"))
            del by_key[entry.key]
    return list(by_key.values()), problems


def repeat(entry: CatalogEntry, reason: str) -> Problem:
    return Problem(entry.file, entry.line, shown(entry.spec.url), reason, entry.key)


def shown(text: str) -> str:
    """A bad line as it may be shown and logged: short, printable, without passwords."""
    text = _SECRET.sub("***@", text[:SECRET_SOUGHT_CHARS].strip())
    if len(text) > TEXT_SHOWN_CHARS:
        text = text[: TEXT_SHOWN_CHARS - 1] + "…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
