"""Logs: for people on a terminal, JSON otherwise; no secret gets through, and no control character acts."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from evermirror.model.printable import many_lines, one_line

MASK = "********"
SECRET_CHARS_MIN = 6  # shorter "secrets" would blot out ordinary words
DEPTH_MAX = 6  # of nested values; deeper ones are shown by their repr
TEXT_CHARS_MAX = 20_000  # one value; a traceback fits
SAME_PER_MINUTE = 600  # lines with the same message: ten a second tell a person all there is
LINES_PER_MINUTE = 6_000  # in all: at some 300 bytes a line, a flood writes 2.6 GB a day
ERRORS_PER_MINUTE = 1_200  # beyond these: other lines, however many, do not silence errors
_SECRET_KEYS = re.compile(
    r"password|passwd|secret|token(?!s_required)|authorization|credential_value|api_?key", re.I
)
# Tried from the start of a word only: from each letter of a long one it would take a second.
_USERINFO = re.compile(r"(?P<scheme>(?<![a-z0-9+.-])[a-z0-9+.-]+://)[^\s/@]+@", re.I)
_BEARER = re.compile(r"\b(?P<word>bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.I)
_DIGITS = re.compile(r"\d+")
_LEVEL_OF = {"exception": "error", "warn": "warning", "fatal": "critical"}  # structlog's methods
_MULTI_LINE = frozenset({"exception", "stack"})
_scrubbers: list[Scrubber] = []  # the one in use, once logging is set up


def setup_logging(
    level: str = "info", style: str = "auto", *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Sets up structlog, and the standard library's logging through it. ``style``: auto, human or json."""
    stream = sys.stderr if stream is None else stream
    human = style == "human" or (style == "auto" and stream.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    scrubber = Scrubber(secrets)
    _scrubbers[:] = [scrubber]
    flood = FloodGuard()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        scrubber,
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty())
        if human
        else structlog.processors.JSONRenderer(ensure_ascii=True)
    )
    structlog.configure(
        processors=[flood, *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: flood.lets_through(str(record.msg), record.levelno))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared[:-1]],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, shared[-1], renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What libraries have to say below a warning is about themselves; who asks for debug gets it.
    root.setLevel(number if number <= logging.DEBUG else max(number, logging.WARNING))


def mask_too(secrets: Iterable[str]) -> None:
    """Settings that are read again may have new ones. Those before stay masked: they may still be in use."""
    secrets = tuple(secrets)
    for scrubber in _scrubbers:
        scrubber.learn(secrets)


class FloodGuard:
    """Drops lines beyond so many a minute, so that nobody who causes them fills the disk.

    A line of the next minute says how many were dropped (``lines_dropped``). Messages are told apart without
    their digits: "worker 12 …" and "worker 13 …" are one."""

    def __init__(self, mono: Callable[[], float] = time.monotonic) -> None:
        self._mono = mono
        self._until = 0.0
        self._written: Counter[str] = Counter()
        self._total = 0
        self._dropped = 0  # in this minute
        self._untold = 0  # in earlier ones

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if method == "debug":  # whoever asks for these wants all
            return event
        level = logging.getLevelNamesMapping().get(_LEVEL_OF.get(method, method).upper(), logging.INFO)
        if not self.lets_through(str(event.get("event")), level):
            raise structlog.DropEvent
        if self._untold:
            event["lines_dropped"], self._untold = self._untold, 0
        return event

    def lets_through(self, message: str, level: int = logging.INFO) -> bool:
        """Count a line; whether it may be written. Errors have a reserve that other lines cannot use up."""
        now = self._mono()
        if now >= self._until:
            self._until, self._total = now + 60.0, 0
            self._written.clear()
            self._untold, self._dropped = self._untold + self._dropped, 0
        kind = _DIGITS.sub("", message[:200])
        most = LINES_PER_MINUTE + (ERRORS_PER_MINUTE if level >= logging.ERROR else 0)
        if self._total >= most or self._written[kind] >= SAME_PER_MINUTE:
            self._dropped += 1
            return False
        self._total += 1
        self._written[kind] += 1
        return True


class Scrubber:
    """Masks secrets by key, by value and by shape, and neutralises control characters, in every field."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset[str]()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Masked from now on, too."""
        self._secrets |= {s for s in secrets if len(s) >= SECRET_CHARS_MIN}
        known = sorted(self._secrets, key=len, reverse=True)
        self._known = re.compile("|".join(re.escape(s) for s in known)) if known else None

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        return {one_line(str(k)): self._field(str(k), v) for k, v in event.items()}

    def text(self, text: str, *, block: bool = False) -> str:
        """One text without secrets and without anything a terminal obeys."""
        text = text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _USERINFO.sub(rf"\g<scheme>{MASK}@", text)
        text = _BEARER.sub(rf"\g<word> {MASK}", text)
        return many_lines(text) if block else one_line(text)

    def _field(self, key: str, value: object) -> object:
        if _SECRET_KEYS.search(key) and value is not None and not isinstance(value, bool):
            return MASK
        if key in _MULTI_LINE and isinstance(value, str):
            return self.text(value, block=True)
        return self._value(value, 0)

    def _value(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        if depth < DEPTH_MAX and isinstance(value, Mapping):
            return {one_line(str(k)): self._nested(str(k), v, depth) for k, v in value.items()}
        if depth < DEPTH_MAX and isinstance(value, list | tuple | set | frozenset):
            return [self._value(v, depth + 1) for v in value]
        return self.text(repr(value))

    def _nested(self, key: str, value: object, depth: int) -> object:
        return MASK if _SECRET_KEYS.search(key) and value is not None else self._value(value, depth + 1)
