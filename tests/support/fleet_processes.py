"""A fleet of real processes for tests: ``evermirror coordinator``, and workers that join it with one line.

Rules: every process has a folder and free ports of its own, and keeps both when it is started again; nothing
waits for a fixed time, only until something holds, or a deadline; ``close`` leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from evermirror.config import Config, load_config
from evermirror.core.keep.names import KEPT
from evermirror.edge.rpc.join import join_token
from evermirror.edge.rpc.pki import ca_fingerprint, open_ca
from evermirror.edge.store.store import Store
from evermirror.model.access import NO_LIMITS, Role, TokenLimits
from evermirror.nodes.coordinator.own_ca import pki_folder
from tests.support.backend import Request
from tests.support.gitrepo import UpstreamRepo, read_refs
from tests.support.ports import free_port
from tests.support.upstream import UpstreamServer

COMMAND = (sys.executable, "-m", "evermirror")
WITHIN_S = 90.0  # most take a second or two; a busy machine is slow
LOOK_S = 0.05
SETTLED_LOOK_S = 0.25  # at all disks, and with a question for each repo

Seats = dict[str, frozenset[str]]  # which workers have a mirror of each repo on their disks


async def _make_token(config: Config, name: str, role: Role, trusted: bool, limits: TokenLimits) -> str:
    store = await Store.open(config.store_url)
    try:
        plain, _ = await store.create_token(name, role, trusted=trusted, limits=limits)
    finally:
        await store.close()
    return plain


class Node:
    """One process: started, killed, stopped, started again on the same data and ports."""

    def __init__(self, folder: Path, name: str, env: Mapping[str, str], data: Path | None = None) -> None:
        self.name = name
        self.data = data or folder / name
        self.port = free_port()
        self.only_logs = False  # what it says on stdout is dropped
        self.program = COMMAND
        self._folder = folder
        self._out = folder / f"{name}.log"
        self._env = {"PATH": os.environ["PATH"], "HOME": str(folder), **env}
        self._process: subprocess.Popen[bytes] | None = None
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)

    def start(self, *command: str) -> None:
        argv = [*self.program, *command, "--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]
        with self._out.open("ab") as out:
            said = subprocess.DEVNULL if self.only_logs else out
            self._process = subprocess.Popen(argv, stdout=said, stderr=out, cwd=self._folder, env=self._env)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As kill -9 does; on return it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(timeout=30)

    def close(self) -> None:
        if self.running:
            self.kill()
        self.client.close()

    def ready(self) -> bool:
        return bool(self.client.get("/readyz").status_code == 200)

    def mirrors(self) -> set[str]:
        """The keys of the mirrors that are complete on its disk."""
        root = self.data / "mirrors"
        return {
            str(head.parent.relative_to(root)).removesuffix(".git").replace("%3A", ":")
            for head in root.glob("[!.]*/*/*.git/HEAD")  # in .incoming is what only comes
        }

    def mirror(self, key: str) -> Path:
        return self.data / "mirrors" / (key.replace(":", "%3A") + ".git")


class FleetProcesses:
    """A coordinator with a catalog file, and its workers by name."""

    def __init__(self, folder: Path, upstream: UpstreamServer, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.upstream = upstream
        self.repos: dict[str, UpstreamRepo] = {}
        self.workers: dict[str, Node] = {}
        self.catalog = folder / "catalog.txt"
        self.address = f"127.0.0.1:{free_port()}"
        self._env = {
            "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
            "EVERMIRROR_UPSTREAMS__ALLOW": f'["{upstream.host}"]',
            "EVERMIRROR_SCHEDULE__MIN_GAP": "1s",
            "EVERMIRROR_SCHEDULE__MAX_GAP": "2s",
            "EVERMIRROR_LIMITS__HOST_RATE": "100/s",
            "EVERMIRROR_CATALOG__INTERVAL": "1s",
            "EVERMIRROR_FLEET__WARM_UP": "60s",
            **settings,
        }
        self.coordinator = Node(folder, "coordinator", self._env)
        self.tokens: dict[str, str] = {}  # of the workers, by name
        self.cloned_at_first: Counter[str] = Counter()  # when the fleet was settled for the first time

    # Processes

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(
            [*COMMAND, *command],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **self._env},
            timeout=WITHIN_S,
            check=False,
        )

    def token(
        self, name: str, role: str = "worker", *, trusted: bool = True, limits: TokenLimits = NO_LIMITS
    ) -> str:
        """What `token create` prints; a process for each would take longer than the rest of a join."""
        config = load_config(env=self._env, overrides={"data.dir": self.coordinator.data})
        with ThreadPoolExecutor(1) as pool:  # the caller may be in a loop of its own
            made = _make_token(config, name, Role(role), trusted and role == "worker", limits)
            plain = pool.submit(asyncio.run, made).result()
        if Role(role) not in (Role.WORKER, Role.AGGREGATOR):
            return plain
        return join_token(plain, ca_fingerprint(open_ca(pki_folder(config))))

    def prepare(self) -> None:
        """The coordinator's CA is made; from then on there can be tokens."""
        done = self.run("coordinator", "init", "--data", str(self.coordinator.data))
        assert done.returncode == 0, done.stderr
        done = self.run(
            *("token", "create", "--role", "admin", "--name", "admin", "--json"),
            *("--data", str(self.coordinator.data)),
        )
        assert done.returncode == 0, done.stderr
        admin = json.loads(done.stdout)["token"]
        self.coordinator.client.headers["Authorization"] = f"Bearer {admin}"

    def lead(self) -> None:
        """The coordinator is started, for the first time or again."""
        self.coordinator.start("coordinator", "--grpc-listen", self.address, "--catalog", str(self.catalog))
        self.until(self.coordinator.ready)

    def join(self, name: str, data: Path | None = None) -> Node:
        """One line, as a person types it."""
        node = self.workers[name] = self.node(name, data)
        self.tokens[name] = self.token(name)
        node.start("worker", "join", self.address, self.tokens[name])
        return node

    def node(self, name: str, data: Path | None = None, **settings: str) -> Node:
        return Node(self.folder, name, {**self._env, "EVERMIRROR_WORKER__NAME": name, **settings}, data)

    def close(self) -> None:
        for node in (*self.workers.values(), self.coordinator):
            node.close()

    # Waiting

    def until(self, holds: Callable[[], object], within_s: float = WITHIN_S, look_s: float = LOOK_S) -> None:
        """No answer is no; whoever waits in vain sees what everybody said."""
        end = time.monotonic() + within_s
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if holds():
                    return
            assert time.monotonic() < end, self.told()
            time.sleep(look_s)

    def told(self) -> str:
        said = [f"in vain for {WITHIN_S:g} s"]
        with contextlib.suppress(httpx2.TransportError, ValueError):
            said.append(json.dumps(self.coordinator.client.get("/api/fleet").json(), indent=1))
        nodes = (self.coordinator, *self.workers.values())
        return "\n\n".join([*said, *(f"--- {node.name}\n{node.log()[-6000:]}" for node in nodes)])

    def settle(self) -> None:
        self.until(self.is_settled, look_s=SETTLED_LOOK_S)

    def is_settled(self) -> bool:
        """Everybody is alive, every repo is complete on one worker, and nothing moves."""
        fleet = self.get("/api/fleet")
        totals, wanted = fleet["totals"], len(self.repos)
        return (
            all(w["connected"] and w["liveness"] == "alive" for w in fleet["workers"])
            and len(fleet["workers"]) == len(self.workers)
            and totals["repos"] == totals["owned"] == totals["held"] == wanted
            and sum(w["held"] for w in fleet["workers"]) == wanted
            and not any(totals[n] for n in ("moving", "planned", "asked", "stopping", "leaving", "no_room"))
            and self.seats() == {key: frozenset((self.holder(key),)) for key in self.repos}
        )

    # What is there

    def get(self, path: str) -> dict[str, Any]:
        """From the coordinator; a refusal is a failure."""
        answer = self.coordinator.client.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def worker(self, name: str) -> dict[str, Any]:
        return self.get(f"/api/fleet/workers/{name}")

    def holder(self, key: str) -> str:
        """The one worker that the coordinator knows to hold it; empty while it moves."""
        holders = self.get(f"/api/repos/{key}/-/holders")["holders"]
        return str(holders[0]["worker"]) if [h["state"] for h in holders] == ["held"] else ""

    def seats(self, first: str | None = None) -> Seats:
        """From the disks. What moves away from ``first``, which is read first, is then seen at the other."""
        nodes = sorted(self.workers.values(), key=lambda node: node.name != first)
        held = {node.name: node.mirrors() for node in nodes}
        keys = set().union(*held.values())
        return {key: frozenset(n for n, there in held.items() if key in there) for key in keys}

    def held_by(self, name: str) -> set[str]:
        return self.workers[name].mirrors()

    def tip_at(self, name: str, key: str) -> str:
        return read_refs(self.workers[name].mirror(key))["refs/heads/main"]

    def down(self) -> list[tuple[str, str]]:
        """Who was ever declared dead."""
        names = [w["name"] for w in self.get("/api/fleet")["workers"]]
        return [
            (name, e["what"]) for name in names for e in self.worker(name)["history"] if "down" in e["what"]
        ]

    def clones(self) -> Counter[str]:
        """How often each repo was cloned whole from upstream, from the requests that came there."""
        made = [r for r in list(self.upstream.requests) if is_clone(r)]
        return Counter(f"{self.upstream.host}{r.path.partition('.git/')[0]}" for r in made)

    # The catalog

    def create(self, names: Iterable[str]) -> list[str]:
        """Repositories at the upstream, listed in the catalog; returns their keys."""
        keys = []
        for name in names:
            repo = self.upstream.create(name)
            keys.append(f"{self.upstream.host}/{name}")
            self.repos[keys[-1]] = repo
        self.write_catalog()
        return keys

    def write_catalog(self) -> None:
        """In one step, as a careful editor does."""
        new = self.catalog.with_suffix(".new")
        new.write_text("".join(f"{repo.url}\n" for repo in self.repos.values()))
        new.replace(self.catalog)

    def assert_sound(self) -> None:
        """Every repo is whole and equal to upstream, on exactly one worker."""
        seats = self.seats()
        assert set(seats) == set(self.repos)
        for key, repo in self.repos.items():
            (name,) = seats[key]
            mirror = self.workers[name].mirror(key)
            public = {n: oid for n, oid in read_refs(mirror).items() if not n.startswith(KEPT)}
            assert public == repo.public_refs(), (key, name)
            done = subprocess.run(["git", "-C", mirror, "fsck", "--strict"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


def is_clone(request: Request) -> bool:
    """A fetch by someone who has nothing yet."""
    return is_fetch(request) and b"have " not in _unpacked(request)


def is_fetch(request: Request) -> bool:
    """A pack was asked for: of everything, or of what is new."""
    return request.service == "upload-pack" and b"command=fetch" in _unpacked(request)


def _unpacked(request: Request) -> bytes:
    packed = "gzip" in request.headers.get("content-encoding", "")
    return gzip.decompress(request.body) if packed else request.body
