"""The words around alerts in the two languages, and text cut to a number of bytes."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from evermirror.model.alert import Level, Message, MessageItem, Turn
from evermirror.model.printable import one_line

TITLE_BYTES_MAX = 200
ABOUT_BYTES_MAX = 300
TEXT_BYTES_MAX = 700
CUT = "…"
_Words = TypeVar("_Words")

_LEVELS = {
    "en": {Level.WARNING: "Warning", Level.ERROR: "Error", Level.CRITICAL: "Critical"},
    "zh": {Level.WARNING: "警告", Level.ERROR: "错误", Level.CRITICAL: "严重"},
}
_TURNS = {
    "en": {Turn.RAISED: "{level}", Turn.WORSE: "{level}, worse than before", Turn.OVER: "Over"},
    "zh": {Turn.RAISED: "{level}", Turn.WORSE: "{level}（加重）", Turn.OVER: "已结束"},
}
_TEST = {"en": "Test", "zh": "测试"}
_SINCE = {"en": "since {begin}", "zh": "自 {begin}"}
_UNTIL = {"en": "{begin} to {end}", "zh": "{begin} 至 {end}"}
_MORE = {"en": "and {more} more: evermirror alerts list", "zh": "另有 {more} 条：evermirror alerts list"}
_BETWEEN = {"en": ": ", "zh": "："}


def clip(text: str, limit_bytes: int) -> str:
    """At most so many bytes of UTF-8, and no half letter."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit_bytes:
        return text
    room = max(limit_bytes - len(CUT.encode("utf-8")), 0)
    return encoded[:room].decode("utf-8", "ignore").rstrip() + CUT


def line(text: str, limit_bytes: int) -> str:
    """Somebody's text on one line of bounded length."""
    return clip(one_line(text).strip(), limit_bytes)


def label(item: MessageItem, language: str) -> str:
    """How serious, and what turn it took: ``Error``, ``Over``."""
    if item.turn is Turn.TEST:
        return _in(_TEST, language)
    return _in(_TURNS, language)[item.turn].format(level=_in(_LEVELS, language)[item.level])


def subject(message: Message) -> str:
    """The title with how serious it is, where that still matters."""
    first = message.items[0]
    if first.turn not in (Turn.RAISED, Turn.WORSE):
        return message.title
    return _in(_LEVELS, message.language)[message.level] + between(message.language) + message.title


def when(item: MessageItem, language: str) -> str:
    """Since when, or from when to when, as this machine's clock shows it."""
    begin = clock_time(item.raised_at)
    if item.ended_at is None:
        return _in(_SINCE, language).format(begin=begin)
    return _in(_UNTIL, language).format(begin=begin, end=clock_time(item.ended_at))


def more(count: int, language: str) -> str:
    """What had no room; "" where everything had."""
    return _in(_MORE, language).format(more=count) if count else ""


def between(language: str) -> str:
    """What stands between a title and what it is about."""
    return _in(_BETWEEN, language)


def signed_by(message: Message) -> str:
    """Always in a message: also for bots that ask for a keyword."""
    return f"evermirror · {line(message.server, TITLE_BYTES_MAX)}"


def clock_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")


def _in(words: dict[str, _Words], language: str) -> _Words:
    return words.get(language) or words["en"]
