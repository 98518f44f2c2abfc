"""What the fleet hears of the catalog's repos, and when.

a repo that is new or changed ──▶ at once
a new project                 ──▶ when its first task begins: that clones it and serves its targets
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from evermirror.core.fleet.events import CatalogChanged, CatalogRepo
from evermirror.edge.store.recorder import BACKOFF_S
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureError
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.pull.pulling import Pulling

log = structlog.get_logger(__name__)

CATCH_UP_S = 60.0  # a change is stored, audited and told within that, unless something failed


class Assigning:
    """``pulling`` is None where nothing is pulled."""

    def __init__(self, store: Store, fleet: Callable[[], Fleet]) -> None:
        self._store = store
        self._fleet = fleet
        self._pulling: Pulling | None = None
        self.unassigned: set[RepoKey] = set()  # in the store, and the fleet is to hear of it
        self._seen: set[RepoKey] = set()  # those of them at the last look
        self._catch_up_at = 0.0

    def pull_with(self, pulling: Pulling) -> None:
        self._pulling = pulling
        pulling.place = self.place

    async def store(self, record: RepoRecord) -> None:
        """The record as it is now; ``assign`` it."""
        waited = record.key in self.unassigned
        self.unassigned.add(record.key)  # before anybody can find it
        try:
            await self._store.upsert_repos([record])
        except BaseException:
            if not waited:
                self.unassigned.discard(record.key)
            raise

    async def hide(self, before: RepoRecord, record: RepoRecord) -> None:
        """Tell the fleet at once of a repo that became private: nothing that may fail comes first."""
        became = self._placed(record).trusted_only and not self._placed(before).trusted_only
        if became and self._is_placed(record.key):
            await self._tell([record])

    async def catch_up(self, now: float, changing: asyncio.Lock) -> None:
        """Assign what whoever changed it did not: an error cut that short. ``now`` is monotonic seconds."""
        if now < self._catch_up_at:
            return
        self._catch_up_at = now + CATCH_UP_S
        late, self._seen = self._seen & self.unassigned, set(self.unassigned)
        if not late or changing.locked():  # tasks do not wait for a long change
            return
        try:
            async with changing:
                found = await self._store.find_repos(late)
                await self.assign(tuple(found.values()))
        except FailureError as error:
            log.warning("changed repos wait for the database", repos=len(late), reason=error.failure.message)

    async def assign(self, records: Sequence[RepoRecord]) -> None:
        """Have the fleet hold repos that are new, or hear of what changed about them. A worker would clone a
        new project at once: beside its task, and whatever the strategy says."""
        await self._tell([r for r in records if not self.waits_for_its_task(r.key)])
        self.unassigned.difference_update(r.key for r in records)

    async def place(self, keys: Iterable[RepoKey]) -> None:
        """Tasks of these begin: those that the fleet has not heard of are to be held by somebody."""
        untold = [key for key in keys if not self._is_placed(key)]
        if untold:
            await self._tell((await self._found(untold)).values())

    async def _found(self, keys: Sequence[RepoKey]) -> Mapping[RepoKey, RepoRecord]:
        """That their tasks begin is decided and stored: a database in trouble is asked until it answers."""
        pause_s, longest_s = BACKOFF_S
        while True:
            try:
                return await self._store.find_repos(keys)
            except FailureError as error:
                log.warning("tasks wait for the database", tasks=len(keys), reason=error.failure.message)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def waits_for_its_task(self, key: RepoKey) -> bool:
        """A project that was never synced, and that the fleet has not heard of."""
        project = self._pulling.project(key) if self._pulling is not None else None
        return project is not None and project.last_sync_at is None and not self._is_placed(key)

    def _is_placed(self, key: RepoKey) -> bool:
        repo = self._fleet().machine.repo(key)
        return repo is not None and not repo.removed

    async def _tell(self, records: Iterable[RepoRecord]) -> None:
        if put := tuple(self._placed(record) for record in records):
            await self._fleet().tell(CatalogChanged(put=put))

    def _placed(self, record: RepoRecord) -> CatalogRepo:
        """What placement must know of a repo."""
        spec, pulling = record.spec, self._pulling
        secret = spec.credential is not None or (pulling is not None and pulling.has_credentials(spec.key))
        urgent = spec.priority.rank <= Priority.HIGH.rank
        return CatalogRepo(spec.key, trusted_only=spec.private or secret, pins=record.pins, urgent=urgent)
