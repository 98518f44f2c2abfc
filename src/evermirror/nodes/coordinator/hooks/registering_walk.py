"""The repos of an order: those that it names, or a group or all of the catalog, page by page."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from evermirror.edge.store.hook_registrations import HookedRepo, HookScope, Lot
from evermirror.edge.store.store import Store
from evermirror.model.repo import RepoKey, RepoRecord

PAGE = 500


class Walk(Protocol):
    async def lots(self) -> tuple[Lot, ...]: ...

    async def page(self, lot: Lot, after: RepoKey | None) -> tuple[HookedRepo, ...]:
        """The next ones in the order of keys; none: that was all."""
        ...

    async def examples(self, lot: Lot) -> tuple[HookedRepo, ...]:
        """Of a lot that is left out: whom to name."""
        ...


class NamedRepos:
    """Those that the order names."""

    def __init__(self, records: tuple[RepoRecord, ...]) -> None:
        specs = {record.key: record.spec for record in records}
        self._repos = [HookedRepo(s.key, s.url, s.host, s.credential) for _, s in sorted(specs.items())]

    async def lots(self) -> tuple[Lot, ...]:
        counts = Counter((repo.host, repo.credential) for repo in self._repos)
        return tuple(Lot(host, credential, count) for (host, credential), count in counts.items())

    async def page(self, lot: Lot, after: RepoKey | None) -> tuple[HookedRepo, ...]:
        return await self.examples(lot) if after is None else ()

    async def examples(self, lot: Lot) -> tuple[HookedRepo, ...]:
        return tuple(r for r in self._repos if (r.host, r.credential) == (lot.host, lot.credential))


class CatalogRepos:
    """Those of the catalog that the scope has. What is added behind a page that was read is not looked at."""

    def __init__(self, store: Store, scope: HookScope) -> None:
        self._store = store
        self._scope = scope

    async def lots(self) -> tuple[Lot, ...]:
        return await self._store.hook_lots(self._scope)

    async def page(self, lot: Lot, after: RepoKey | None) -> tuple[HookedRepo, ...]:
        return await self._store.hook_page(self._scope, lot, after, PAGE)

    async def examples(self, lot: Lot) -> tuple[HookedRepo, ...]:
        return await self._store.hook_page(self._scope, lot, None, 1)
