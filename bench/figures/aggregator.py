"""The aggregator in a fleet of real processes: from a push to clonable there, and catching up after a pause.

Coordinator, worker, aggregator and upstream are processes of one machine. A push is told by a task, as a
webhook's receiver does; it is clonable when a client's listing shows it. Catching up begins with the
aggregator's start, for what changed while it was stopped; against it stands a shell loop of ``git fetch``
at the same concurrency, straight from upstream into clones that have as much, refs alone unverified. CPU is
of both ends: of all our processes and their gits, and of the loop's with the server that it asks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch
from tests.support.aggregator_processes import AggregatedFleet
from tests.support.gitrepo import clean_git_env, read_ref
from tests.support.upstream import UpstreamServer

REPOS = 200  # of 8, 40 or 200 each costs the same
PUSHES = 15
TICKS = os.sysconf("SC_CLK_TCK")
FETCHES = 8  # at the same time, on both sides
PUSHED = 5  # commits in each push
GOAL_PUSH_S = 1.5
GOAL_CATCH_UP = 1.3
LOOK_S = 0.01
CAUGHT_UP_LOOK_S = 0.25  # each look costs it milliseconds that the shell's loop does not pay
SETTINGS = {
    "EVERMIRROR_SCHEDULE__MIN_GAP": "1h",
    "EVERMIRROR_SCHEDULE__MAX_GAP": "1d",
    "EVERMIRROR_LIMITS__HOST_RATE": "10000/s",
    "EVERMIRROR_FLEET__MIN_WORKERS": "1",
    "EVERMIRROR_MAINTENANCE__ENABLED": "false",
}
OWN = {
    "EVERMIRROR_AGGREGATOR__FETCHES": str(FETCHES),
    "EVERMIRROR_AGGREGATOR__FETCHES_PER_HOLDER": str(FETCHES),
}


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What it cost; ``gits_s`` of it the gits that our processes started."""

    cost: Cost
    gits_s: float


class Fleet(AggregatedFleet):
    """One worker, one aggregator, and many small upstreams that are copies of one."""

    def populate(self, repos: int) -> None:
        first = self.upstream.create("team/r0", commits=20)
        made = [first, *(self.upstream.copy(first, f"team/r{n}") for n in range(1, repos))]
        self.repos = {f"{self.upstream.host}/{repo.name}": repo for repo in made}
        self.write_catalog()
        self.prepare()
        self.lead()
        self.join("worker")
        self.aggregate()
        self.until(lambda: self.state()["repos"]["here"] == repos, within_s=900)

    def listed(self, client: httpx2.Client, key: str) -> str:
        """main, as protocol v0 lists it: one request."""
        answer = client.get(f"/git/{key}/info/refs?service=git-upload-pack", headers={"Git-Protocol": ""})
        line = next((x for x in answer.text.splitlines() if x.endswith(" refs/heads/main")), "")
        return line[4:].split(" ")[0]

    def push_s(self, key: str) -> float:
        """From the push to the listing that shows it."""
        tip = self.repos[key].bulk_commits(PUSHED, gap_s=0)
        began = time.perf_counter()
        self.ask_sync(key)
        while self.listed(self.agg.client, key) != tip:
            time.sleep(LOOK_S)
        return time.perf_counter() - began

    def change_all(self) -> None:
        """While the aggregator is away, every repo is pushed to and mirrored by the worker."""
        tips = {key: repo.bulk_commits(PUSHED, gap_s=0) for key, repo in self.repos.items()}
        for key in self.repos:
            self.ask_sync(key)
        for key, tip in tips.items():
            mirror = self.workers["worker"].mirror(key)
            self.until(lambda m=mirror, t=tip: read_ref(m, "refs/heads/main") == t, within_s=300)
        self.until(lambda: self.get("/api/fleet")["workers"][0]["running_syncs"] == 0, within_s=300)

    def catch_up(self) -> CaughtUp:
        """From the moment that it answers until everything is fetched."""
        self.agg.start("aggregator")
        self.until(lambda: self.readiness() != "")
        own, gits = self._cpu_s()
        began = time.perf_counter()
        while self.attempts()["done"] < len(self.repos):
            time.sleep(CAUGHT_UP_LOOK_S)
        wall_s = time.perf_counter() - began
        own_s, gits_s = (after - before for after, before in zip(self._cpu_s(), (own, gits), strict=True))
        return CaughtUp(Cost(own_s + gits_s, wall_s), gits_s)

    def _cpu_s(self) -> tuple[float, float]:
        """Of our processes so far, and of their gits that ended."""
        own = gits = 0
        for node in (self.coordinator, *self.workers.values(), self.agg):
            fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
            own += int(fields[11]) + int(fields[12])
            gits += int(fields[13]) + int(fields[14])
        return own / TICKS, gits / TICKS


