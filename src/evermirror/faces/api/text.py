"""Text that came from outside, made fit to print: any bytes in, valid UTF-8 without lone surrogates out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

_MAX_TIME_S = 253_402_300_799.0  # 9999-12-31T23:59:59Z, the last second ISO 8601's four-digit year can say
_MAX_DEPTH = 32  # of JSON that we print back; deeper is cut off


def printable(text: str) -> str:
    """``text`` with what UTF-8 cannot hold replaced: ref names and git's output are bytes, not text."""
    if text.isascii():
        return text
    return (
        text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if _escaped(text) else _plain(text)
    )


def _escaped(text: str) -> bool:
    return any("\udc80" <= c <= "\udcff" for c in text) and not any(
        "\ud800" <= c < "\udc80" or "\udcff" < c <= "\udfff" for c in text
    )


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def printable_json(value: object, depth: int = 0) -> object:
    """A stored value as plain JSON data: what JSON cannot hold becomes text or null."""
    if depth > _MAX_DEPTH:
        return None
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(k)): printable_json(v, depth + 1) for k, v in value.items()}
        case list() | tuple():
            return [printable_json(v, depth + 1) for v in value]
        case _:
            return printable(str(value))


def iso(at: float) -> str:
    """UTC seconds as ``2023-07-27T12:00:00Z``."""
    at = min(max(at, 0.0), _MAX_TIME_S) if math.isfinite(at) else 0.0
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_or_none(at: float | None) -> str | None:
    """The same where a time may be unknown (None, or 0 for never)."""
    return iso(at) if at else None


def iso_times(value: object) -> object:
    """Our own stored JSON, in which ``at`` and ``…_at`` are UTC seconds, with ISO times in their place."""
    match value:
        case dict():
            return {name: _iso_field(name, one) for name, one in value.items()}
        case list():
            return [iso_times(one) for one in value]
        case _:
            return value


def _iso_field(name: str, value: object) -> object:
    is_time = name == "at" or name.endswith("_at")
    return iso(value) if is_time and isinstance(value, int | float) else iso_times(value)
