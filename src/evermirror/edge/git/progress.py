"""Reads the progress that git prints while it transfers. Pure: bytes in, steps out.

git rewrites a line with ``\\r``. Lines that start with ``remote: `` are upstream's own words: they say which
phase it is in, but the count of received bytes is only ever taken from our own git.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evermirror.model.task import SyncPhase

LINE_BYTES_MAX = 4096  # longer than any progress line; upstream could send one without end

_LINE = re.compile(
    rb"(?P<remote>remote: )?(?P<title>[A-Z][A-Za-z ]{2,40}): +"
    rb"(?:(?P<percent>\d{1,3})% \(\d{1,18}/\d{1,18}\)|(?P<count>\d{1,18}))"
    rb"(?:, (?P<size>\d{1,12}(?:\.\d{1,4})?) (?P<unit>bytes|KiB|MiB|GiB|TiB))?"
)
_UNITS = {b"bytes": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30, b"TiB": 1 << 40}
_PHASES = {
    b"Enumerating objects": SyncPhase.COUNTING,
    b"Counting objects": SyncPhase.COUNTING,
    b"Compressing objects": SyncPhase.COMPRESSING,
    b"Receiving objects": SyncPhase.RECEIVING,
    b"Unpacking objects": SyncPhase.RECEIVING,
    b"Writing objects": SyncPhase.PUSHING,
    b"Resolving deltas": SyncPhase.RESOLVING,
    b"Checking connectivity": SyncPhase.CHECKING,
    b"Checking objects": SyncPhase.CHECKING,
}


@dataclass(frozen=True, slots=True)
class GitProgress:
    """Where a transfer is. ``percent`` is of the phase, None where git does not know the total. Of a push,
    ``received_bytes`` are those that were sent, and ``host`` is the target's."""

    phase: SyncPhase
    percent: float | None
    received_bytes: int
    host: str = ""

    @property
    def told(self) -> str:
        """The phase, as others are told."""
        return self.phase.to(self.host) if self.host else self.phase.value


class ProgressReader:
    """Feed it stderr as it comes; it gives back the steps in it and forgets the rest."""

    def __init__(self) -> None:
        self._rest = b""
        self.received_bytes = 0
        self.indexed = False  # our own index-pack, which checks every object, took the pack in

    def feed(self, data: bytes) -> list[GitProgress]:
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = rest[:LINE_BYTES_MAX]
        return [step for line in lines if (step := self._read(line)) is not None]

    def _read(self, line: bytes) -> GitProgress | None:
        match = _LINE.match(line)
        phase = _PHASES.get(match["title"]) if match else None
        if match is None or phase is None:
            return None
        if match["title"] == b"Receiving objects" and match["remote"] is None:
            self.indexed = True
        if match["size"] is not None and match["remote"] is None:
            self.received_bytes = max(self.received_bytes, int(float(match["size"]) * _UNITS[match["unit"]]))
        percent = None if match["percent"] is None else min(100.0, float(match["percent"]))
        return GitProgress(phase, percent, self.received_bytes)
