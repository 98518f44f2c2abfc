"""What the faces may ask about alerts: one protocol, so that they know no wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from evermirror.model.alert import AlertId, AlertRecord, ChannelState, Level, Notice, Silence, SilenceId


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which alerts a list shows, newest first. ``standing``: None: also those that are over."""

    standing: bool | None = True
    level: Level | None = None  # at least this
    kind: str = ""
    about: str = ""  # a part of it
    begin: float | None = None  # raised at or after
    end: float | None = None
    page: int = 1
    size: int = 50


@dataclass(frozen=True, slots=True)
class AlertView:
    record: AlertRecord
    silenced_by: SilenceId | None = None


@dataclass(frozen=True, slots=True)
class AlertPage:
    items: tuple[AlertView, ...]
    total: int
    page: int
    size: int


@dataclass(frozen=True, slots=True)
class Tested:
    """Of one channel that was tried; ``error`` is empty where the message was taken."""

    channel: str
    error: str = ""


class NoticeEnd(Enum):
    """What became of a try to send a notice; also of one that was given up."""

    SENT = "sent"
    FAILED = "failed"  # it is tried again
    GIVEN_UP = "given-up"


@dataclass(frozen=True, slots=True)
class AlertFigures:
    """For Prometheus, at one moment. ``notices`` are counted since the start."""

    standing: Mapping[Level, int]
    notices: Mapping[tuple[str, NoticeEnd], int]  # by channel
    channels: tuple[ChannelState, ...]


class AlertService(Protocol):
    def figures(self) -> AlertFigures:
        """From memory."""
        ...

    def standing(self, limit: int) -> AlertPage:
        """From memory: the most serious first, then the oldest."""
        ...

    async def alerts(self, which: AlertFilter) -> AlertPage: ...

    async def alert(self, alert_id: AlertId) -> tuple[AlertView, tuple[Notice, ...]]:
        """With what was sent of it, and to whom. ``NotFound``."""
        ...

    async def channels(self) -> tuple[ChannelState, ...]: ...

    async def test(self, channel: str | None, *, actor: str) -> tuple[Tested, ...]:
        """A message to one channel, or to all, at once and outside the queue, within the senders' timeouts.
        ``NotFound`` where there is no such channel, ``Conflict`` where there is none at all."""
        ...

    async def silences(self) -> tuple[Silence, ...]:
        """Those in force."""
        ...

    async def silence(self, kind: str, about: str, for_s: float, reason: str, *, actor: str) -> Silence:
        """``UsageError`` for a pattern that is none, a time that is over or longer than a year."""
        ...

    async def unsilence(self, silence_id: SilenceId, *, actor: str) -> None:
        """``NotFound``."""
        ...
