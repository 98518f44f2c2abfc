"""Which time zone peak hours and crons are in: the setting's, else the process's own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LOCAL_FILE = Path("/etc/localtime")  # what the C library reads where TZ is not set


def zone_of(name: str | None) -> tzinfo:
    """The named zone; None: that of ``TZ``, else the machine's.

    A ``TZ`` that is a rule and no name (``CST-8``) is taken as the offset it means at the start."""
    if name is not None:
        return ZoneInfo(name)
    wanted = os.environ.get("TZ")
    if wanted is None:
        return _machines_own()
    try:
        return ZoneInfo(wanted.removeprefix(":")) if wanted else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return datetime.now().astimezone().tzinfo or UTC


def name_of(zone: tzinfo) -> str:
    """As people are told it."""
    return zone.key if isinstance(zone, ZoneInfo) and zone.key else datetime.now(zone).strftime("%Z")


def _machines_own() -> tzinfo:
    try:
        path = LOCAL_FILE.resolve(strict=True)
        with path.open("rb") as file:
            _, found, name = path.as_posix().rpartition("zoneinfo/")
            return ZoneInfo.from_file(file, key=name if found else None)
    except (OSError, ValueError):
        return UTC
