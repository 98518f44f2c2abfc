"""Where the tests' folders are: in memory where there is room, else where the system keeps what is temporary.

git and SQLite wait for the disk at every commit, and the tests make thousands. What they show is the same on
both: whoever is killed leaves the system's memory as it is, and none of them cuts the power.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
FREE_BYTES_MIN = 8 << 30  # a whole run has up to 2 GB at a time; what is left must not look like a full disk


def quick_folder(folder: Path = IN_MEMORY, meminfo: Path = Path("/proc/meminfo")) -> Path | None:
    """The folder in memory; None where there is none, it is small, or programs may not be run from there."""
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    free = min(shutil.disk_usage(folder).free, _available_bytes(meminfo))
    return folder if free >= FREE_BYTES_MIN else None


def _available_bytes(meminfo: Path) -> int:
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    told = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(told[0]) * 1024 if told else 0
