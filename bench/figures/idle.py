"""A process that keeps ten thousand repos: how soon it polls after its start, what it holds at rest."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.measure import Bench, Context, Line, Sense
from bench.worlds.population import STAND_IN, Population, make_due, make_population
from bench.worlds.product import Product, new_loop
from bench.worlds.server import GitServer
from bench.worlds.up import Up

SETTINGS = {
    "LIMITS__HOST_RATE": "10000",  # all are on one host here
    "SCHEDULE__MIN_GAP": "1h",  # one round, then rest
}


def _prepare(context: Context, server: GitServer, n: int) -> tuple[Path, Path]:
    data = context.folder / "data"

    async def make() -> Population:
        product = Product.wire(server, data)
        population = await make_population(server, product, n, data / "worker.db")
        await product.close()
        return population

    with asyncio.Runner(loop_factory=new_loop) as runner:
        population = runner.run(make())
    catalog = context.folder / "urls.txt"
    catalog.write_text("".join(f"{s.url}\n" for s in population.specs), "utf-8")
    return data, catalog


def _start(server: GitServer, data: Path, catalog: Path, n: int, rest_s: int) -> tuple[float, float]:
    """Seconds to the first poll; MB once all were polled and the process rests."""
    before = server.requests()
    up = Up(server, data, catalog, SETTINGS)
    try:
        first_s = up.wait_until(lambda: server.requests() > before, 0.05)
        up.wait_until(lambda: server.requests() >= before + n, 0.5)
        time.sleep(rest_s)
        return first_s, up.rss_mb()
    finally:
        up.stop()


def _run(context: Context) -> list[Line]:
    n, rest_s = context.size(10_000, 10), context.size(4, 1)
    with GitServer(context.folder / "up", stand_in=STAND_IN) as server:
        data, catalog = _prepare(context, server, n)
        first_s, first_mb = _start(server, data, catalog, n, rest_s)
        asyncio.run(make_due(data / "worker.db"))
        again_s, again_mb = _start(server, data, catalog, n, rest_s)
    return [
        Line(
            f"first start with {n:,} repos, to the first poll",
            "s wall",
            (first_s,),
            sense=Sense.AT_MOST,
            goal=5,
            promise="idle-start",
        ),
        Line(
            f"restart with {n:,} repos, to the first poll",
            "s wall",
            (again_s,),
            sense=Sense.AT_MOST,
            goal=5,
            promise="idle-start",
        ),
        Line(
            f"RSS with {n:,} repos, at rest",
            "MB",
            (first_mb, again_mb),
            sense=Sense.AT_MOST,
            goal=250,
            promise="idle-memory",
        ),
    ]


BENCH = Bench(
    name="idle",
    measures="evermirror up with ten thousand mirrors on disk: start to first poll, memory at rest",
    alternative="nothing: limits of their own",
    run=_run,
    order=70,
    takes_s=39,
)
