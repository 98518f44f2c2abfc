"""Repositories that hooks add to the catalog, where the settings say so.

    a hook of a repo that nobody knows ─▶ queue ─▶ an address of it that the hook is signed for,
                                                   at the forge's own host or one that we know ─▶ added

A secret says who sent a hook, not what may be mirrored: whoever has a forge's secret must not have us fetch
the rest of the world. Adding waits for others who change the catalog; hooks about known repos wait for
nothing here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from evermirror.core.hooks.secrets import Secrets
from evermirror.core.schedule.bucket import TokenBucket
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.hook import HookAnswer, HookEnd
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.hooks.hook_checking import URLS_MAX, Vouched
from evermirror.nodes.coordinator.hooks.registering_whom import KNOWN_HOSTS

log = structlog.get_logger(__name__)

ADDED_RATE, ADDED_BURST = 0.5, 30  # repos that hooks may add, a second and at once
ADDED_DAY, DAY_S = 1_000, 86_400.0  # the same within a day
QUEUE_MAX = 100

Ended = Callable[[HookAnswer | None], None]  # none: send it again


class Growing(Protocol):
    """What is asked of the catalog."""

    async def has_host(self, host: str) -> bool:
        """Whether a repo of this host is in it."""
        ...

    async def add(self, url: str, *, actor: str) -> RepoKey:
        """``UsageError`` where the rules for URLs refuse it."""
        ...


class HookAdditions:
    """``configure`` it first; ``offer`` what is not in the catalog; ``run`` beside."""

    def __init__(
        self, catalog: Growing, key_of: Callable[[str], RepoKey | None], clock: Callable[[], float]
    ) -> None:
        self._catalog = catalog
        self._key_of = key_of
        self._clock = clock
        self._secrets = Secrets()
        self._rate = TokenBucket(ADDED_RATE, ADDED_BURST)
        self._of_late: deque[float] = deque(maxlen=ADDED_DAY)
        self._queue: asyncio.Queue[tuple[Vouched, Ended]] = asyncio.Queue(QUEUE_MAX)
        self.is_on = False

    def configure(self, secrets: Secrets, *, is_on: bool) -> None:
        self._secrets = secrets
        self.is_on = is_on

    def offer(self, vouched: Vouched, ended: Ended) -> None:
        try:
            self._queue.put_nowait((vouched, ended))
        except asyncio.QueueFull:
            ended(_ignored(vouched, "too many repositories wait to be added"))

    async def run(self) -> None:
        """Until cancelled; then nobody waits."""
        try:
            while True:
                vouched, ended = await self._queue.get()
                answer: HookAnswer | None = None
                try:
                    answer = await self._added(vouched)
                except FailureError:
                    pass
                except Exception:
                    log.exception("a repository that a hook told of was not added")
                finally:
                    ended(answer)
        finally:
            while not self._queue.empty():
                self._queue.get_nowait()[1](None)

    async def _added(self, vouched: Vouched) -> HookAnswer:
        hook, why = vouched.hook, "no address of it is allowed"
        for url, key in self._addresses(vouched):
            if not await self._is_at_home(hook.forge, key.partition("/")[0]):
                why = "hooks of this forge add nothing at its host"
                continue
            if not self._has_room():
                return _ignored(vouched, "too many repositories were added of late")
            try:
                added = await self._catalog.add(url, actor=f"webhook {hook.forge.value}")
            except EvermirrorError as error:
                why = error.message
                continue
            self._of_late.append(self._clock())
            return HookAnswer(HookEnd.ADDED, added)
        return _ignored(vouched, why)

    def _addresses(self, vouched: Vouched) -> Iterator[tuple[str, RepoKey]]:
        """Those that the hook is signed for: a body may name others."""
        for url in vouched.hook.urls[:URLS_MAX]:
            if (key := self._key_of(url)) is not None and key in vouched.keys:
                yield url, key

    async def _is_at_home(self, forge: Forge, host: str) -> bool:
        if (known := KNOWN_HOSTS.get(host)) is not None:
            return known is forge
        return self._secrets.has_host(host) or await self._catalog.has_host(host)

    def _has_room(self) -> bool:
        now = self._clock()
        full = len(self._of_late) == ADDED_DAY and now - self._of_late[0] < DAY_S
        return not full and self._rate.take(now)


def _ignored(vouched: Vouched, why: str) -> HookAnswer:
    return HookAnswer(HookEnd.IGNORED, vouched.keys[0], why)