def make_clones(fleet: Fleet, folder: Path) -> None:
    """One is cloned and the others are its copies, as their upstreams are copies of one."""
    folder.mkdir()
    first = folder / "first"
    subprocess.run(
        ["git", "clone", "--quiet", "--mirror", next(iter(fleet.repos.values())).url, str(first)],
        env=clean_git_env(folder),
        check=True,
    )
    known = (first / "config").read_text()
    for n, repo in enumerate(fleet.repos.values()):
        clone = shutil.copytree(first, folder / f"{n}.git")
        (clone / "config").write_text(known.replace(next(iter(fleet.repos.values())).url, repo.url))
    shutil.rmtree(first)


def fetch_all(folder: Path) -> Cost:
    """As a crontab's author writes it."""
    loop = f"ls -d {folder}/*.git | xargs -P {FETCHES} -I{{}} git -C {{}} fetch --quiet --prune"
    with Stopwatch() as watch:
        subprocess.run(["sh", "-c", loop], env=clean_git_env(folder), check=True)
    return watch.cost


@contextlib.contextmanager
def populated(folder: Path, repos: int) -> Iterator[Fleet]:
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(Fleet(folder / "fleet", server, SETTINGS, OWN)) as fleet,
    ):
        fleet.populate(repos)
        yield fleet


def _run(context: Context) -> list[Line]:
    repos = context.size(REPOS, 8)
    theirs: list[Cost] = []
    ours: list[CaughtUp] = []
    with populated(context.folder, repos) as fleet:
        keys = sorted(fleet.repos)
        make_clones(fleet, context.folder / "clones")
        pushes = tuple(fleet.push_s(keys[n % len(keys)]) for n in range(context.size(PUSHES, 3)))
        fetch_all(context.folder / "clones")
        for _ in range(context.repeats(3)):
            fleet.agg.stop()
            fleet.change_all()
            theirs.append(fetch_all(context.folder / "clones"))
            ours.append(fleet.catch_up())
    share = sum(each.gits_s for each in ours) / sum(each.cost.cpu_s for each in ours)
    limit = (
        f"{share:.0%} of the CPU is git's: upload-pack and pack-objects there, index-pack and rev-list here"
    )
    return [
        Line(
            "push → task → clonable at the aggregator",
            "s wall",
            ours=pushes,
            sense=Sense.AT_MOST,
            goal=GOAL_PUSH_S,
            promise="aggregator-push",
        ),
        *(
            Line(
                f"catching up with {repos} changed repos",
                f"s {unit}",
                ours=tuple(mine),
                theirs=tuple(others),
                sense=Sense.TIMES_AS_MUCH,
                goal=GOAL_CATCH_UP,
                promise="aggregator-catch-up",
                limit=limit,
            )
            for unit, mine, others in (
                ("wall", [each.cost.wall_s for each in ours], [each.wall_s for each in theirs]),
                ("CPU", [each.cost.cpu_s for each in ours], [each.cpu_s for each in theirs]),
            )
        ),
    ]


BENCH = Bench(
    name="aggregator",
    measures="from a push to clonable at the aggregator, and catching up with what changed while it was away",
    alternative=f"a shell loop of `git fetch`, {FETCHES} at a time",
    run=_run,
    order=85,
    takes_s=85,
)
