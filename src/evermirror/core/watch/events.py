"""What the alert book hears, what it decides, and what it starts from.

decision = book.handle(event, now)      ``now`` is UTC: it is persisted
    1. commit ``decision.writes`` in one transaction
    2. begin ``decision.sends``: each ends as one ``Sent`` or ``NotSent`` with the same channel and ids
    3. hand in ``Woke`` at ``decision.wake_at``, if nothing else came before; later is late, never wrong
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from evermirror.model.alert import (
    Alert,
    AlertRecord,
    Level,
    Message,
    Notice,
    NoticeId,
    Silence,
    SilenceId,
)

# Events


@dataclass(frozen=True, slots=True)
class Told:
    """Something is so, or, with ``alert.over``, no longer."""

    alert: Alert


@dataclass(frozen=True, slots=True)
class Stand:
    """The whole truth about these kinds: what else of them stands in the book, is over."""

    kinds: frozenset[str]
    alerts: tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class Silenced:
    """A person wants no notices of what matches these patterns. Answered by one ``SilenceSaved``; by none
    where ``silences_max`` are in force already."""

    kind: str
    about: str
    until: float
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unsilenced:
    """A silence ends before its time. Answered by one ``SilenceRemoved``; by none where there is no such."""

    id: SilenceId
    by: str


@dataclass(frozen=True, slots=True)
class Sent:
    """The other side has taken the message. Without ids: one that was no notice, such as a person's test;
    it shows that the channel works, and counts for its rate."""

    channel: str
    ids: tuple[NoticeId, ...]


@dataclass(frozen=True, slots=True)
class NotSent:
    """It has not. Without ids: one that was no notice; it counts for the rate alone."""

    channel: str
    ids: tuple[NoticeId, ...]
    reason: str  # for people; no secret is in it
    permanent: bool = False  # the same message would be refused again
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Woke:
    """Time has passed."""


AlertEvent = Told | Stand | Silenced | Unsilenced | Sent | NotSent | Woke

# Decisions


@dataclass(frozen=True, slots=True)
class AlertSaved:
    """Insert or replace by ``record.id``."""

    record: AlertRecord


@dataclass(frozen=True, slots=True)
class NoticeSaved:
    """Insert or replace by ``notice.id``."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class SilenceSaved:
    silence: Silence


@dataclass(frozen=True, slots=True)
class SilenceRemoved:
    """A person or time ended it."""

    id: SilenceId


AlertWrite = AlertSaved | NoticeSaved | SilenceSaved | SilenceRemoved


@dataclass(frozen=True, slots=True)
class Send:
    """One message for these notices. A channel has one under way at a time."""

    channel: str
    ids: tuple[NoticeId, ...]
    message: Message


@dataclass(frozen=True, slots=True)
class AlertDecision:
    """``writes`` name each row at most once. ``logs``: what happened besides the alerts, which the writes
    tell: silences, notices that were given up."""

    writes: tuple[AlertWrite, ...] = ()
    sends: tuple[Send, ...] = ()
    logs: tuple[str, ...] = ()
    wake_at: float | None = None  # None: nothing waits for time


# What it starts from


@dataclass(frozen=True, slots=True)
class RestoredAlerts:
    """From the store. ``standing``: all that stand. ``ended``: those over that a waiting notice names.
    ``silences``: every row, also those whose time is over. ``notices``: those that wait, all of standing
    alerts (who was told, is told the end), and those sent or given up in the last minute (for the rate)."""

    standing: tuple[AlertRecord, ...] = ()
    ended: tuple[AlertRecord, ...] = ()
    silences: tuple[Silence, ...] = ()
    notices: tuple[Notice, ...] = ()
    next_alert_id: int = 1  # above every id that was ever given
    next_notice_id: int = 1
    next_silence_id: int = 1


# Settings


@dataclass(frozen=True, slots=True)
class Channel:
    """Who wants to know what."""

    name: str
    type: str  # "dingtalk", "wecom", "mail", "syslog", "webhook"
    min_level: Level = Level.WARNING
    kinds: tuple[str, ...] = ()  # patterns such as "project-*"; none: all
    language: str = "en"  # or "zh"

    def wants(self, alert: Alert) -> bool:
        if alert.level.rank < self.min_level.rank:
            return False
        return not self.kinds or any(fnmatchcase(alert.kind, pattern) for pattern in self.kinds)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    channels: tuple[Channel, ...] = ()
    server: str = "evermirror"  # which one speaks
    retention_s: float = 90 * 86400.0  # of alerts that are over, and of their notices
    settle_s: float = 600.0  # after a restart: what nobody told of again by then is over
    per_minute: int = 20  # messages of one channel in any 60 s, failed ones too: what the bots allow
    backoff_min_s: float = 5.0
    backoff_max_s: float = 900.0
    give_up_s: float = 86400.0  # a notice that could not be sent for so long
    down_after_s: float = 300.0  # a channel that fails for longer is worth an alert
    standing_max: int = 1000  # warnings; more serious ones have more room
    waiting_max: int = 1000  # notices of one channel
    silences_max: int = 200
    items_max: int = 20  # of one message
