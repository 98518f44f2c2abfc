"""A process that keeps ten thousand repos: how soon it polls after its start, what it holds at rest."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Bench, Context, Line, Sense
from bench.population import STAND_IN, Population, make_due, make_population
from bench.product import Product, new_loop
from bench.server import GitServer
from tests.support.ports import free_port

WAIT_S = 300


class Up:
    """``evermirror up`` as a person starts it."""

    def __init__(self, server: GitServer, data: Path, catalog: Path) -> None:
        settings = {
            "UPSTREAMS__ALLOW": json.dumps(["127.0.0.1"]),
            "UPSTREAMS__CA_FILE": str(server.ca_file),
            "LIMITS__HOST_RATE": "1000",  # all are on one host here
            "SCHEDULE__MIN_GAP": "1h",  # one round, then rest
            "LOG__LEVEL": "warning",
        }
        env = {**os.environ, **{f"EVERMIRROR_{k}": v for k, v in settings.items()}}
        flags = ["--data", str(data), "--catalog", str(catalog), "--listen", f"127.0.0.1:{free_port()}"]
        self.started_at = time.monotonic()
        command = [sys.executable, "-m", "evermirror", "up", *flags]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1000

    def wait_until(self, there: Callable[[], bool], every_s: float) -> float:
        """Seconds from the start until ``there``."""
        while not there():
            if self.process.poll() is not None:
                raise AssertionError(f"evermirror up ended with {self.process.returncode}")
            if time.monotonic() - self.started_at > WAIT_S:
                raise AssertionError("evermirror up did not poll in time")
            time.sleep(every_s)
        return time.monotonic() - self.started_at

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


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
    up = Up(server, data, catalog)
    try:
        first_s = up.wait_until(lambda: server.requests() > before, 0.05)
        up.wait_until(lambda: server.requests() >= before + n, 0.5)
        time.sleep(rest_s)
        return first_s, up.rss_mb()
    finally:
        up.stop()


def _run(context: Context) -> list[Line]:
    n, rest_s = context.size(10_000, 50), context.size(10, 1)
    with GitServer(context.folder / "up", stand_in=STAND_IN) as server:
        data, catalog = _prepare(context, server, n)
        first_s, first_mb = _start(server, data, catalog, n, rest_s)
        asyncio.run(make_due(data / "worker.db"))
        again_s, again_mb = _start(server, data, catalog, n, rest_s)
    return [
        Line(
            f"first start with {n:,} repos, to the first poll", "s", (first_s,), sense=Sense.AT_MOST, goal=5
        ),
        Line(f"restart with {n:,} repos, to the first poll", "s", (again_s,), sense=Sense.AT_MOST, goal=5),
        Line(f"RSS with {n:,} repos, at rest", "MB", (first_mb, again_mb), sense=Sense.AT_MOST, goal=250),
    ]


BENCH = Bench(
    name="idle",
    measures="evermirror up with ten thousand mirrors on disk: start to first poll, memory at rest",
    alternative="nothing: limits of their own",
    run=_run,
    order=70,
)
