"""One round over many repos of which a few changed: the worker against loops of ``git remote update``, and
against grokmirror, whose upstream tells it in a file which ones did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.alternatives.grok_pull import GrokPull
from bench.alternatives.loops import shell_loop, xargs_loop
from bench.measure import Bench, Context, Cost, Line, Stopwatch
from bench.worlds.population import STAND_IN, Population, make_clones, make_due, make_population
from bench.worlds.product import Product, new_loop, worker_on
from bench.worlds.server import GitServer
from evermirror.core.schedule.settings import CONNECTIONS_KEPT_FOR_POLLS, ScheduleSettings
from evermirror.model.messages import AssignRepos, Failed, Synced
from tests.support.gitrepo import UpstreamRepo, read_refs

AT_ONCE = 8
CHANGED = 0.05
SHELL_PART, XARGS_PART = 25, 10  # one in so many is done, changed ones in proportion, and scaled
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


@dataclass(frozen=True, slots=True)
class Sample:
    """The repos that a loop goes over, and how many there are of each in all."""

    chosen: tuple[int, ...]
    times: float

    @classmethod
    def of(cls, n: int, moved: Sequence[int], quiet: Sequence[int], part: int) -> Sample:
        few = moved[: max(1, len(moved) // part)]
        some = quiet[: len(few) * (n - len(moved)) // len(moved)]
        return cls((*few, *some), n / (len(few) + len(some)))


class Loops:
    """Clones of the sampled repos. Both loops come to a repo that has just changed: they do not share any."""

    def __init__(self, n: int, rounds: int, changed: int) -> None:
        quiet = range(1 + rounds * changed, n)
        self._moved = [range(1 + i * changed, 1 + (i + 1) * changed) for i in range(rounds)]
        self.shell = [Sample.of(n, m, quiet, SHELL_PART) for m in self._moved]
        self.xargs = [Sample.of(n, m[::-1], quiet, XARGS_PART) for m in self._moved]

    @property
    def chosen(self) -> list[int]:
        return sorted({k for sample in (*self.shell, *self.xargs) for k in sample.chosen})

    def moved(self, i: int) -> range:
        return self._moved[i]


def _timed(work: Callable[[], object], times: float = 1.0) -> Cost:
    with Stopwatch() as watch:
        work()
    return Cost(watch.cost.cpu_s * times, watch.cost.wall_s * times)


def _run(context: Context) -> list[Line]:
    n, rounds = context.size(2_000, 40), context.repeats(2)
    changed = max(1, round(n * CHANGED))
    sides: dict[str, list[Cost]] = {}
    with (
        GitServer(context.folder / "up", stand_in=STAND_IN) as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        product = Product.wire(server, context.folder / "data")
        population = runner.run(make_population(server, product, n, context.folder / "local.sqlite"))
        env = server.git_env(context.folder)
        loops = Loops(n, rounds, changed)
        clones = make_clones(population, context.folder / "clones", env, loops.chosen)
        names = [f"team/repo-{k}" for k in range(n)]
        site = server.url("x").removesuffix("/x.git")
        grok = GrokPull(context.folder / "grok", server.folder, site, names, env, AT_ONCE)
        for i in range(rounds):
            runner.run(make_due(population.local_file))
            moved = {k: population.push(k) for k in loops.moved(i)}
            told = grok.bearable([names[k] for k in moved])
            grok.tell(told)
            shell, xargs = loops.shell[i], loops.xargs[i]
            in_turn = {
                "ours": _timed(partial(runner.run, _one_round(product, population, changed))),
                "shell": _timed(partial(shell_loop, [clones[k] for k in shell.chosen], env), shell.times),
                "xargs": _timed(
                    partial(xargs_loop, [clones[k] for k in xargs.chosen], env, AT_ONCE), xargs.times
                ),
                "grok": _timed(grok.run),
            }
            for side, cost in in_turn.items():
                sides.setdefault(side, []).append(cost)
            mirrors = {k: product.mirrors.path(population.specs[k].key) for k in moved}
            _check(moved, mirrors, {k: grok.path(names[k]) for k in moved if names[k] in told}, clones)
        runner.run(product.close())
    return _lines(f"{n:,} repos, {changed:,} changed", sides)


def _check(moved: dict[int, UpstreamRepo], *sides: dict[int, Path]) -> None:
    """Everybody has what was pushed; clones that no loop went over are left out."""
    for k, upstream in moved.items():
        for paths in sides:
            assert k not in paths or read_refs(paths[k]) == upstream.refs()


def _lines(what: str, sides: dict[str, list[Cost]]) -> list[Line]:
    against = {
        "shell": (f"shell loop of git remote update (1 in {SHELL_PART}, scaled)", "round round-next", 20),
        "xargs": (
            f"git remote update, xargs -P {AT_ONCE} (1 in {XARGS_PART}, scaled)",
            "round round-next",
            20,
        ),
        "grok": ("grok-pull, its manifest kept by upstream", "round-grok", 1),
    }
    lines = []
    for side, (name, promise, goal) in against.items():
        ours, theirs = sides["ours"], sides[side]
        cpu = tuple(c.cpu_s for c in ours), tuple(c.cpu_s for c in theirs)
        lines.append(Line(what, "s CPU", *cpu, goal=goal, against=name, promise=promise))
        wall = tuple(c.wall_s for c in ours), tuple(c.wall_s for c in theirs)
        lines.append(Line(what, "s wall", *wall, against=name))
    return lines


BENCH = Bench(
    name="round",
    measures=f"a worker's round from a cold start, {CHANGED:.0%} of the repos changed (TLS)",
    alternative=f"git remote update in each (a loop; xargs -P {AT_ONCE}), and grok-pull",
    run=_run,
    order=60,
    takes_s=97,
)
