"""The part of the store that is about alerts, and about groups that are followed."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.core.watch.events import AlertWrite, RestoredAlerts
from evermirror.edge.store import alerts, discovered
from evermirror.edge.store.alerts import AlertSelection
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.whole import whole
from evermirror.model.alert import AlertId, AlertRecord, Notice
from evermirror.model.discovery import Bound, BoundState, Discovery, DiscoveryId
from evermirror.model.forge import FoundProject
from evermirror.model.repo import RepoKey


class WatchStore(StorePart):
    # Alerts

    async def load_alerts(self) -> RestoredAlerts:
        """What the alerts' mind starts from."""
        return await whole(alerts.load(self._db, self._clock()))

    async def save_alerts(self, writes: Sequence[AlertWrite]) -> None:
        """One transaction; the same again changes nothing."""
        told = await whole(alerts.save(self._db, writes, self._clock())) if writes else 0
        if told:
            self.on_event()

    async def alert_page(self, which: AlertSelection) -> tuple[tuple[AlertRecord, ...], int]:
        """Newest first, and how many there are; at most 1,000."""
        return await whole(alerts.page(self._db, which))

    async def find_alert(self, alert: AlertId) -> tuple[AlertRecord, tuple[Notice, ...]] | None:
        """With its notices, oldest first."""
        return await whole(alerts.find(self._db, alert))

    async def clean_alerts(self, before: float) -> int:
        """Removes alerts that ended before this time (UTC seconds), with their notices, and silences that
        did; returns how many alerts."""
        return await whole(alerts.clean(self._db, before))

    # Discovery

    async def load_discoveries(self) -> tuple[Discovery, ...]:
        return await whole(discovered.load(self._db))

    async def insert_discovery(self, discovery: Discovery) -> Discovery:
        """With the id that it got."""
        return await whole(discovered.insert(self._db, discovery))

    async def save_discovery(
        self,
        discovery: Discovery,
        *,
        bound: Sequence[Bound] = (),
        found: Sequence[FoundProject] = (),
        forget_found: bool = False,
    ) -> bool:
        """Replaces what is known of it. ``bound`` are added or replaced by forge id and path, ``found``,
        of the listing under way, by the id; ``forget_found``: a new listing begins. All or nothing; False,
        and nothing is saved, where it was removed meanwhile."""
        return await whole(discovered.save(self._db, discovery, bound, found, forget_found=forget_found))

    async def found_of(self, discovery: DiscoveryId) -> tuple[FoundProject, ...]:
        """What the listing under way has found so far."""
        return await whole(discovered.found_of(self._db, discovery))

    async def bound_of(self, discovery: DiscoveryId) -> tuple[Bound, ...]:
        """All that was found, by path."""
        return await whole(discovered.bound_of(self._db, discovery))

    async def bound_page(
        self, discovery: DiscoveryId, state: BoundState | None = None, page: int = 1, size: int = 50
    ) -> tuple[tuple[Bound, ...], int]:
        """By path, and how many there are; at most 1,000."""
        return await whole(discovered.bound_page(self._db, discovery, state, page, size))

    async def bound_counts(self, discovery: DiscoveryId) -> dict[BoundState, int]:
        """Of the states that are there."""
        return await whole(discovered.bound_counts(self._db, discovery))

    async def is_bound_elsewhere(self, key: RepoKey, discovery: DiscoveryId) -> bool:
        """Whether another discovery that is followed has this project as its own."""
        return await whole(discovered.is_bound_elsewhere(self._db, key, discovery))

    async def closed_branches(self) -> tuple[Bound, ...]:
        """Those with a target that was made, and whose branches were not opened yet."""
        return await whole(discovered.closed_branches(self._db))

    async def note_branches(self, bound: Bound, *, opened: bool, why: str = "") -> None:
        """Whether its target's branches were opened, and why not; only as long as it is active."""
        await whole(discovered.note_branches(self._db, bound, opened=opened, why=why))

    async def remove_discovery(self, discovery: DiscoveryId) -> bool:
        """With what is known of its projects; they themselves stay. Whether it was there."""
        return await whole(discovered.remove(self._db, discovery))
