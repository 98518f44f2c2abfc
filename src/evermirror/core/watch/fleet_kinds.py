"""The fleet's alerts as everybody else's: with a level, and in one form."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.core.fleet.decisions import AlertKind
from evermirror.model.alert import Alert, Level

LEVELS = {
    AlertKind.BRAKE: Level.CRITICAL,  # nobody's repos are taken over until it is off
    AlertKind.NO_ROOM: Level.ERROR,
    AlertKind.WORKER_DOWN: Level.ERROR,
    AlertKind.QUARANTINE: Level.ERROR,
    AlertKind.ACCUSATION: Level.ERROR,
    AlertKind.AGGREGATOR_DOWN: Level.CRITICAL,  # people clone from it
    AlertKind.DISK_FULL: Level.WARNING,  # its repos are still served, and fetched
    AlertKind.STALLED: Level.ERROR,
    AlertKind.SLOW: Level.WARNING,  # what it was asked for is with others
    AlertKind.UNVERIFIED: Level.ERROR,  # perhaps nobody has them
    AlertKind.UNREACHABLE: Level.WARNING,  # what it holds goes to others
    AlertKind.STRAY: Level.WARNING,
}


def fleet_alert(
    kind: AlertKind, about: str, text: str, *, over: bool = False, facts: Mapping[str, str] | None = None
) -> Alert:
    """``about`` is a worker's name, or "fleet"."""
    return Alert(kind.value, about, text, over, LEVELS[kind], facts or {})
