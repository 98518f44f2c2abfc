"""What is remembered of the catalog over a restart, and what people are told of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from evermirror.core.catalog.entry import Problem
from evermirror.model.source import CatalogSource
from evermirror.model.url import UrlRules

APPLIED = "catalog.applied"  # the store's setting
READER = 2  # grows when files are read differently: then everything is read again
PROBLEMS_KEPT = 100  # in the store, and shown by the API; `evermirror catalog check` lists all


@dataclass(frozen=True, slots=True)
class Held:
    """A change that removes much and waits for a person."""

    source: str  # where; empty: over all sources
    version: str | None
    removed: int
    total: int

    def __str__(self) -> str:
        where = f" {self.source}" if self.source else ""
        return (
            f"the catalog{where} lost {self.removed} of {self.total} repos: held back until "
            "`evermirror catalog confirm`"
        )


@dataclass(frozen=True, slots=True)
class SourceState:
    """One source as people see it."""

    place: str
    version: str | None  # the commit that was taken; None: files on disk, or nothing yet
    looked_at: float | None  # UTC seconds; the last look that succeeded
    trouble: str  # why the last look did not


@dataclass(frozen=True, slots=True)
class CatalogState:
    """Everything about the catalog that people may ask."""

    sources: tuple[SourceState, ...]
    held: tuple[Held, ...]
    problems_total: int
    problems: tuple[Problem, ...]  # the first ones
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What the store's catalog was made from. ``settled``: nothing in it waits to be removed."""

    fingerprint: str
    versions: tuple[str | None, ...]
    settled: bool
    problems_total: int = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, value: object) -> Applied | None:
        """None where nothing usable is remembered."""
        if not isinstance(value, Mapping):
            return None
        try:
            return cls(
                str(value["fingerprint"]),
                tuple(None if v is None else str(v) for v in value["versions"]),
                value["settled"] is True,
                int(value["problems_total"]),
                tuple(Problem(**problem) for problem in value["problems"]),
                tuple(str(note) for note in value["notes"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


def fingerprint(sources: Sequence[CatalogSource], rules: UrlRules) -> str:
    """Equal where equal files would be read to equal repos."""
    places = [[s.place, s.branch, s.path, s.writable] for s in sources]
    allow = [
        sorted(map(str, part)) for part in (rules.allow.names, rules.allow.suffixes, rules.allow.networks)
    ]
    said = [READER, places, sorted(rules.schemes), allow]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
