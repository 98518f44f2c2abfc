"""The state of a fleet as one would write it down first: a dictionary of dictionaries, in its own process.

``python -m bench.alternatives.plain_state REPOS`` prints the MB that it takes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WORKERS = 1000


def _rss_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def _key(number: int) -> str:
    """As long as those of the catalog that the coordinator has."""
    file, line = divmod(number, 1000)
    return f"forge-{file % 7}.example/organisation-{file}/project-{line:04d}"


def _measure(repos: int) -> float:
    before = _rss_mb()
    state = {
        _key(n): {
            "worker": n % WORKERS,
            "rank": 0,
            "state": "held",
            "reason": "home",
            "since": 1.7e9 + n,
            "verified_at": None,
            "digest": None,
        }
        for n in range(repos)
    }
    assert len(state) == repos
    return _rss_mb() - before


def plain_state_mb(repos: int) -> float:
    command = [sys.executable, "-m", "bench.alternatives.plain_state", str(repos)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    print(_measure(int(sys.argv[1])))
