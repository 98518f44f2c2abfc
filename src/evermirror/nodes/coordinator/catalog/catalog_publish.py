"""What the API adds and removes, committed and pushed to the writable source; nobody waits for it.

The store is the truth: each attempt makes the file from what the store says at that moment, on top of what
the source has then. So nothing is queued, a crash loses nothing, and who was slower simply tries again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from evermirror.core.catalog.entry import CatalogEntry
from evermirror.core.catalog.listfile import line_of
from evermirror.core.catalog.ownfile import keys_in, merged
from evermirror.edge.catalog.clone import GitTree
from evermirror.edge.catalog.publish import own_path, publish
from evermirror.edge.store.store import Store
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.nodes.coordinator.catalog.catalog_records import API

log = structlog.get_logger(__name__)

SETTLE_S = 1.0  # additions often come in bursts: one commit for all of them
RETRY_FIRST_S = 2.0
RETRY_MAX_S = 300.0


class CatalogPublisher:
    """``changed`` after each change through the API; ``run`` does the rest. ``pushed`` is told of success."""

    def __init__(
        self,
        tree: GitTree,
        store: Store,
        chance: random.Random,
        pushed: Callable[[], None],
        *,
        settle_s: float = SETTLE_S,
        retry_first_s: float = RETRY_FIRST_S,
    ) -> None:
        self._tree = tree
        self._store = store
        self._chance = chance
        self._pushed = pushed
        self._settle_s = settle_s
        self._retry_first_s = retry_first_s
        self._changed = asyncio.Event()
        self._trouble = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self._trouble:
            return ()
        return (f"API additions are not in {self._tree.source.place} yet: {self._trouble}",)

    @property
    def own_file(self) -> str:
        """As entries of the catalog name it."""
        return self._tree.label + own_path(self._tree)

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Also at start: what a stop left unpublished is published now."""
        pause_s = self._retry_first_s
        while True:
            try:
                if await publish(self._tree, self._edit) is not None:
                    self._pushed()
                self._trouble, pause_s = "", self._retry_first_s
            except (EvermirrorError, FailureError) as error:
                self._trouble = str(error)
                log.warning("API additions not published", reason=str(error), retry_s=round(pause_s))
                await asyncio.sleep(pause_s * self._chance.uniform(0.9, 1.1))
                pause_s = min(2 * pause_s, RETRY_MAX_S)
                continue
            await self._changed.wait()
            await asyncio.sleep(self._settle_s)
            self._changed.clear()

    async def _edit(self, old: bytes) -> tuple[bytes, str]:
        records = [record for record in await self._store.of_source(API) if record.enabled]
        wanted = {
            r.key: line_of(CatalogEntry(r.spec, r.alias, pins=r.pins, fsck_reason=r.fsck_reason))
            for r in records
        }
        here = keys_in(old)
        known = await self._store.known([key for key in here if key not in wanted])
        dropped = {key for key, repo in known.items() if repo.source == API}
        added = sum(key not in here for key in wanted)
        new = merged(old, wanted, dropped) if wanted or dropped else old
        return new, f"Through the API: {added} added, {len(dropped)} removed"
