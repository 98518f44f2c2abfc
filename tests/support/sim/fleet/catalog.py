"""The catalog and the upstreams behind it: which repos there are, and at which version each one stands."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from xxhash import xxh3_64_intdigest

from evermirror.core.fleet.events import CatalogChanged, CatalogRepo
from evermirror.model.repo import RepoKey
from evermirror.sim.fleet.world import name

_TRIES = 20


class Catalog:
    """A history of commits, each a change; the coordinator takes them in one after another."""

    def __init__(
        self, chance: Random, *, private: float, replicas: tuple[int, ...] = (), dead: float = 0.0
    ) -> None:
        self.commits: list[CatalogChanged] = []
        self.repos: dict[RepoKey, CatalogRepo] = {}
        self.removed: dict[RepoKey, int] = {}  # in the trash: at which commit it left
        self._chance = chance
        self._private = private
        self._replicas = replicas
        self._dead = dead
        self._versions: dict[RepoKey, int] = {}
        self._made = 0

    def version(self, key: RepoKey) -> int:
        """Upstream's, now."""
        return self._versions.get(key, 1)

    def is_dead(self, key: RepoKey) -> bool:
        """Gone, refused or unreachable: no clone of it ever succeeds."""
        return xxh3_64_intdigest(key.encode(), 2) / 2.0**64 < self._dead

    def push(self, key: RepoKey) -> None:
        self._versions[key] = self.version(key) + 1

    def new(self, count: int) -> tuple[CatalogRepo, ...]:
        """Repos that nobody has heard of."""
        made = []
        chance = self._chance
        for number in range(self._made, self._made + count):
            private = chance.random() < self._private
            made.append(
                CatalogRepo(name(number), private, chance.choice(self._replicas) if self._replicas else None)
            )
        self._made += count
        return tuple(made)

    def commit(
        self,
        put: Iterable[CatalogRepo] = (),
        removed: Iterable[RepoKey] = (),
        forgotten: Iterable[RepoKey] = (),
    ) -> None:
        """``forgotten``: the trash was emptied."""
        change = CatalogChanged(tuple(put), tuple(removed), tuple(forgotten))
        self.commits.append(change)
        for repo in change.put:
            self.repos[repo.key] = repo
            self.removed.pop(repo.key, None)
        for key in change.removed:
            del self.repos[key]
            self.removed[key] = len(self.commits)
        for key in change.forgotten:
            del self.removed[key]

    def some(self, count: int) -> list[RepoKey]:
        """Chosen by chance from those in the catalog."""
        keys = list(self.repos)
        return self._chance.sample(keys, min(count, len(keys)))

    def any(self) -> RepoKey | None:
        """One by chance, without looking at all; None where luck fails, as in a nearly empty catalog."""
        for _ in range(_TRIES):
            key = name(self._chance.randrange(self._made)) if self._made else None
            if key in self.repos:
                return key
        return None
