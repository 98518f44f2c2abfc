"""One order about many repos at a real coordinator: another priority for all, and the workers told."""

from __future__ import annotations

import statistics
import time

from bench.figures.dashboard import World
from bench.measure import Bench, Context, Line, Sense
from bench.worlds.crowd import crowd, more_files

REPOS = 10_000
SINGLE = 200  # changed by a request each
WORKERS = 10
LOOK_S = 0.05
END_S = 120.0  # the longest that an order may take


def _ordered(world: World, priority: str) -> None:
    """Until it is done, for all."""
    wish = {"action": "priority", "priority": priority, "filter": {}, "expected": world.repos}
    order = world.client.post("/api/bulk", json=wish).raise_for_status().json()
    end = time.monotonic() + END_S
    while order["status"] == "running":
        if time.monotonic() > end:
            raise AssertionError(f"the order did not end: {order}")
        time.sleep(LOOK_S)
        order = world.client.get(f"/api/bulk/{order['id']}").raise_for_status().json()
    if (order["status"], order["done"], order["failed"]) != ("done", world.repos, 0):
        raise AssertionError(f"not all was done: {order}")


def _one_by_one(world: World, urls: list[str], priority: str) -> None:
    for url in urls:
        said = {"git_url": url, "additional_info": {"priority": priority}}
        world.client.post("/api/git_urls", json=said).raise_for_status()


def _run(context: Context) -> list[Line]:
    more_files()
    repos, single = context.size(REPOS, 300), context.size(SINGLE, 20)
    world = World(context, repos, WORKERS)
    ours, theirs, wall = [], [], []
    with world.coordinator.running(), crowd(world.coordinator, WORKERS):
        world.rest()
        page = world.client.get("/api/git_urls", params={"limit": single}).raise_for_status().json()
        urls = [item["git_url"] for item in page["items"]]
        before_mb = world.coordinator.rss_mb()
        for turn in range(context.repeats(3)):
            cpu_s, began = world.coordinator.cpu_s(), time.monotonic()
            _ordered(world, ("low", "high")[turn % 2])
            wall.append((time.monotonic() - began) / repos * 1e6)
            ours.append((world.coordinator.cpu_s() - cpu_s) / repos * 1e6)
            cpu_s = world.coordinator.cpu_s()
            _one_by_one(world, urls, ("critical", "normal")[turn % 2])
            theirs.append((world.coordinator.cpu_s() - cpu_s) / len(urls) * 1e6)
        grown_mb = world.coordinator.rss_mb() - before_mb
    what = "a repo's priority, of an order about all"
    return [
        Line(what, "µs CPU", tuple(ours), tuple(theirs), goal=10.0, against="a request for each repo"),
        Line(what, "µs wall", tuple(wall), sense=Sense.AT_MOST),
        Line(
            f"a million at this pace, on {WORKERS} workers",
            "s CPU",
            (statistics.median(ours),),
            sense=Sense.AT_MOST,
            goal=200.0,
        ),
        Line("memory that the orders left", "MB", (grown_mb,), sense=Sense.AT_MOST, goal=50.0),
    ]


BENCH = Bench(
    name="bulk",
    measures=f"another priority for {REPOS:,} repos by one order, the coordinator's whole process",
    alternative="a request for each repo",
    run=_run,
    order=55,
    takes_s=22,
)
