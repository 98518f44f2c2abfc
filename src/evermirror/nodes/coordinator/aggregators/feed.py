"""One connected aggregator: told what changes, heard about what it serves and whom it doubts.

Follow ──▶ since ──▶ _tell: the store's next changes, with holders as they are now ──▶ Changes
              ▲                     ▲ woken by every change that is on the disk          │
              └──────── Followed ◀──┴────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from evermirror.edge.rpc.transport import Peer, PeerGone
from evermirror.model.access import TokenRecord
from evermirror.model.changes import Change, HolderReport, RepoHolders
from evermirror.model.failure import FailureError
from evermirror.model.messages import HeldRepo, WorkerStatus
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    Accused,
    AskHolders,
    Beat,
    Changes,
    Doubted,
    Follow,
    Followed,
    Have,
    Holders,
    Lack,
    Rejected,
    Up,
)

log = structlog.get_logger(__name__)

CHANGES_AT_ONCE = 200  # in one frame
FRAME_CHARS_MAX = 1024 * 1024  # of what they are made of; a frame has at most 8 MiB
LOOK_S = 1.0  # between two looks at the store where nobody was woken
PAUSE_S = 1.0  # before a database in trouble is asked again
AHEAD = 86_400 * 1_000_000  # numbers are microseconds at least: one a day ahead is another database's


class ChangeSource(Protocol):
    """Where changes, and tokens, are kept: the store."""

    async def changes_since(self, seq: int, limit: int) -> Sequence[Change]: ...

    async def digests_of(self, keys: Sequence[RepoKey]) -> dict[RepoKey, RefsDigest | None]: ...

    async def any_user_token(self) -> bool: ...

    async def tokens_revoked_since(self, at: float) -> Sequence[TokenRecord]: ...


class Ear(Protocol):
    """Who hears what an aggregator says of itself and of others."""

    async def has(self, items: Sequence[HeldRepo]) -> None: ...

    async def lacks(self, keys: Sequence[RepoKey]) -> None: ...

    async def doubts(self, keys: Sequence[RepoKey]) -> None: ...

    async def accuses(self, accused: Accused) -> None: ...


HoldersOf = Callable[[RepoKey, RefsDigest | None], tuple[HolderReport, ...]]


class Feed:
    """``run`` until the connection ends; ``wake`` when something changed."""

    def __init__(
        self, peer: Peer, store: ChangeSource, holders_of: HoldersOf, ear: Ear, utc: Callable[[], float]
    ) -> None:
        self.peer = peer
        self._store = store
        self._holders_of = holders_of
        self._ear = ear
        self._utc = utc
        self._since: int | None = None  # None until it follows
        self._sent = 0  # the last number that it was told and has not acknowledged; 0: none
        self._moved = asyncio.Event()
        self.status: WorkerStatus | None = None
        # Holders that its relay has no line to; None before its first heartbeat.
        self.unreached: frozenset[NodeId] | None = None
        self.told = 0  # changes, in this session

    @property
    def followed(self) -> int:
        """What it has on its disk, by number."""
        return self._since or 0

    def wake(self) -> None:
        self._moved.set()

    async def run(self, heard: Callable[[], None]) -> None:
        """Raises PeerGone at the end. ``heard`` is called at each sign of life."""
        telling = asyncio.create_task(self._tell_on(), name="changes to an aggregator")
        try:
            while True:
                frame = await self.peer.receive()
                heard()
                await self._take(frame)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell_on(self) -> None:
        """Until it cannot: then the connection ends, and the next one tells what this one did not."""
        try:
            await self._tell()
        except PeerGone:
            pass
        except Exception:
            log.exception("changes could not be told", peer=self.peer.address)
            await self.peer.close("the coordinator failed")

    async def _take(self, frame: Up) -> None:
        match frame:
            case Beat(status=status, unreached=unreached):
                self.status, self.unreached = status, frozenset(unreached)
            case Follow(since=since):
                beyond = since > self._utc() * 1_000_000 + AHEAD
                self._since, self._sent = 0 if beyond else since, 0
                self.wake()
            case Followed(upto=upto):
                self._acknowledged(upto)
            case Have(items=items):
                await self._ear.has(items)
            case Lack(keys=keys):
                await self._ear.lacks(keys)
            case AskHolders():
                await self._retried(lambda: self._answer(frame))
            case Doubted(keys=keys):
                await self._ear.doubts(keys)
            case Accused():
                await self._retried(lambda: self._ear.accuses(frame))
            case _:
                reason = f"{type(frame).__name__} is not for an aggregator to say: is this token a worker's?"
                await self.peer.send(Rejected(reason, final=True))
                raise PeerGone(reason)

    def _acknowledged(self, upto: int) -> None:
        if not self._sent or upto != self._sent:
            raise PeerGone(f"changes up to {upto} were acknowledged, and not told")
        self._since, self._sent = upto, 0
        self.wake()

    # Changes

    async def _tell(self) -> None:
        try:
            while True:
                await self._woken()
                if self._since is not None and not self._sent:
                    await self._retried(self._tell_next)
        except PeerGone:
            return
        except Exception:
            log.exception("changes could not be told", peer=self.peer.address)
            await self.peer.close("the coordinator failed")

    async def _woken(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._moved.wait()
        except TimeoutError:
            return
        self._moved.clear()

    async def _tell_next(self) -> None:
        since = self._since
        found = await self._store.changes_since(since or 0, CHANGES_AT_ONCE)
        items = tuple(self._with_holders(change) for change in _that_fit(found))
        if not items or self._since != since or self._sent:  # it may have begun anew meanwhile
            return
        self._sent = items[-1].seq
        self.told += len(items)
        await self.peer.send(Changes(items, items[-1].seq))

    def _with_holders(self, change: Change) -> Change:
        if change.removed:
            return change
        return replace(change, holders=self._holders_of(change.key, change.digest))

    async def _answer(self, question: AskHolders) -> None:
        digests = await self._store.digests_of(question.keys)
        items = tuple(
            RepoHolders(key, self._holders_of(key, digests[key]) if key in digests else ())
            for key in question.keys
        )
        await self.peer.send(Holders(question.number, items))

    async def _retried(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Until the database answers."""
        told = False  # an outage is one line, however long it lasts
        while True:
            try:
                return await ask()
            except FailureError as error:
                if not told:
                    log.warning("the database does not answer an aggregator", reason=error.failure.message)
                told = True
            await asyncio.sleep(PAUSE_S)


def _that_fit(changes: Iterable[Change]) -> list[Change]:
    """As many as a frame surely holds, and one at least."""
    found: list[Change] = []
    chars = 0
    for change in changes:
        spec = change.spec
        chars += 2 * len(spec.key) + len(spec.url) + sum(map(len, spec.fallbacks)) + len(change.alias or "")
        if found and chars > FRAME_CHARS_MAX:
            break
        found.append(change)
    return found
