"""Events on their way to others' servers: event hooks, how far each is, and letters that could not be
delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from evermirror.model.event import EventId

LetterId = NewType("LetterId", int)


@dataclass(frozen=True, slots=True)
class EventHook:
    """Who is told of what, by settings (``event_hooks.NAME``); its URL and secret are not here."""

    name: str
    types: tuple[str, ...] = ("*",)  # globs over event types
    repos: tuple[str, ...] = ("*",)  # globs over keys; events about no repo pass where this is "*" alone
    batch: int = 50  # events in one message


@dataclass(frozen=True, slots=True)
class HookProgress:
    """How far an event hook is: all that must survive a restart. Times are UTC seconds."""

    name: str
    after: EventId  # everything up to this one was delivered, passed over or laid aside
    until: EventId | None = None  # the last one of the message under way: after a restart the same goes again
    failures: int = 0  # in a row
    not_before: float = 0.0
    failing_since: float | None = None
    last_error: str = ""
    delivered_at: float | None = None
    delivered_total: int = 0
    laid_aside_total: int = 0
    stopped: bool = False  # the receiver said that it is gone: until a person says otherwise


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a receiver would not have, or could not be given in time: laid aside for a person."""

    id: LetterId
    hook: str
    event: EventId
    type: str
    body: str  # as it would have been sent
    reason: str
    attempts: int
    at: float
    again: bool = False  # a person wants it to be tried once more
