"""Amounts as people write them: durations (``1h30m``), sizes (``10GB``) and rates (``300/m``), both ways.

A unit is always asked for where a bare number could mean two things: 10 seconds and 10 minutes are both usual
intervals. A size without a unit can only be bytes, and a rate without one is per second.
"""

from __future__ import annotations

import math
import re

from evermirror.errors import InvalidValue

DURATION_FORM = "a duration such as 500ms, 5s, 10m, 2h, 30d or 1h30m"
SIZE_FORM = "a size such as 10GB, 512MiB or a number of bytes"
RATE_FORM = "a rate such as 5/s, 300/m, 1000/h or a number a second"

DURATION_MAX_S = 36_500 * 86_400.0  # 100 years: longer is a slip of the hand, and dates stay representable
TOOK_MAX_S = 1e9  # thirty years
SIZE_MAX_BYTES = 2**63 - 1  # what both databases can store
TEXT_MAX_CHARS = 64  # no real amount is longer; keeps the patterns below cheap on hostile input

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile(
    rf"(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?(?:({_NUMBER})ms)?", re.ASCII
)
_DURATION_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000, 1)
_DURATION_NAMES = ("d", "h", "m", "s", "ms")

_SIZE = re.compile(rf"({_NUMBER}) ?([kmgtp]i?)?b?", re.ASCII | re.IGNORECASE)
_SIZE_PREFIXES = "kmgtp"

_RATE = re.compile(rf"({_NUMBER})(?:/([smh]))?", re.ASCII)
_RATE_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds. Units go from large to small, each at most once; only 0 needs none."""
    if text in ("0", "0.0"):
        return 0.0
    match = _match(_DURATION, text, "duration", DURATION_FORM)
    # Summed as milliseconds: 0.001 s has no exact float, and 1500ms must equal 1s500ms.
    total_ms = sum(float(n) * unit for n, unit in zip(match.groups(), _DURATION_UNITS_MS, strict=True) if n)
    if total_ms > DURATION_MAX_S * 1000:
        raise InvalidValue(f"duration {text!r} is longer than 100 years", hint="Write a shorter one")
    return total_ms / 1000


def format_duration(seconds: float) -> str:
    """The shortest spelling that ``parse_duration`` reads back, to the millisecond; ``0s`` for nothing."""
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is not a duration")
    if seconds < 0:
        return "-" + format_duration(-seconds)
    rest_ms = round(seconds * 1000)
    parts = []
    for unit_ms, name in zip(_DURATION_UNITS_MS, _DURATION_NAMES, strict=True):
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


def parse_size(text: str) -> int:
    """Bytes. ``kB MB GB TB PB`` are powers of 1000, ``KiB MiB …`` of 1024; letter case does not matter."""
    match = _match(_SIZE, text, "size", SIZE_FORM)
    number, prefix = match.groups()
    if prefix is None:
        factor = 1
    else:
        base = 1024 if len(prefix) == 2 else 1000
        factor = base ** (_SIZE_PREFIXES.index(prefix[0].lower()) + 1)
    whole, _, fraction = number.partition(".")
    size = int(whole) * factor + (int(fraction) * factor // 10 ** len(fraction) if fraction else 0)
    if size > SIZE_MAX_BYTES:
        raise InvalidValue(f"size {text!r} is too large", hint="The largest is 9223372036854775807 bytes")
    return size


def format_size(size_bytes: int) -> str:
    """For people: three digits or so, decimal units (``1.5GB``); ``parse_size`` reads it back, rounded."""
    if size_bytes < 0:
        return "-" + format_size(-size_bytes)
    if size_bytes < 1000:
        return f"{size_bytes}B"
    value = float(size_bytes)
    for name in ("kB", "MB", "GB", "TB", "PB"):
        value /= 1000
        if value < 999.5 or name == "PB":
            break
    text = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return text.removesuffix(".0") + name


def parse_rate(text: str) -> float:
    """Events a second, above 0: a rate of nothing would stop everything without saying so."""
    match = _match(_RATE, text, "rate", RATE_FORM)
    number, unit = match.groups()
    rate = float(number) / _RATE_SECONDS[unit]
    if not 0 < rate < math.inf:
        raise InvalidValue(f"rate {text!r} is not above 0", hint=f"Write {RATE_FORM}")
    return rate


def took_s(started_at: float, ended_at: float) -> float:
    """Seconds between two times that another told, whatever they are: from 0 to TOOK_MAX_S."""
    took = ended_at - started_at
    return round(min(max(took, 0.0), TOOK_MAX_S), 3) if math.isfinite(took) else 0.0


def _match(pattern: re.Pattern[str], text: str, what: str, form: str) -> re.Match[str]:
    match = pattern.fullmatch(text) if 0 < len(text) <= TEXT_MAX_CHARS else None
    if match is None:
        raise _refused(what, text, form)
    return match


def _refused(what: str, text: str, form: str) -> InvalidValue:
    shown = text if len(text) <= TEXT_MAX_CHARS else text[:TEXT_MAX_CHARS] + "…"
    return InvalidValue(f"{shown!r} is not a {what}", hint=f"Write {form}")
