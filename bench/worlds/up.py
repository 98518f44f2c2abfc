"""``evermirror up`` as a person starts it, at the usual pace of time or at a quicker one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.worlds.server import GitServer
from tests.support.ports import free_port

WAIT_S = 300
STOP_S = 60


class Up:
    """``pace``: what its environment needs for a quicker time, see paces.py."""

    def __init__(
        self,
        server: GitServer,
        data: Path,
        catalog: Path,
        settings: Mapping[str, str],
        pace: Mapping[str, str] | None = None,
    ) -> None:
        said = {
            "UPSTREAMS__ALLOW": json.dumps(["127.0.0.1"]),
            "UPSTREAMS__CA_FILE": str(server.ca_file),
            "LOG__LEVEL": "warning",
            **settings,
        }
        env = {**os.environ, **{f"EVERMIRROR_{k}": v for k, v in said.items()}, **(pace or {})}
        self.port = free_port()
        flags = ["--data", str(data), "--catalog", str(catalog), "--listen", f"127.0.0.1:{self.port}"]
        self.started_at = time.monotonic()
        command = [sys.executable, "-m", "evermirror", "up", *flags]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1000

    def wait_until(self, there: Callable[[], bool], every_s: float) -> float:
        """Seconds from the start until ``there``."""
        while not there():
            if self.process.poll() is not None:
                raise AssertionError(f"evermirror up ended with {self.process.returncode}")
            if time.monotonic() - self.started_at > WAIT_S:
                raise AssertionError("evermirror up was not there in time")
            time.sleep(every_s)
        return time.monotonic() - self.started_at

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        finally:
            self.process.kill()
