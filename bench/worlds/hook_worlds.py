"""Who takes the hooks of the benchmark: an all-in-one, or a coordinator and a worker of their own."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.worlds.server import GitServer
from evermirror.config.settings import DATABASE_FILE
from tests.support.fleet_processes import Node
from tests.support.gitrepo import run_git
from tests.support.ports import free_port

SECRET = "of the benchmark's forge"  # noqa: S105 - signs what this very benchmark sends
START_S = 60.0
MIRRORED_S = 900.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class World:
    """Who takes the hooks, and whose disk has the mirrors: another, or the same."""

    server: GitServer
    front: Node
    disk: Node

    def key(self, name: str) -> str:
        return f"127.0.0.1:{self.server.port}/{name}"

    def tip(self, name: str) -> str:
        """Of main, as the mirror has it; empty where there is none."""
        mirror = self.disk.mirror(self.key(name))
        with contextlib.suppress(OSError):
            return (mirror / "refs/heads/main").read_text().strip()
        return run_git(mirror, "rev-parse", "refs/heads/main") if mirror.exists() else ""

    def asked(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """The database, read while it is written."""
        path = self.front.data / DATABASE_FILE
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as c:
            return c.execute(query, values).fetchall()

    def mirrored(self) -> int:
        return int(str(self.asked("SELECT count(*) FROM repos WHERE status = 'active'")[0][0]))

    def cpu_s(self) -> dict[str, float]:
        """Of each process so far, without the gits that it starts."""
        return {node.name: _cpu_s(node.pid) for node in dict.fromkeys((self.front, self.disk))}

    def delayed_s(self) -> dict[str, float]:
        """How long the loop of each process was ready so far, and no core was free."""
        nodes = dict.fromkeys((self.front, self.disk))
        fields = {node.name: Path(f"/proc/{node.pid}/schedstat").read_text().split() for node in nodes}
        return {name: int(those[1]) / 1e9 for name, those in fields.items()}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def until(holds: Callable[[], bool], within_s: float, pause_s: float = 0.05) -> None:
    give_up = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError("it does not come about")
        time.sleep(pause_s)


@contextlib.contextmanager
def all_in_one(folder: Path, server: GitServer, names: list[str]) -> Iterator[World]:
    node = Node(folder, "all-in-one", _settings(server))
    node.start("up", "--catalog", str(_catalog(folder, server, names)))
    world = World(server, node, node)
    try:
        until(lambda: _ready(node), START_S)
        until(lambda: world.mirrored() >= len(names), MIRRORED_S, 0.5)
        yield world
    finally:
        _end(node)


@contextlib.contextmanager
def fleet(folder: Path, server: GitServer, names: list[str]) -> Iterator[World]:
    env = {**_settings(server), "EVERMIRROR_FLEET__WARM_UP": "2s"}
    front, disk = Node(folder, "coordinator", env), Node(folder, "worker", env)
    catalog, address = _catalog(folder, server, names), f"127.0.0.1:{free_port()}"
    data = ["--data", str(front.data)]
    _run(folder, env, "coordinator", "init", *data)
    token = ("token", "create", "--name", "w", "--role", "worker", "--trusted", "--json")
    told = json.loads(_run(folder, env, *token, *data))["token"]
    front.start("coordinator", "--grpc-listen", address, "--catalog", str(catalog))
    world = World(server, front, disk)
    try:
        until(lambda: _ready(front), START_S)
        disk.start("worker", "join", address, told)
        until(lambda: world.mirrored() >= len(names), MIRRORED_S, 0.5)
        yield world
    finally:
        _end(disk)
        _end(front)


def _settings(server: GitServer) -> dict[str, str]:
    return {
        "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
        "EVERMIRROR_UPSTREAMS__ALLOW": f'["127.0.0.1:{server.port}"]',
        "EVERMIRROR_LIMITS__HOST_RATE": "1000/s",
        "EVERMIRROR_WEBHOOKS__GITHUB_SECRET": SECRET,
        "EVERMIRROR_LOG__LEVEL": "warning",
        "EVERMIRROR_SCHEDULE__SLOTS": "20",
    }


def _catalog(folder: Path, server: GitServer, names: list[str]) -> Path:
    path = folder / "catalog.txt"
    path.write_text("".join(f"{server.url(name)} interval=6h\n" for name in names))
    return path


def _ready(node: Node) -> bool:
    with contextlib.suppress(Exception):
        return node.ready()
    return False


def _end(node: Node) -> None:
    if node.running:
        node.stop()
    node.close()


def _run(folder: Path, env: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "evermirror", *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=START_S,
    )
    return done.stdout
