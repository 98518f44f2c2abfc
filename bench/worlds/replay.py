"""Histories replayed to real upstreams in quick time, and when each push can be cloned from a real process.

                 commits, sped up                     polls, syncs
 histories ──▶ pushing thread ──▶ upstreams (git) ◀──────────────── evermirror up, whose time runs as fast
                     │ pushed at                                       │ event: refs changed
                     ▼                                                 ▼
                  delays ◀──────── clonable at ◀── asked over HTTP: is this commit served?

Each history stands for several upstreams, which are whole weeks apart in it: weekday and hour stay.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.worlds.paces import pace
from bench.worlds.population import Population, link_tree, make_population
from bench.worlds.product import Product, new_loop
from bench.worlds.server import GitServer
from bench.worlds.up import Up
from evermirror.core.schedule.intensity import DAY_S, learn
from evermirror.edge.store.local import LocalState
from evermirror.model.activity import Activity
from evermirror.sim.polling import Trace, Traces
from tests.support.gitrepo import UpstreamRepo

WEEK_S = 7 * DAY_S
ASK_S = 10.0  # of one request to the process
LAST_S = 60.0  # at most, after the last push, until all can be cloned


@dataclass(frozen=True, slots=True)
class Replay:
    """So many upstreams, from ``start`` (UTC seconds of the histories) on, for ``length_s`` of their time."""

    traces: Traces  # one for each upstream; they end where the replay does
    start: float
    length_s: float
    speed: float

    @property
    def pushes(self) -> list[tuple[float, int]]:
        """When, and to which upstream."""
        repos = enumerate(self.traces.repos)
        return sorted((p, i) for i, trace in repos for p in trace.pushes if p > self.start)


def make_replay(traces: Traces, upstreams: int, start: float, length_s: float, speed: float) -> Replay:
    made = []
    for i in range(upstreams):
        weeks, which = divmod(i, len(traces.repos))
        trace = traces.repos[which]
        shifted = [p + weeks * WEEK_S for p in trace.pushes]
        made.append(Trace(f"{trace.name}-{weeks}", [p for p in shifted if p <= start + length_s]))
    return Replay(Traces(tuple(made), start + length_s), start, length_s, speed)


@dataclass(slots=True)
class Delays:
    """Of one run: seconds of the histories from push to clonable."""

    counted: list[float] = field(default_factory=list)
    polls: int = 0

    @property
    def mean_s(self) -> float:
        return sum(self.counted) / len(self.counted)

    def share_within(self, seconds: float) -> float:
        return sum(1 for d in self.counted if d <= seconds) / len(self.counted)


class World:
    """Upstreams and their mirrors, all equal at first; every run works on copies."""

    def __init__(self, folder: Path, server: GitServer, replay: Replay) -> None:
        self.server = server
        self.replay = replay
        self._folder = folder
        self._runs = 0

        async def make() -> Population:
            product = Product.wire(server, folder / "first")
            n = len(replay.traces.repos)
            population = await make_population(server, product, n, folder / "first" / "worker.db")
            await product.close()
            await self._remember(folder / "first" / "worker.db")
            return population

        with asyncio.Runner(loop_factory=new_loop) as runner:
            self.population = runner.run(make())
        self._kept = folder / "kept.git"
        link_tree(self.population.first.path, self._kept)

    async def _remember(self, file: Path) -> None:
        """What a clone's log would have told of each upstream's past."""
        local = await LocalState.open(file)
        order = {spec_key: i for i, spec_key in enumerate(self._keys())}
        start = self.replay.start
        told = []
        for memory in await local.load():
            past = [p for p in self.replay.traces.repos[order[str(memory.key)]].pushes if p <= start]
            activity = learn(Activity(), past, after=0.0, now=start)
            told.append(replace(memory, activity=activity, last_poll_at=start, verified_at=start))
        await local.save(told)
        await local.close()

    def _keys(self) -> list[str]:
        return [f"127.0.0.1:{self.server.port}/team/repo-{i}" for i in range(len(self.replay.traces.repos))]

    def run(self, settings: dict[str, str], line: str = "", warm_s: float = 0.0) -> Delays:
        """One process with these settings, ``line`` behind each URL of its catalog. Pushes of the first
        ``warm_s`` are made and not counted."""
        self._runs += 1
        data = self._folder / f"run-{self._runs}"
        link_tree(self._folder / "first", data)
        (data / "worker.db").unlink()
        (data / "worker.db").write_bytes((self._folder / "first" / "worker.db").read_bytes())
        catalog = self._folder / f"urls-{self._runs}.txt"
        catalog.write_text("".join(f"{s.url} {line}\n" for s in self.population.specs), "utf-8")
        self._reset_upstreams()
        up = Up(self.server, data, catalog, settings, pace(self.replay.start, self.replay.speed))
        try:
            up.wait_until(lambda: _answers(up.port), 0.05)
            return _Run(self, up, warm_s).delays()
        finally:
            up.stop()

    def _reset_upstreams(self) -> None:
        for i in range(len(self.population.specs)):
            path = self.population.first.path.with_name(f"repo-{i}.git")
            if path.exists():
                shutil.rmtree(path)
            link_tree(self._kept, path)


class _Run:
    """Pushes in one thread, what can be cloned in another."""

    def __init__(self, world: World, up: Up, warm_s: float) -> None:
        self._world = world
        self._up = up
        self._warm_s = warm_s
        self._waiting: dict[str, list[tuple[str, float, bool]]] = {}  # commit, pushed at, whether it counts
        self._lock = threading.Lock()
        self._found = Delays()
        self._events = http.client.HTTPConnection("127.0.0.1", up.port, timeout=ASK_S)
        self._events.request("GET", "/api/events?types=refs.changed")
        self._stream = self._events.getresponse()

    def delays(self) -> Delays:
        watching = threading.Thread(target=self._watch, daemon=True)
        watching.start()
        before = self._world.server.requests()
        self._push()
        self._found.polls = self._world.server.requests() - before  # of all sides in the same time
        give_up = time.monotonic() + LAST_S
        while self._waiting and time.monotonic() < give_up:
            time.sleep(0.05)
        if self._waiting:
            raise AssertionError(f"pushes to {len(self._waiting)} upstreams cannot be cloned")
        return self._found

    def _push(self) -> None:
        """Until the replay's time is over."""
        replay, began = self._world.replay, time.monotonic()
        repos = self._world.population

        def sleep_until(at: float) -> None:
            time.sleep(max(0.0, began + (at - replay.start) / replay.speed - time.monotonic()))

        for at, i in replay.pushes:
            sleep_until(at)
            path = repos.first.path.with_name(f"repo-{i}.git")
            commit = UpstreamRepo(path, f"team/repo-{i}", repos.specs[i].url).commit(when=at)
            counts = at >= replay.start + self._warm_s
            with self._lock:
                key = str(repos.specs[i].key)
                self._waiting.setdefault(key, []).append((commit, time.monotonic(), counts))
        sleep_until(replay.start + replay.length_s)

    def _watch(self) -> None:
        """Until the process stops."""
        while line := self._next_line():
            if line.startswith(b"data:"):
                self._moved(json.loads(line[5:])["repo"])

    def _next_line(self) -> bytes:
        try:
            return self._stream.readline()
        except (OSError, http.client.HTTPException):
            return b""

    def _moved(self, key: str) -> None:
        with self._lock:
            waiting = list(self._waiting.get(key, ()))
        served = self._served(key)
        at = time.monotonic()
        reached = max((n for n, one in enumerate(waiting, 1) if one[0] in served), default=0)
        with self._lock:
            for _, pushed_at, counts in waiting[:reached]:
                if counts:
                    self._found.counted.append((at - pushed_at) * self._world.replay.speed)
            self._waiting[key] = self._waiting.get(key, [])[reached:]
            if not self._waiting[key]:
                del self._waiting[key]

    def _served(self, key: str) -> str:
        """The refs that a clone would get now."""
        asked = "0014command=ls-refs\n00010009peel\n000csymrefs\n0000"
        headers = {"Git-Protocol": "version=2", "Content-Type": "application/x-git-upload-pack-request"}
        connection = http.client.HTTPConnection("127.0.0.1", self._up.port, timeout=ASK_S)
        try:
            connection.request("POST", f"/git/{key}.git/git-upload-pack", asked, headers)
            return connection.getresponse().read().decode()
        finally:
            connection.close()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
