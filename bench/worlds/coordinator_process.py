"""A real ``evermirror coordinator`` on a prepared folder, and what the system and its log say of it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from evermirror.config.settings import DATABASE_FILE
from evermirror.core.fleet.copies import CopyState, Reason
from tests.support.ports import free_port

START_S = 300.0  # the longest that a start may take: a first one reads and stores everything
LOOK_S = 0.02  # between two looks whether it is ready
STOP_S = 60.0
SETTLED_S = (
    1.0  # after it is ready: the door for workers is open, and what the start left behind is given back
)
TICKS = os.sysconf("SC_CLK_TCK")
ADMIN = f"em_{'admin':_>43}"


@dataclass(frozen=True, slots=True)
class Start:
    """One start until it was ready. CPU is of the process and of the git processes that it waited for; memory
    is what it has a second later."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    peak_mb: float


def worker_token(worker: int) -> str:
    return f"em_worker{worker:_>37}"


class CoordinatorProcess:
    """Started and stopped any number of times, always on the same data, ports and catalog."""

    def __init__(self, folder: Path, catalog: Path, heartbeat_s: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self.http_port = free_port()
        self.grpc_port = free_port()
        self._folder = folder
        self._catalog = catalog
        self._out = folder / "coordinator.log"
        self._heartbeat_s = heartbeat_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def database(self) -> Path:
        return self.data / DATABASE_FILE

    @property
    def ca_pem(self) -> bytes:
        return (self.data / "pki" / "ca.pem").read_bytes()

    # Life

    @contextlib.contextmanager
    def running(self) -> Iterator[Start]:
        """Ready when the block begins; stopped, in order, when it ends."""
        try:
            yield self._start()
        finally:
            self._stop()

    def _start(self) -> Start:
        command = [sys.executable, "-m", "evermirror", "coordinator", "--data", str(self.data)]
        command += ["--catalog", str(self._catalog), "--listen", f"127.0.0.1:{self.http_port}"]
        command += ["--grpc-listen", f"127.0.0.1:{self.grpc_port}"]
        settings = {
            "EVERMIRROR_FLEET__HEARTBEAT": f"{self._heartbeat_s * 1000:.0f}ms",
            "EVERMIRROR_CATALOG__INTERVAL": "1h",  # looks are asked for
            "EVERMIRROR_LOG__FORMAT": "json",
        }
        inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        with self._out.open("wb") as out:
            began = time.monotonic()
            self._process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**inherited, "HOME": str(self._folder), **settings},
            )
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > began + START_S:
                raise RuntimeError(f"the coordinator did not start:\n{self._out.read_text()[-4000:]}")
            time.sleep(LOOK_S)
        wall_s, cpu_s = time.monotonic() - began, self.cpu_s()
        time.sleep(SETTLED_S)
        return Start(wall_s, cpu_s, self.rss_mb(), self.peak_mb())

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def look_at_catalog(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    # What the system says

    def cpu_s(self) -> float:
        fields = self._proc("stat").rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:15]) / TICKS

    def rss_mb(self) -> float:
        return self._memory_mb("VmRSS")

    def peak_mb(self) -> float:
        return self._memory_mb("VmHWM")

    def _memory_mb(self, name: str) -> float:
        return int(self._proc("status").split(f"{name}:")[1].split()[0]) * 1024 / 1e6

    def _proc(self, name: str) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    # What it did

    def fetched_at(self) -> float:
        """UTC seconds at which the newest commit of the catalog was in its clone."""
        (ref,) = (self.data / "catalog").glob("*.git/refs/evermirror/catalog")
        return ref.stat().st_mtime

    def read_at(self) -> list[float]:
        """UTC seconds of each time that a change of the catalog was in the store."""
        lines = (line for line in self._out.read_text().splitlines() if line.startswith("{"))
        said = (json.loads(line) for line in lines)
        times = [s["timestamp"] for s in said if s["event"] == "catalog read"]
        return [datetime.fromisoformat(text).timestamp() for text in times]


def settle_workers(database: Path, workers: int) -> None:
    """As after a long and quiet life: workers are known by their tokens, and hold all repos in equal
    parts."""
    now = time.time()
    tokens = [(worker_token(n), "worker", f"worker-{n}") for n in range(workers)]
    connection = sqlite3.connect(database)
    with connection:
        connection.executemany(
            "INSERT INTO tokens (hash, role, name, trusted, created_at) VALUES (?, ?, ?, 1, 0)",
            [
                (hashlib.sha256(plain.encode()).hexdigest(), role, name)
                for plain, role, name in [*tokens, (ADMIN, "admin", "admin")]
            ],
        )
        connection.execute(
            """
            INSERT INTO workers (id, token_id, name, trusted, weight, liveness, duty, joined_at,
                last_alive_at, flap_score, flap_at, history)
            SELECT CAST(substr(name, 8) AS INTEGER), id, name, 1, 1.0, 'alive', 'active', ?1, ?1, 0, 0, '[]'
            FROM tokens WHERE role = 'worker'
            """,
            (now,),
        )
        connection.execute(
            """
            INSERT INTO copies (repo, worker, rank, state, reason, since)
            SELECT id, id % ?, 0, ?, ?, ? FROM repos
            """,
            (workers, int(CopyState.HELD), int(Reason.HOME), now),
        )
    connection.close()


def held_by(database: Path) -> dict[int, list[str]]:
    """The keys that each worker holds."""
    held: dict[int, list[str]] = {}
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    for worker, key in connection.execute(
        "SELECT copies.worker, repos.key FROM copies JOIN repos ON repos.id = copies.repo"
        " WHERE repos.removed_at IS NULL"
    ):
        held.setdefault(worker, []).append(key)
    connection.close()
    return held
