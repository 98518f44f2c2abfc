"""What the aggregator has under way: fetches, looks, mirrors on their way out; each ends as one event.

A mirror that leaves and is wanted again is not fetched before it has left.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from evermirror.core.collect.decisions import Discard, Evict, Fetch, Look
from evermirror.core.collect.events import Attempt, AttemptEnded, End, Event, Evicted, Lost
from evermirror.edge.git.mirror import Mirrors
from evermirror.model.failure import FailureError
from evermirror.model.repo import RepoKey
from evermirror.nodes.aggregator.attempts import Attempts
from evermirror.nodes.aggregator.collected_care import CollectedCare
from evermirror.nodes.aggregator.readers import Readers

log = structlog.get_logger(__name__)

DELETE_AGAIN_S = 5.0  # after a mirror could not be deleted; doubles with each time
DELETE_LAST_S = 600.0


class CollectWorks:
    """``enter`` a group of tasks before the first ``start``; ``tell`` is how events come back."""

    def __init__(
        self,
        attempts: Attempts,
        mirrors: Mirrors,
        readers: Readers,
        care: CollectedCare,
        *,
        clock: Callable[[], float],
        tell: Callable[[Event], None],
    ) -> None:
        self._attempts = attempts
        self._mirrors = mirrors
        self._readers = readers
        self._care = care
        care.on_damage = lambda key: tell(Lost(key, damaged=True))
        self._clock = clock
        self._tell = tell
        self._group: asyncio.TaskGroup | None = None
        self._leaving: dict[RepoKey, asyncio.Task[None]] = {}
        self._trashed: set[RepoKey] = set()
        self.fetching: dict[RepoKey, float] = {}  # since when, UTC seconds
        self.ended: Counter[End] = Counter()

    async def enter(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._trashed = {item.key for item in await self._mirrors.trashed() if not item.damaged}

    def start(self, action: Fetch | Look | Evict | Discard) -> None:
        if self._group is None:
            raise RuntimeError("it has not been entered")
        match action:
            case Fetch():
                self._group.create_task(self._fetch(action))
            case Look():
                self._group.create_task(self._look(action))
            case Evict(key) | Discard(key):
                work = self._remove(key, self._leaving.get(key), for_good=isinstance(action, Evict))
                self._leaving[key] = self._group.create_task(work)

    async def _fetch(self, fetch: Fetch) -> None:
        self.fetching[fetch.key] = self._clock()
        try:
            if (leaving := self._leaving.get(fetch.key)) is not None:
                await asyncio.wait({leaving})
            if fetch.first and fetch.key in self._trashed:
                await self._bring_back(fetch.key)
            await self._care.make_way(fetch.key)
            ended = await self._attempts.fetch(fetch)
        finally:
            del self.fetching[fetch.key]
        if ended.end is End.DONE:
            self._care.fetched(fetch.key)
        self._over(ended)

    async def _look(self, look: Look) -> None:
        self._over(await self._attempts.look(look))

    def _over(self, attempt: Attempt) -> None:
        self.ended[attempt.end] += 1
        if attempt.end not in (End.DONE, End.LOOKED):
            reason = attempt.failure.message if attempt.failure is not None else ""
            log.info("an attempt ended", repo=attempt.key, end=attempt.end.value, reason=reason)
        self._tell(AttemptEnded(attempt))

    async def _bring_back(self, key: RepoKey) -> None:
        """What left the catalog and is in it again: with all that it kept; its refs are verified anew."""
        self._trashed.discard(key)
        try:
            if await self._mirrors.undiscard(key):
                log.info("mirror brought back from the trash", repo=key)
        except FailureError as error:
            log.warning("mirror not brought back", repo=key, reason=error.failure.message)

    async def _remove(self, key: RepoKey, before: asyncio.Task[None] | None, *, for_good: bool) -> None:
        """To the trash, where readers go on reading; for good once they are through."""
        if before is not None:
            await asyncio.wait({before})
        self._care.gone(key)
        try:
            if for_good:
                await self._readers.gone(key)
                await self._delete(key)
            elif await self._mirrors.discard(key):
                self._trashed.add(key)
        except FailureError as error:
            log.warning("mirror not removed", repo=key, reason=error.failure.message)
        finally:
            if self._leaving.get(key) is asyncio.current_task():
                del self._leaving[key]
        if for_good:
            self._tell(Evicted(key))

    async def _delete(self, key: RepoKey) -> None:
        """Until it is done, ever more seldom: while its room is not free, nothing else need leave for it."""
        wait_s = DELETE_AGAIN_S
        while True:
            try:
                await self._mirrors.discard(key, for_good=True)
                return
            except FailureError as error:
                reason = error.failure.message
                log.error("mirror not deleted; trying again", repo=key, reason=reason, alert=True)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, DELETE_LAST_S)
