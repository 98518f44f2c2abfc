"""What a new reading of the catalog changes, and when that is too much to believe."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.catalog.entry import CatalogEntry
from evermirror.model.repo import RepoKey

REMOVAL_SHARE_MAX = (
    0.10  # of the catalog; a slip or a lost file removes more than a person does in one commit
)
REMOVALS_LEAST = 10  # repos; below this a small catalog could hardly be edited


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """What turns the old catalog into the new one; ``changed`` holds the new entries."""

    added: tuple[CatalogEntry, ...] = ()
    removed: tuple[RepoKey, ...] = ()
    changed: tuple[CatalogEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def held_back(
    removed: int, total: int, *, share: float = REMOVAL_SHARE_MAX, least: int = REMOVALS_LEAST
) -> bool:
    """Whether someone must confirm: more than ``share`` of ``total`` goes, and at least ``least`` repos."""
    return removed >= least and removed > share * total
