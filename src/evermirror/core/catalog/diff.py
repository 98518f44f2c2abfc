"""What a new reading of the catalog changes, and when that is too much to believe."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from evermirror.core.catalog.listfile import CatalogEntry
from evermirror.model.repo import RepoKey

REMOVAL_SHARE_MAX = (
    0.10  # of the catalog; a slip or a lost file removes more than a person does in one commit
)
REMOVALS_LEAST = 10  # repos; below this a small catalog could hardly be edited


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """What turns the old catalog into the new one; ``changed`` holds the new entries."""

    added: tuple[CatalogEntry, ...] = ()
    removed: tuple[CatalogEntry, ...] = ()
    changed: tuple[CatalogEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def diff(
    old: Iterable[CatalogEntry], new: Iterable[CatalogEntry], unsure: Collection[RepoKey] = frozenset()
) -> CatalogDiff:
    """Compares by key and configuration; where an entry stands in the files does not matter.

    ``unsure`` are the keys of lines that could not be understood (``Problem.key``): they stay as they are."""
    before = {entry.key: entry for entry in old}
    after = {entry.key: entry for entry in new}
    return CatalogDiff(
        added=tuple(entry for key, entry in after.items() if key not in before),
        removed=tuple(entry for key, entry in before.items() if key not in after and key not in unsure),
        changed=tuple(entry for key, entry in after.items() if key in before and before[key] != entry),
    )


def held_back(
    removed: int, total: int, *, share: float = REMOVAL_SHARE_MAX, least: int = REMOVALS_LEAST
) -> bool:
    """Whether someone must confirm: more than ``share`` of ``total`` goes, and at least ``least`` repos."""
    return removed >= least and removed > share * total
