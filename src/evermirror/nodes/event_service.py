"""What the faces may ask about events: to follow them, to read back, and how their delivery goes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from evermirror.model.delivery import DeadLetter, EventHook, HookProgress, LetterId
from evermirror.model.event import Event, EventId
from evermirror.model.messages import Progress


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events somebody wants. Globs; empty: all. ``public_only``: the caller shows no token."""

    types: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()
    worker: str = ""
    public_only: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """What came after ``after`` and up to ``until`` is no longer kept: the follower reads the state anew."""

    after: EventId
    until: EventId


@dataclass(frozen=True, slots=True)
class LookedUpTo:
    """For a while nothing came that this follower wants: it has seen all up to here."""

    id: EventId


Followed = tuple[Event, ...] | Gap | LookedUpTo | tuple[Progress, ...]


@dataclass(frozen=True, slots=True)
class DeliveryView:
    hook: EventHook
    host: str  # where it goes; the rest of the URL may be a secret
    progress: HookProgress
    waiting: int  # events after its place; counted up to a bound
    letters: int
    enabled: bool = True
    failing: bool = False  # for so long that people are told


class PostEnd(Enum):
    """What became of a message to a receiver."""

    TAKEN = "taken"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class HookFigures:
    """Of one event hook; ``posts`` since the start of the process."""

    posts: Mapping[PostEnd, int]
    delivered: int
    laid_aside: int
    letters: int
    failing: bool


class EventService(Protocol):
    def latest(self) -> EventId: ...

    async def page(self, which: EventFilter, after: EventId, limit: int) -> tuple[tuple[Event, ...], EventId]:
        """The next events of the kind, oldest first, and up to where was looked."""
        ...

    async def newest(self, which: EventFilter, limit: int) -> tuple[Event, ...]:
        """The last ones of the kind, oldest first; those further back than some thousands are not found."""
        ...

    def gap(self, after: EventId) -> Gap | None:
        """What is no longer kept of what came after; None: all of it is."""
        ...

    def follow(
        self, which: EventFilter, after: EventId | None, *, progress: bool = False
    ) -> AsyncGenerator[Followed, None]:
        """All from ``after`` on (None: from now on), as they come, until closed. Nothing is lost: one who is
        slow is served from the disk; what is no longer there is told as a ``Gap``. ``progress``: also how far
        syncs are, which is not kept and has no number; not with ``public_only``."""
        ...

    # Event hooks

    async def deliveries(self) -> tuple[DeliveryView, ...]: ...

    async def letters(self, hook: str | None, limit: int, before: LetterId | None) -> Sequence[DeadLetter]:
        """Newest first."""
        ...

    async def send_again(self, hook: str, ids: Sequence[LetterId] | None, *, actor: str) -> int:
        """These letters, or all of the hook's, are tried again; returns how many. ``NotFound``."""
        ...

    async def forget_letters(self, hook: str, ids: Sequence[LetterId] | None, *, actor: str) -> int: ...

    async def test(self, hook: str, *, actor: str) -> str:
        """A message of type ``test`` at once, outside the queue; what went wrong, or nothing."""
        ...
