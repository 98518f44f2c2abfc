"""A look at an unchanged upstream over TLS: the whole engine, and its prober, against ``git ls-remote``."""

from __future__ import annotations

import asyncio
import subprocess

from bench.measure import Bench, Context, Cost, Line, Stopwatch
from bench.population import STAND_IN, TAGS, Population, make_population
from bench.product import Product, new_loop, worker_on
from bench.server import GitServer
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.edge.git.probe import Prober, Seen, Unchanged
from evermirror.model.messages import AssignRepos, Failed, Synced
from evermirror.model.repo import RepoKey

REPOS = 200  # on one host: their polls share its connections
AT_ONCE = 8  # the default of limits.host_connections


async def _work(product: Product, population: Population, polls: int) -> None:
    """A worker from its start until so many polls are done: queue, limits, memory and reports included."""
    settings = ScheduleSettings(
        min_gap_s=0, host_rate=None, host_connections=AT_ONCE, polls_in_flight=AT_ONCE
    )
    async with worker_on(product, settings, population.local_file) as (worker, port):
        await port.command(AssignRepos(population.specs))
        while worker.status().polls_total < polls:
            report = await port.next_report()
            if isinstance(report, Failed | Synced):
                raise AssertionError(f"{report.key} changed or failed under the benchmark")


async def _poll(prober: Prober, population: Population, marks: dict[RepoKey, bytes], polls: int) -> None:
    todo = iter(range(polls))

    async def look() -> None:
        for i in todo:
            spec = population.specs[i % REPOS]
            outcome = await prober.probe(spec, marks[spec.key])
            if not isinstance(outcome, Unchanged):
                raise AssertionError(f"{spec.url} changed under the benchmark")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(look())


async def _marks(prober: Prober, population: Population) -> dict[RepoKey, bytes]:
    marks = {}
    for spec in population.specs:
        outcome = await prober.probe(spec, None)
        assert isinstance(outcome, Seen)
        assert len(outcome.snapshot.refs) == TAGS + 1
        marks[spec.key] = outcome.mark
    return marks


def _run(context: Context) -> list[Line]:
    polls, looks = context.size(10_000, 400), context.size(30, 3)
    engine: list[Cost] = []
    prober: list[Cost] = []
    git: list[Cost] = []
    with (
        GitServer(context.folder / "up", stand_in=STAND_IN) as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        product = Product.wire(server, context.folder / "data")
        population = runner.run(make_population(server, product, REPOS, context.folder / "local.db"))
        marks = runner.run(_marks(product.prober, population))
        env = server.git_env(context.folder)
        for _ in range(context.repeats(5)):
            before = product.prober.stats.polls
            with Stopwatch() as watch:
                runner.run(_work(product, population, polls))
            engine.append(watch.cost.per(product.prober.stats.polls - before))
            with Stopwatch() as watch:
                runner.run(_poll(product.prober, population, marks, polls))
            prober.append(watch.cost.per(polls))
            with Stopwatch() as watch:
                for i in range(looks):
                    command = ["git", "ls-remote", population.specs[i % REPOS].url]
                    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
            git.append(watch.cost.per(looks))
        opened = product.prober.stats.connections_opened
        runner.run(product.close())
    return [
        Line("unchanged poll, end to end", "ms CPU", _ms(engine), _ms(git), goal=100),
        Line("unchanged poll, prober alone", "ms CPU", _ms(prober), _ms(git)),
        Line("connections opened for all polls", "", (float(opened),)),
    ]


def _ms(costs: list[Cost]) -> tuple[float, ...]:
    return tuple(c.cpu_s * 1000 for c in costs)


BENCH = Bench(
    name="poll",
    measures=f"client CPU of a poll that sees no change ({TAGS + 1} refs, TLS, kept alive)",
    alternative="git ls-remote with the same CA bundle file, same server",
    run=_run,
    order=10,
)
