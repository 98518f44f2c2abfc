"""Where a relay listened last: a restarted one is found again by those who knew it, if the port is free."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

FILE = "port"
PORT_MAX = 65_535
_LONGEST = 16  # bytes: more is no port


def last_port(folder: Path) -> int:
    """0 where none is known."""
    try:
        with open(folder / FILE, "rb") as file:
            text = file.read(_LONGEST).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() and int(text) <= PORT_MAX else 0


def note_port(folder: Path, port: int) -> None:
    """All at once. Where it cannot be written, the next start takes another port: no more is lost."""
    fresh = folder / f"{FILE}.new"
    try:
        fresh.write_text(f"{port}\n", "ascii")
        os.replace(fresh, folder / FILE)
    except OSError as error:
        log.warning("the relay's port is not remembered", reason=error.strerror or str(error))
