"""A wall clock for one process that a test can set while the process runs; uptime and waiting stay real."""

from __future__ import annotations

from pathlib import Path

LIBRARIES = tuple(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")))


class WallClock:
    """``env`` for the process, ``set_ahead`` for the test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set_ahead(0)

    @property
    def env(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds; without it each look at the clock reads the file
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set_ahead(self, seconds: int) -> None:
        """Of the real time; written at once, as the process may read the file at any time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)
