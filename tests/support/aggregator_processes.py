"""A fleet of real processes with an aggregator: what its clients see of it, and what it says of itself."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2

from evermirror.model.access import TokenLimits
from tests.support.fleet_processes import FleetProcesses, Node, is_fetch
from tests.support.gitrepo import clean_git_env, read_refs, run_git
from tests.support.upstream import UpstreamServer

SHORT = Path(__file__).with_name("short_times.py")
LIAR = Path(__file__).with_name("lying_worker.py")


class AggregatedFleet(FleetProcesses):
    """With one aggregator, ``agg``, that is started by ``aggregate``."""

    def __init__(
        self,
        folder: Path,
        upstream: UpstreamServer,
        settings: Mapping[str, str],
        own: Mapping[str, str] | None = None,
        *,
        short: bool = False,
    ) -> None:
        """``own`` are the aggregator's settings; ``short``: who lies is found out soon."""
        super().__init__(folder, upstream, settings)
        self.agg = self.node("agg", **{"EVERMIRROR_AGGREGATOR__NAME": "agg", **(own or {})})
        self.agg_token = ""
        self.liars: dict[str, Node] = {}
        self._short = short
        if short:
            self.coordinator.program = self.agg.program = (sys.executable, "-P", str(SHORT))

    def aggregate(self) -> None:
        """One line, as a person types it."""
        self.agg_token = self.token("agg", role="aggregator")
        join = ("aggregator", "join", self.address, self.agg_token)
        if not self._short:
            self.agg.start(*join)
            return
        done = self.run(*join, "--only", "--data", str(self.agg.data))
        assert done.returncode == 0, done.stderr
        self.agg.start("aggregator")

    def lie(self, lie: str, weight: float = 20.0) -> Node:
        """A worker of its own, untrusted, that lies; its name is what it does."""
        node = self.liars[lie] = self.node(
            lie,
            EVERMIRROR_WORKER__COORDINATOR=self.address,
            # Its token gives it a large weight: most of what is new comes to it.
            EVERMIRROR_WORKER__TOKEN=self.token(lie, trusted=False, limits=TokenLimits(weight)),
        )
        node.program = (sys.executable, "-P", str(LIAR))
        node.start(lie)
        return node

    def close(self) -> None:
        for node in (self.agg, *self.liars.values()):
            node.close()
        super().close()

    def told(self) -> str:
        nodes = (self.agg, *self.liars.values())
        return "\n\n".join([super().told(), *(f"--- {n.name}\n{n.log()[-9000:]}" for n in nodes)])

    # What is asked of it

    def sync(self, key: str) -> None:
        """As a push's sender does: the task is waited for."""
        body = {"git_url": self.repos[key].url, "additional_params": {"wait": 60}}
        answer = self.coordinator.client.post("/api/tasks", json=body, timeout=90)
        assert answer.status_code in (200, 201), answer.text
        assert answer.json()["status"] in ("success", "skipped"), answer.text  # a look of its own came first

    def ask_sync(self, key: str) -> None:
        answer = self.coordinator.client.post("/api/tasks", json={"git_url": self.repos[key].url})
        assert answer.status_code in (200, 201, 202), answer.text

    # What its clients see

    def url(self, key: str) -> str:
        return f"{str(self.agg.client.base_url).rstrip('/')}/git/{key}"

    def git(self, *args: str) -> subprocess.CompletedProcess[str]:
        """As a client's."""
        return subprocess.run(
            ["git", *args],
            env=clean_git_env(self.folder),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def served(self, key: str) -> str:
        """main, as a client sees it; empty where it sees nothing."""
        done = self.git("ls-remote", self.url(key), "refs/heads/main")
        return done.stdout.split("\t")[0] if done.returncode == 0 else ""

    def serves_all(self) -> bool:
        return all(
            self.served(key) == repo.tip() and self.public(key) == repo.public_refs()
            for key, repo in self.repos.items()
        )

    def public(self, key: str) -> dict[str, str]:
        """What is on its disk, without what it keeps."""
        refs = read_refs(self.collected(key))
        return {n: o for n, o in refs.items() if not n.startswith("refs/evermirror/")}

    def collected(self, key: str) -> Path:
        return self.agg.data / "collected" / (key.replace(":", "%3A") + ".git")

    def assert_whole(self, *keys: str) -> None:
        """On its disk: equal to upstream, and without a fault."""
        for key in keys or self.repos:
            assert self.public(key) == self.repos[key].public_refs(), key
            run_git(self.collected(key), "fsck", "--strict", "--no-dangling")

    # What it says

    def state(self) -> dict[str, Any]:
        answer = self.agg.client.get("/api/aggregator")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def attempts(self) -> Counter[str]:
        """Since its start, by how they ended."""
        return Counter(self.state()["attempts"])

    def failed_attempts(self, key: str) -> list[str]:
        """The ways in which it did not get this repo, from its log."""
        told = [json.loads(line) for line in self.agg.log().splitlines() if line.startswith("{")]
        return [line["end"] for line in told if line["event"] == "an attempt ended" and line["repo"] == key]

    def holds(self, name: str, key: str) -> bool:
        """By the coordinator's books."""
        answer = self.coordinator.client.get(f"/api/repos/{key}/-/holders")
        holders = answer.json()["holders"] if answer.status_code == 200 else []
        return any(h["worker"] == name and h["state"] == "held" for h in holders)

    def readiness(self) -> str:
        with contextlib.suppress(httpx2.TransportError):
            answer = self.agg.client.get("/readyz")
            return str(answer.json()["reason"]) if answer.status_code == 200 else ""
        return ""

    def passed_bytes(self) -> int:
        """Through its relay, since its start."""
        return int(self.state()["relay"]["passed_bytes"])

    def until_passing(self, before: int, more_bytes: int = 1_000_000) -> None:
        """A pack is on its way through its relay: so much of it has come since ``before`` it was asked for,
        and more is to come."""

        def passing() -> bool:
            relay = self.state()["relay"]
            return bool(relay["passed_bytes"] >= before + more_bytes and relay["requests_running"])

        self.until(passing)

    def is_relayed(self) -> bool:
        """Workers can read from each other: the coordinator names the relay again, and each has a line there.
        After a restart of either that takes as long as the chance in the pauses of those who dial again."""
        known = [a["name"] for a in self.get("/api/fleet")["aggregators"] if a["connected"]]
        lines = self.state()["relay"]["workers"]
        return bool(known and lines == len(self.workers) + len(self.liars))

    def packs_of_upstream(self) -> int:
        """How often one was asked for, of everything or of what is new."""
        return sum(map(is_fetch, list(self.upstream.requests)))


class Reader(threading.Thread):
    """Reads every repo again and again while others do something."""

    def __init__(self, fleet: AggregatedFleet) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._over = threading.Event()
        self.reads = 0
        self.missed: list[str] = []  # not served
        self.false: list[tuple[str, str]] = []  # served, and upstream never had it

    def run(self) -> None:
        while not self._over.is_set():
            for key in sorted(self._fleet.repos):
                self._read(key)
                if self._over.wait(0.02):
                    return

    def _read(self, key: str) -> None:
        tip = self._fleet.served(key)
        self.reads += 1
        if not tip:
            self.missed.append(key)
        elif tip not in self._fleet.repos[key].git("rev-list", "--all").split():
            self.false.append((key, tip))

    @classmethod
    @contextlib.contextmanager
    def of(cls, fleet: AggregatedFleet) -> Iterator[Reader]:
        reader = cls(fleet)
        reader.start()
        try:
            yield reader
        finally:
            reader._over.set()
            reader.join(60)
        assert reader.reads, "nothing was read"
