"""The coordinator's whole process at a million repos: its start, its memory, a thousand workers, a commit.

Prepared once for each size: a catalog in git, which a first start reads and stores; then workers that hold
all of it. Measured are later starts, and what goes on after them. All figures are of the coordinator's
process, as the system tells them, in CPU with the git that it starts. Beside it: the same state in
dictionaries, and as many connections to a gRPC server that does nothing.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.alternatives.bare_grpc import bare_streams_mb
from bench.alternatives.plain_state import plain_state_mb
from bench.figures.catalog import CHANGED, LINES, _file, _make
from bench.measure import Bench, Context, Curve, Found, Line, Sense, Series
from bench.worlds.coordinator_process import CoordinatorProcess, Start, settle_workers
from bench.worlds.crowd import Crowd, Joined, crowd, more_files
from evermirror.model.repo import RepoKey
from tests.support.gitrepo import UpstreamRepo

WORKERS = 1000
HEARTBEAT_S = 5.0
WATCHED_S = 15.0  # three heartbeats of everybody
COMMANDS = 100
FILE = 0  # which is changed
READ_S = 60.0  # the longest that a commit may take
SHARED = "coordinator-1M"  # catalog.git and node/ (with data/, settled on worker-0 … worker-999)
NODE, CATALOG, FIRST = "node", "catalog.git", "first.json"


@dataclass(slots=True)
class Figures:
    """Of one size."""

    repos: int
    first: Start
    starts: list[Start] = field(default_factory=list)
    late_commit_s: list[float] = field(default_factory=list)  # it came while the coordinator was away
    commit_s: list[float] = field(default_factory=list)
    joined: Joined | None = None
    joined_cpu_s: float = 0.0
    crowd_mb: float = 0.0
    crowd_peak_mb: float = 0.0
    core_share: float = 0.0
    latency_ms: list[float] = field(default_factory=list)

    @property
    def quickest(self) -> Start:
        return min(self.starts, key=lambda s: s.cpu_s)


def prepared(repos: int, workers: int) -> Callable[[Path], None]:
    """A catalog, and the node that has read and stored it in a first start; then workers hold all of it."""

    def make(folder: Path) -> None:
        catalog = _make(folder / CATALOG, repos // LINES)
        coordinator = CoordinatorProcess(folder / NODE, catalog.path, HEARTBEAT_S)
        with coordinator.running() as first:
            pass
        settle_workers(coordinator.database, workers)
        (folder / FIRST).write_text(json.dumps(asdict(first)))

    return make


class World:
    """One size: its catalog, and the coordinator that follows it."""

    def __init__(self, folder: Path, repos: int, workers: int, heartbeat_s: float) -> None:
        path = folder / CATALOG
        self.catalog = UpstreamRepo(path, "catalog", str(path))
        self.coordinator = CoordinatorProcess(folder / NODE, path, heartbeat_s)
        self.first = Start(**json.loads((folder / FIRST).read_text()))
        self.repos = repos
        self.workers = workers
        self._commits = 0

    def commit(self) -> frozenset[RepoKey]:
        """A hundred lines are others; the repos that are new by that."""
        self._commits += 1
        mark = f"v{self._commits}-"
        text = _file(FILE, changed=mark)
        self.catalog.commit(files={f"{FILE // 100:02d}/{FILE:04d}.txt": text})
        urls = (line for line in text.splitlines() if f"/{mark}" in line)
        return frozenset(RepoKey(url.removeprefix("https://").removesuffix(".git")) for url in urls)

    def late_commit(self) -> tuple[Start, float]:
        """A start that finds a commit, and from fetched to stored of it."""
        self.commit()
        with self.coordinator.running() as start:
            give_up = time.monotonic() + READ_S
            while not (found := self.coordinator.read_at()) and time.monotonic() < give_up:
                time.sleep(0.05)
            return start, found[0] - self.coordinator.fetched_at()

    def commit_s(self, workers: Crowd) -> float:
        """From fetched until a worker was told of each of its repos."""
        keys = self.commit()
        workers.watch(keys)
        self.coordinator.look_at_catalog()
        told = workers.assigned()
        return max(told.values()) - self.coordinator.fetched_at()

    def some_keys(self, count: int) -> list[RepoKey]:
        chance = random.Random(1)
        at = [(chance.randrange(self.repos // LINES), chance.randrange(CHANGED, LINES)) for _ in range(count)]
        lines = [_file(number).splitlines()[line] for number, line in dict.fromkeys(at)]
        return [RepoKey(url.removeprefix("https://").removesuffix(".git")) for url in lines]


def _starts(world: World, starts: int) -> Figures:
    figures = Figures(world.repos, world.first)
    for _ in range(starts):
        with world.coordinator.running() as start:
            figures.starts.append(start)
    return figures


def _with_crowd(world: World, figures: Figures, commits: int, watched_s: float, commands: int) -> None:
    coordinator = world.coordinator
    figures.late_commit_s.append(world.late_commit()[1])
    with coordinator.running() as start:
        figures.starts.append(start)
        alone_s = coordinator.cpu_s()
        with crowd(coordinator, world.workers) as (workers, joined):
            cpu_s, began = coordinator.cpu_s(), time.monotonic()
            figures.joined, figures.joined_cpu_s = joined, cpu_s - alone_s
            time.sleep(watched_s)
            figures.core_share = (coordinator.cpu_s() - cpu_s) / (time.monotonic() - began)
            figures.crowd_mb, figures.crowd_peak_mb = coordinator.rss_mb(), coordinator.peak_mb()
            figures.latency_ms = workers.latencies_ms(world.some_keys(commands))
            for _ in range(commits):
                figures.commit_s.append(world.commit_s(workers))


def _at_most(
    what: str,
    unit: str,
    samples: Sequence[float],
    goal: float | None = None,
    promise: str = "",
    limit: str = "",
) -> Line:
    return Line(what, unit, tuple(samples), sense=Sense.AT_MOST, goal=goal, promise=promise, limit=limit)


def _lines(f: Figures, smallest: Figures, workers: int) -> list[Line]:
    assert f.joined is not None
    bare = f"libraries and our own code take {smallest.quickest.rss_mb:.0f} MB with {smallest.repos:,} repos"
    memory, ready = "coordinator-memory", "coordinator-ready"
    return [
        _at_most(f"{f.repos:,} repos: a first start, which stores all", "s wall", [f.first.wall_s]),
        _at_most("a start until it is ready", "s wall", [s.wall_s for s in f.starts], 5.0, ready),
        _at_most("the same", "s CPU", [s.cpu_s for s in f.starts]),
        _at_most("RSS then, alone", "MB", [s.rss_mb for s in f.starts], 250.0, memory, bare),
        _at_most("peak RSS until then", "MB", [s.peak_mb for s in f.starts]),
        _at_most(f"{workers:,} workers join, until all is told", "s wall", [f.joined.took_s]),
        _at_most("the same, the coordinator's part", "s CPU", [f.joined_cpu_s]),
        _at_most("RSS with them", "MB", [f.crowd_mb], 350.0, "coordinator-crowd-memory"),
        _at_most("peak RSS while they joined", "MB", [f.crowd_peak_mb]),
        _at_most("CPU with them", "% of a core", [f.core_share * 100], 10.0, "coordinator-crowd-cpu"),
        _at_most(
            f"a commit of {CHANGED} lines, fetched to told", "s wall", f.commit_s, 1.0, "coordinator-commit"
        ),
        _at_most(
            "one that a start finds, fetched to stored", "s wall", f.late_commit_s, 1.0, "coordinator-commit"
        ),
        _at_most(
            "a sync asked for by HTTP, until its worker knows",
            "ms wall",
            f.latency_ms,
            10.0,
            "coordinator-command",
        ),
    ]


def _compared(f: Figures, smallest: Figures, workers: int, pki: Path) -> list[Line]:
    """What grows with repos and with workers, against the plain ways."""
    alone = f.quickest.rss_mb
    state = alone - smallest.quickest.rss_mb
    plain = plain_state_mb(f.repos - smallest.repos)
    bare = bare_streams_mb(pki, workers)
    per_worker = (f.crowd_mb - alone) / workers * 1000
    return [
        Line("the state of all repos", "MB", (max(state, 0.001),), (plain,), against="dict of dicts"),
        Line(
            "a connected worker with its share of repos",
            "kB",
            (per_worker,),
            (bare / workers * 1000,),
            Sense.TIMES_AS_MUCH,
            against="a bare grpc.aio stream",
        ),
    ]


def _curves(sizes: list[Figures]) -> list[Curve]:
    """From size to size; what each further repo costs is flat where it does not grow."""
    first, last = sizes[0].quickest, sizes[-1].quickest
    more = sizes[-1].repos - sizes[0].repos
    us, each = ((b - a) / more * 1e6 for a, b in ((first.cpu_s, last.cpu_s), (first.rss_mb, last.rss_mb)))

    def curve(title: str, y: str, of: Callable[[Start], float], says: str) -> Curve:
        series = Series("coordinator", tuple((float(f.repos), of(f.quickest)) for f in sizes))
        return Curve(title, "repos", y, (series,), log_x=True, says=says, promise="coordinator-curve")

    return [
        curve("Coordinator: a start", "s CPU", lambda s: s.cpu_s, f"Each further repo: {us:.1f} µs CPU."),
        curve("Coordinator: memory", "MB", lambda s: s.rss_mb, f"Each further repo: {each:.0f} bytes."),
    ]


def _run(context: Context) -> list[Found]:
    more_files()
    heartbeat_s = 0.5 if context.quick else HEARTBEAT_S
    workers = context.size(WORKERS, 10)
    sizes = [1_000, 2_000] if context.quick else [1_000, 10_000, 100_000, 1_000_000]
    found = []
    for repos in sizes:
        name = SHARED if repos == 1_000_000 else f"coordinator-{repos}"
        folder = context.shared.made(name, prepared(repos, workers))
        world = World(folder, repos, workers, heartbeat_s)
        found.append(_starts(world, context.repeats(2) if repos == sizes[-1] else 1))
    _with_crowd(
        world, found[-1], context.repeats(3), 1.0 if context.quick else WATCHED_S, context.size(COMMANDS, 10)
    )
    pki = world.coordinator.data / "pki"
    return [
        *_lines(found[-1], found[0], workers),
        *_compared(found[-1], found[0], workers, pki),
        *_curves(found),
    ]


BENCH = Bench(
    name="coordinator",
    measures="the coordinator's process with a million repos and a thousand workers",
    alternative="the figures that are promised, dictionaries, bare gRPC, and smaller catalogs",
    run=_run,
    order=45,
    takes_s=160,
)
