"""One round over many repos of which a few changed: the worker against a loop of ``git remote update``."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from bench.measure import Bench, Context, Cost, Line, Stopwatch
from bench.population import STAND_IN, Population, make_clones, make_due, make_population
from bench.product import Product, new_loop, worker_on
from bench.server import GitServer
from evermirror.core.schedule.settings import CONNECTIONS_KEPT_FOR_POLLS, ScheduleSettings
from evermirror.model.messages import AssignRepos, Failed, Synced
from tests.support.gitrepo import read_refs

AT_ONCE = 8
CHANGED = 0.05
TIMEOUT_S = 600


async def _one_round(product: Product, population: Population, changed: int) -> None:
    """From a cold start of the worker until every repo was looked at and every change is here."""
    settings = ScheduleSettings(
        slots=AT_ONCE,
        min_gap_s=3600,  # each repo is looked at once
        host_rate=None,
        host_connections=AT_ONCE + CONNECTIONS_KEPT_FOR_POLLS,
        polls_in_flight=AT_ONCE,
    )
    async with worker_on(product, settings, population.local_file) as (worker, link):
        await link.command(AssignRepos(population.specs))
        synced = 0
        async with asyncio.timeout(TIMEOUT_S):
            while synced < changed or worker.status().polls_total < len(population.specs):
                report = await link.next_report()
                if isinstance(report, Failed):
                    raise AssertionError(f"{report.key}: {report.failure.message}")
                synced += isinstance(report, Synced)


def _update_loop(clones: list[Path], env: dict[str, str]) -> None:
    names = "\0".join(map(str, clones)) + "\0"
    command = ["xargs", "-0", "-P", str(AT_ONCE), "-I{}", "git", "-C", "{}", "remote", "update"]
    quiet = subprocess.DEVNULL
    subprocess.run(command, input=names.encode(), env=env, stdout=quiet, stderr=quiet, check=True)


def _run(context: Context) -> list[Line]:
    n = context.size(2_000, 40)
    changed = max(1, round(n * CHANGED))
    ours: list[Cost] = []
    theirs: list[Cost] = []
    with (
        GitServer(context.folder / "up", stand_in=STAND_IN) as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        product = Product.wire(server, context.folder / "data")
        population = runner.run(make_population(server, product, n, context.folder / "local.sqlite"))
        env = server.git_env(context.folder)
        clones = make_clones(population, context.folder / "clones", env)
        for i in range(context.repeats(1)):
            runner.run(make_due(population.local_file))
            moved = {k: population.push(k) for k in range(1 + i * changed, 1 + (i + 1) * changed)}
            with Stopwatch() as watch:
                runner.run(_one_round(product, population, changed))
            ours.append(watch.cost)
            with Stopwatch() as watch:
                _update_loop(clones, env)
            theirs.append(watch.cost)
            for k, upstream in moved.items():
                mirror = product.mirrors.path(population.specs[k].key)
                assert read_refs(mirror) == read_refs(clones[k]) == upstream.refs()
        runner.run(product.close())
    what = f"{n:,} repos, {changed:,} changed"
    return [
        Line(what, "s CPU", tuple(c.cpu_s for c in ours), tuple(c.cpu_s for c in theirs), goal=10),
        Line(what, "s wall", tuple(c.wall_s for c in ours), tuple(c.wall_s for c in theirs)),
    ]


BENCH = Bench(
    name="round",
    measures=f"a worker's round from a cold start, {CHANGED:.0%} of the repos changed (TLS)",
    alternative=f"git remote update in each, xargs -P {AT_ONCE}",
    run=_run,
    order=60,
)
