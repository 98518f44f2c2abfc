"""Projects whose repos left the catalog: remembered, with what people set and what was put where, for the day
they come back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from evermirror.edge.store.store import Store
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey


class Remembered:
    """Which they are; the rest of them is in the store alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: set[RepoKey] = set()

    def __contains__(self, key: RepoKey) -> bool:
        return key in self._keys

    async def load(self) -> None:
        self._keys = set(await self._store.left_projects())

    def add(self, keys: Iterable[RepoKey]) -> None:
        self._keys.update(keys)

    async def find(self, keys: Iterable[RepoKey]) -> dict[RepoKey, Project]:
        """Those of the keys that are remembered, and whose repos are back. What was open is over."""
        back = [key for key in keys if key in self._keys]
        found = await self._store.find_projects(back) if back else {}
        return {key: replace(project, task=None) for key, project in found.items()}

    def taken(self, keys: Iterable[RepoKey]) -> None:
        """They are projects again, or never will be."""
        self._keys.difference_update(keys)
