"""The coordinator's whole process at a million repos: its start, its memory, a thousand workers, a commit.

Prepared once for each size: a catalog in git, which a first start reads and stores; then workers that hold
all of it. Measured are later starts, and what goes on after them. All figures are of the coordinator's
process, as the system tells them, in CPU with the git that it starts.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.bench_catalog import CHANGED, LINES, _file, _make
from bench.coordinator_process import CoordinatorProcess, Start, settle_workers
from bench.crowd import Crowd, Joined, crowd, more_files
from bench.measure import Bench, Context, Line, Sense
from evermirror.model.repo import RepoKey
from tests.support.gitrepo import UpstreamRepo

WORKERS = 1000
HEARTBEAT_S = 5.0
WATCHED_S = 30.0  # six heartbeats of everybody
COMMANDS = 100
FILE = 0  # which is changed
READ_S = 60.0  # the longest that a commit may take


@dataclass(slots=True)
class Figures:
    """Of one size."""

    repos: int
    first: Start
    starts: list[Start] = field(default_factory=list)
    late_commit_s: list[float] = field(default_factory=list)  # it came while the coordinator was away
    commit_s: list[float] = field(default_factory=list)
    joined: Joined | None = None
    crowd_mb: float = 0.0
    crowd_peak_mb: float = 0.0
    core_share: float = 0.0
    latency_ms: list[float] = field(default_factory=list)


class World:
    """One size: its catalog, and the coordinator that follows it."""

    def __init__(self, folder: Path, repos: int, workers: int, heartbeat_s: float) -> None:
        self.catalog: UpstreamRepo = _make(folder / "catalog.git", repos // LINES)
        self.coordinator = CoordinatorProcess(folder / "node", self.catalog.path, heartbeat_s)
        self.repos = repos
        self.workers = workers
        self._commits = 0

    def prepare(self) -> Start:
        """The first start, which reads and stores everything; and then workers that hold it."""
        with self.coordinator.running() as first:
            pass
        settle_workers(self.coordinator.database, self.workers)
        return first

    def commit(self) -> frozenset[RepoKey]:
        """A hundred lines are others; the repos that are new by that."""
        self._commits += 1
        mark = f"v{self._commits}-"
        text = _file(FILE, changed=mark)
        self.catalog.commit(files={f"{FILE // 100:02d}/{FILE:04d}.txt": text})
        urls = (line for line in text.splitlines() if f"/{mark}" in line)
        return frozenset(RepoKey(url.removeprefix("https://").removesuffix(".git")) for url in urls)

    def late_commit_s(self) -> float:
        """From fetched to stored, of a commit that a start finds."""
        self.commit()
        with self.coordinator.running():
            give_up = time.monotonic() + READ_S
            while not (found := self.coordinator.read_at()) and time.monotonic() < give_up:
                time.sleep(0.05)
            return found[0] - self.coordinator.fetched_at()

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


def _measure(world: World, starts: int, commits: int, watched_s: float, commands: int) -> Figures:
    coordinator = world.coordinator
    figures = Figures(world.repos, world.prepare())
    for _ in range(starts - 1):
        with coordinator.running() as start:
            figures.starts.append(start)
    figures.late_commit_s.append(world.late_commit_s())
    with coordinator.running() as start:
        figures.starts.append(start)
        with crowd(coordinator, world.workers) as (workers, joined):
            figures.joined = joined
            cpu_s, began = coordinator.cpu_s(), time.monotonic()
            time.sleep(watched_s)
            figures.core_share = (coordinator.cpu_s() - cpu_s) / (time.monotonic() - began)
            figures.crowd_mb, figures.crowd_peak_mb = coordinator.rss_mb(), coordinator.peak_mb()
            figures.latency_ms = workers.latencies_ms(world.some_keys(commands))
            for _ in range(commits):
                figures.commit_s.append(world.commit_s(workers))
    return figures


def _lines(f: Figures, workers: int) -> list[Line]:
    def at_most(what: str, unit: str, samples: list[float], goal: float | None = None) -> Line:
        return Line(what, unit, tuple(samples), sense=Sense.AT_MOST, goal=goal)

    assert f.joined is not None
    return [
        at_most(f"{f.repos:,} repos: a first start, which stores all", "s wall", [f.first.wall_s]),
        at_most("a start until it is ready", "s wall", [s.wall_s for s in f.starts], 5.0),
        at_most("the same", "s CPU", [s.cpu_s for s in f.starts]),
        at_most("RSS then, alone", "MB", [s.rss_mb for s in f.starts], 250.0),
        at_most("peak RSS until then", "MB", [s.peak_mb for s in f.starts]),
        at_most(f"{workers:,} workers join, until all is told", "s wall", [f.joined.took_s]),
        at_most("RSS with them", "MB", [f.crowd_mb], 350.0),
        at_most("peak RSS while they joined", "MB", [f.crowd_peak_mb]),
        at_most("CPU with them", "% of a core", [f.core_share * 100], 10.0),
        at_most(f"a commit of {CHANGED} lines, fetched to told", "s wall", f.commit_s, 1.0),
        at_most("one that a start finds, fetched to stored", "s wall", f.late_commit_s, 1.0),
        at_most("a sync asked for by HTTP, until its worker knows", "ms wall", f.latency_ms, 10.0),
    ]


def _curve(sizes: list[Figures]) -> list[Line]:
    """What each further repo costs, from size to size: flat where it does not grow."""
    smallest = sizes[0]
    lines = []
    for f in sizes:
        start, base = min(f.starts, key=lambda s: s.cpu_s), min(smallest.starts, key=lambda s: s.cpu_s)
        name = f"curve, {f.repos:,} repos"
        lines += [
            Line(f"{name}: start", "s CPU", tuple(s.cpu_s for s in f.starts), sense=Sense.AT_MOST),
            Line(f"{name}: RSS", "MB", tuple(s.rss_mb for s in f.starts), sense=Sense.AT_MOST),
            Line(f"{name}: commit", "s wall", tuple(f.commit_s), sense=Sense.AT_MOST),
        ]
        more = f.repos - smallest.repos
        if more:
            us, byte = ((a - b) / more * 1e6 for a, b in zip(_costs(start), _costs(base), strict=True))
            lines += [
                Line(f"{name}: a repo's start", "µs CPU", (us,), sense=Sense.AT_MOST),
                Line(f"{name}: a repo's memory", "bytes", (byte,), sense=Sense.AT_MOST),
            ]
    return lines


def _costs(start: Start) -> tuple[float, float]:
    return start.cpu_s, start.rss_mb


def _run(context: Context) -> list[Line]:
    more_files()
    heartbeat_s = 0.5 if context.quick else HEARTBEAT_S
    workers = context.size(WORKERS, 50)
    sizes = [1_000, 2_000] if context.quick else [1_000, 10_000, 100_000, 1_000_000]
    found = []
    for repos in sizes:
        largest = repos == sizes[-1]
        present = workers if largest else min(workers, 100)
        world = World(context.folder / str(repos), repos, present, heartbeat_s)
        repeats = context.repeats(3) if largest else 1
        watched_s = (2.0 if context.quick else WATCHED_S) if largest else 0.1
        found.append(_measure(world, repeats, repeats, watched_s, context.size(COMMANDS, 10)))
    return [*_lines(found[-1], workers), *_curve(found)]


BENCH = Bench(
    name="coordinator",
    measures="the coordinator's process with a million repos and a thousand workers",
    alternative="the figures that are promised, and smaller catalogs",
    run=_run,
    order=45,
)
