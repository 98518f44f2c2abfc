"""An event as others read it: JSON, of a version (model/event.py says when that changes)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

from evermirror.model.event import EVENTS_VERSION, Event

# Ends of a line to some readers, and allowed in JSON and in names of refs.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
_MAX_TIME_S = 253_402_300_799.0  # the last second of the year 9999


def event_json(event: Event) -> str:
    """One line. Ref names and git's words are bytes; what is no UTF-8 in them is replaced."""
    told = {
        "version": EVENTS_VERSION,
        "id": event.id,
        "type": event.type,
        "at": iso(event.at),
        "repo": event.repo,
        "worker": event.worker,
        "data": event.data,
    }
    return _utf8(json.dumps(told, ensure_ascii=False, separators=(",", ":"))).translate(_LINE_ENDS)


def iso(at: float) -> str:
    """UTC seconds as ``2023-07-27T12:00:00.000Z``."""
    at = min(max(at, 0.0), _MAX_TIME_S) if math.isfinite(at) else 0.0
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _utf8(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
