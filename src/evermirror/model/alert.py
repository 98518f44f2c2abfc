"""What people should know, and how it reaches them: alerts, their history, silences, notices, messages.

Alert ──raised──▶ AlertRecord (stands) ──▶ Notice for each channel ──▶ Message (one or many notices) ──▶ sent
      ──over────▶ AlertRecord (ended)  ──▶ Notice to those who were told of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import NewType

AlertId = NewType("AlertId", int)
NoticeId = NewType("NoticeId", int)
SilenceId = NewType("SilenceId", int)


class Level(Enum):
    """How serious an alert is."""

    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 is the least serious."""
        return _RANKS[self]


_RANKS = {Level.WARNING: 0, Level.ERROR: 1, Level.CRITICAL: 2}


@dataclass(frozen=True, slots=True)
class Alert:
    """Something a person should know; ``over``: no longer so. ``kind`` and ``about`` say which one it is;
    level and text may change while it stands. ``facts`` are what a text in another language is made of."""

    kind: str  # such as "project-failing", "worker-down"; core/watch/texts.py has them all
    about: str  # the project, target, host, worker, credential
    text: str  # in English, one line
    over: bool = False
    level: Level = Level.WARNING
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.about


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """One alert from its beginning to its end: a row of the history. ``alert`` is what was last told of it;
    once it is over, ``end_text`` says how."""

    id: AlertId
    alert: Alert
    raised_at: float
    changed_at: float
    ended_at: float | None = None
    end_text: str = ""
    noticed: Level | None = None  # the most serious level that notices were made for; None: silenced so far

    @property
    def stands(self) -> bool:
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Silence:
    """Of alerts that match, people are not told until it ends; the history has them all the same. What then
    still stands is told."""

    id: SilenceId
    kind: str  # a pattern such as "project-*"; "*": any
    about: str  # the same
    until: float
    by: str
    reason: str = ""
    created_at: float = 0.0

    def covers(self, alert: Alert) -> bool:
        return fnmatchcase(alert.kind, self.kind) and fnmatchcase(alert.about, self.about)


class Turn(Enum):
    """What a notice tells of its alert."""

    RAISED = "raised"
    WORSE = "worse"  # it stood, and became more serious
    OVER = "over"
    TEST = "test"  # nothing happened: a person tries the channel


@dataclass(frozen=True, slots=True)
class Notice:
    """One turn of one alert, for one channel: kept until it is sent, or given up."""

    id: NoticeId
    channel: str
    alert: AlertId | None  # None: a test
    turn: Turn
    created_at: float
    attempts: int = 0
    not_before: float = 0.0
    sent_at: float | None = None
    given_up_at: float | None = None
    error: str = ""  # of the last attempt; no secret is in it
    level: Level = Level.WARNING  # of the alert: what was said last, or is to be said

    @property
    def waits(self) -> bool:
        return self.sent_at is None and self.given_up_at is None


@dataclass(frozen=True, slots=True)
class MessageItem:
    """One alert in a message, in the language of its reader."""

    kind: str
    about: str
    level: Level
    turn: Turn
    title: str  # such as "Project fails" or "项目同步失败"
    text: str  # one line
    raised_at: float
    ended_at: float | None = None
    alert: AlertId | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What a channel sends at once: one notice, or, where many wait, a digest of them."""

    title: str
    items: tuple[MessageItem, ...]
    more: int  # that have no room in ``items``
    level: Level  # the most serious of what stands; of all, where nothing does
    at: float
    language: str  # "en" or "zh"
    server: str  # which evermirror speaks


@dataclass(frozen=True, slots=True)
class ChannelState:
    """How a channel is doing."""

    name: str
    type: str
    waiting: int
    sent_at: float | None  # the last success
    failing_since: float | None
    error: str = ""
