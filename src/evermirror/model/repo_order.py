"""The orders in which repos are listed: by their key, or by what is known of them."""

from __future__ import annotations

from enum import Enum

from evermirror.model.repo import RepoRecord

SortValue = float | int | None  # None is the least: what never happened is longer ago than anything


class RepoSort(Enum):
    """A minus means from the greatest to the least. Repos that are alike in it are in the order of keys,
    the same way round."""

    KEY = "key"
    KEY_DOWN = "-key"
    VERIFIED = "verified"
    VERIFIED_DOWN = "-verified"
    CHANGED = "changed"
    CHANGED_DOWN = "-changed"
    SIZE = "size"
    SIZE_DOWN = "-size"
    FAILURES = "failures"
    FAILURES_DOWN = "-failures"

    @property
    def descending(self) -> bool:
        return self.value.startswith("-")

    @property
    def field(self) -> str | None:
        """The field of a record, and column of the store, that it goes by; None: the key alone."""
        return _FIELDS[self.value.removeprefix("-")]

    @property
    def counts(self) -> bool:
        """It goes by a whole number, which each repo has; else by a time, or by keys alone."""
        return self.field in ("size_bytes", "consecutive_failures")

    def value_of(self, record: RepoRecord) -> SortValue:
        """What the record's place is by, before its key."""
        match self.field:
            case "verified_at":
                return record.verified_at
            case "changed_at":
                return record.changed_at
            case "size_bytes":
                return record.size_bytes
            case "consecutive_failures":
                return record.consecutive_failures
            case _:
                return None


_FIELDS = {
    "key": None,
    "verified": "verified_at",
    "changed": "changed_at",
    "size": "size_bytes",
    "failures": "consecutive_failures",
}
