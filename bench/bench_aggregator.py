"""The aggregator in a fleet of real processes: from a push to clonable there, and catching up after a pause.

Coordinator, worker, aggregator and upstream are processes of one machine. A push is told by a task, as a
webhook's receiver does; it is clonable when a client's listing shows it. Catching up begins with the
aggregator's start, for what changed while it was stopped; against it stands a shell loop of ``git fetch``
at the same concurrency, straight from upstream into clones that have as much, refs alone unverified.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from bench.measure import Bench, Context, Line, Sense
from tests.support.aggregator_processes import AggregatedFleet
from tests.support.gitrepo import clean_git_env
from tests.support.upstream import UpstreamServer

REPOS = 1_000
PUSHES = 20
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
        tip = self.repos[key].bulk_commits(PUSHED)
        began = time.perf_counter()
        self.ask_sync(key)
        while self.listed(self.agg.client, key) != tip:
            time.sleep(LOOK_S)
        return time.perf_counter() - began

    def change_all(self) -> None:
        """While the aggregator is away, every repo is pushed to and mirrored by the worker."""
        for repo in self.repos.values():
            repo.bulk_commits(PUSHED)
        for key in self.repos:
            self.ask_sync(key)
        self.until(lambda: self.get("/api/fleet")["workers"][0]["running_syncs"] == 0, within_s=900)
        for key, repo in self.repos.items():
            self.until(lambda key=key, repo=repo: self.tip_at("worker", key) == repo.tip(), within_s=300)

    def catch_up_s(self) -> float:
        """From the moment that it answers until everything is fetched."""
        self.agg.start("aggregator")
        self.until(lambda: self.readiness() != "")
        began = time.perf_counter()
        while self.attempts()["done"] < len(self.repos):
            time.sleep(CAUGHT_UP_LOOK_S)
        return time.perf_counter() - began


def make_clones(fleet: Fleet, folder: Path) -> list[Path]:
    folder.mkdir()
    clones = []
    for n, repo in enumerate(fleet.repos.values()):
        clone = folder / f"{n}.git"
        done = ["git", "clone", "--quiet", "--mirror", repo.url, str(clone)]
        subprocess.run(done, env=clean_git_env(folder), check=True)
        clones.append(clone)
    return clones


def fetch_all_s(folder: Path) -> float:
    """As a crontab's author writes it."""
    loop = f"ls -d {folder}/*.git | xargs -P {FETCHES} -I{{}} git -C {{}} fetch --quiet --prune"
    began = time.perf_counter()
    subprocess.run(["sh", "-c", loop], env=clean_git_env(folder), check=True)
    return time.perf_counter() - began


@contextlib.contextmanager
def populated(folder: Path, repos: int) -> Iterator[Fleet]:
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(Fleet(folder / "fleet", server, SETTINGS, OWN)) as fleet,
    ):
        fleet.populate(repos)
        yield fleet


def _run(context: Context) -> list[Line]:
    repos = context.size(REPOS, 50)
    with populated(context.folder, repos) as fleet:
        keys = sorted(fleet.repos)
        pushes = tuple(fleet.push_s(keys[n % len(keys)]) for n in range(context.size(PUSHES, 10)))
        make_clones(fleet, context.folder / "clones")
        ours, theirs = [], []
        for _ in range(context.repeats(2)):
            fleet.agg.stop()
            fleet.change_all()
            theirs.append(fetch_all_s(context.folder / "clones"))
            ours.append(fleet.catch_up_s())
    return [
        Line(
            "push → task → clonable at the aggregator",
            "s",
            ours=pushes,
            sense=Sense.AT_MOST,
            goal=GOAL_PUSH_S,
        ),
        Line(
            f"catching up with {repos} changed repos",
            "s",
            ours=tuple(ours),
            theirs=tuple(theirs),
            sense=Sense.TIMES_AS_MUCH,
            goal=GOAL_CATCH_UP,
        ),
    ]


BENCH = Bench(
    name="aggregator",
    measures="from a push to clonable at the aggregator, and catching up with what changed while it was away",
    alternative=f"a shell loop of `git fetch`, {FETCHES} at a time",
    run=_run,
    order=85,
)
