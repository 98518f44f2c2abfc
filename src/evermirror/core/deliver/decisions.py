"""What a courier hears and what it decides.

decision = courier.handle(event, now)      ``now`` is UTC: it is persisted
    1. save ``progress``, ``aside`` and ``letter`` in one transaction
    2. do ``action``, and hand in what came of it
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.delivery import DeadLetter, EventHook, HookProgress, LetterId
from evermirror.model.event import EventId

NEVER = EventId(0)  # below every event's number

# What it hears


@dataclass(frozen=True, slots=True)
class Item:
    """An event as it goes out: ``body`` is its JSON, ``at`` when it was put down."""

    event: EventId
    type: str
    at: float
    body: str


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to ``Read``: what this hook wants of the events after the place asked for, up to ``up_to``.
    ``more``: there may be more after that. ``gone``: the highest number that is no longer kept. ``again``:
    the next letter that a person wants to be tried once more."""

    items: tuple[Item, ...]
    up_to: EventId
    gone: EventId = NEVER
    more: bool = False
    again: DeadLetter | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """The receiver has taken what was posted."""


@dataclass(frozen=True, slots=True)
class NotTaken:
    """It has not. ``refused``: it would not have this; ``gone``: it wants nothing more, ever."""

    reason: str  # for people; no secret is in it
    refused: bool = False
    gone: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Woke:
    """Time has passed, or there may be news."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A person says, or a test has shown, that it is worth another try: no pause is kept."""


@dataclass(frozen=True, slots=True)
class Configured:
    """Other settings; it is tried at once."""

    hook: EventHook


DeliveryEvent = Found | Taken | NotTaken | Woke | Resumed | Configured

# What it decides


@dataclass(frozen=True, slots=True)
class Read:
    """The next events after this one, at most so many that this hook wants."""

    after: EventId
    limit: int


@dataclass(frozen=True, slots=True)
class Post:
    """One message, with the same number whenever it holds the same events."""

    delivery: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """For news, and at most until then; None: for news alone."""

    until: float | None


@dataclass(frozen=True, slots=True)
class LayAside:
    """This becomes a letter."""

    item: Item
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class LetterEnd:
    """A letter that was tried again: it is gone, or it stays for this reason and is not tried again."""

    id: LetterId
    taken: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """``lost``: events were no longer kept before they could be delivered."""

    action: Read | Post | Wait
    progress: HookProgress | None = None  # None: nothing is to be saved
    aside: tuple[LayAside, ...] = ()
    letter: LetterEnd | None = None
    lost: bool = False
