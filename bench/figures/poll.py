"""A look at an unchanged upstream over TLS: the whole engine, and its prober, against other clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.alternatives.dulwich_polls import DulwichPolls
from bench.alternatives.ls_remote import CA_BUNDLE, ONE_AUTHORITY, Look, looks
from bench.alternatives.pygit2_polls import Pygit2Polls
from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch
from bench.worlds.population import STAND_IN, TAGS, Population, make_population
from bench.worlds.processes import ProcessCount
from bench.worlds.product import Product, new_loop, worker_on
from bench.worlds.server import GitServer
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.edge.git.probe import Prober, Seen, Unchanged
from evermirror.model.messages import AssignRepos, Failed, Synced
from evermirror.model.repo import RepoKey

REPOS = 200  # on one host: their polls share its connections
AT_ONCE = 8  # the default of limits.host_connections
REFS = TAGS + 1
GROWN_MB_MAX = 2.0  # over all polls after the first round: a hundred bytes each would be more
MILLION_AN_HOUR = 1e6 / 3600  # polls a second


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
        assert len(outcome.snapshot.refs) == REFS
        marks[spec.key] = outcome.mark
    return marks


class Clients:
    """The others, each with as many looks in a round as take about half a second."""

    def __init__(self, server: GitServer, folder: Path, quick: bool) -> None:
        assert server.ca_file is not None
        own = looks(server.ca_file, server.git_env(folder), folder)
        self._dulwich = DulwichPolls(server.url("x").removesuffix("/x.git"), server.ca_file)
        pygit2 = Pygit2Polls(folder / "pygit2.git", server.ca_file)
        self._looks: dict[str, tuple[Look, int]] = {
            **{name: (look, 3 if quick else 12) for name, look in own.items()},
            "dulwich": (self._dulwich.look, 10 if quick else 200),
            "pygit2": (pygit2.look, 10 if quick else 200),
        }
        self.costs: dict[str, list[Cost]] = {name: [] for name in self._looks}

    def run(self, urls: list[str]) -> None:
        for name, (look, times) in self._looks.items():
            with Stopwatch() as watch:
                for i in range(times):
                    assert look(urls[i % len(urls)]) == REFS
            self.costs[name].append(watch.cost.per(times))

    def close(self) -> None:
        self._dulwich.close()


def _run(context: Context) -> list[Line]:
    polls = context.size(8_000, 400)
    engine: list[Cost] = []
    prober: list[Cost] = []
    grown_mb: list[float] = []
    processes, started = ProcessCount(), 0
    with (
        GitServer(context.folder / "up", stand_in=STAND_IN) as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        product = Product.wire(server, context.folder / "data")
        population = runner.run(make_population(server, product, REPOS, context.folder / "local.db"))
        marks = runner.run(_marks(product.prober, population))
        clients = Clients(server, context.folder, context.quick)
        urls = [spec.url for spec in population.specs]
        for _ in range(context.repeats(4)):
            before, processes_before, mb = product.prober.stats.polls, processes.total, _resident_mb()
            with Stopwatch() as watch:
                runner.run(_work(product, population, polls))
            engine.append(watch.cost.per(product.prober.stats.polls - before))
            with Stopwatch() as watch:
                runner.run(_poll(product.prober, population, marks, polls))
            prober.append(watch.cost.per(polls))
            grown_mb.append(_resident_mb() - mb)
            started += processes.total - processes_before
            clients.run(urls)
        opened = product.prober.stats.connections_opened
        clients.close()
        runner.run(product.close())
    return [
        *_compared("unchanged poll, end to end", engine, prober, clients.costs),
        Line(
            "unchanged poll, prober alone",
            "ms CPU",
            _ms(prober),
            _ms(clients.costs[_reference(clients.costs)]),
            against=_reference(clients.costs),
        ),
        Line(
            "a million polls an hour",
            "% of a core",
            tuple(c.cpu_s * MILLION_AN_HOUR * 100 for c in engine),
            sense=Sense.AT_MOST,
            goal=10,
            promise="poll-million",
        ),
        Line(
            f"grown over {2 * polls * len(grown_mb[1:]):,} polls",
            "MB",
            (sum(grown_mb[1:]),),  # the first round fills what is kept
            sense=Sense.AT_MOST,
            goal=GROWN_MB_MAX,
            promise="poll-memory",
        ),
        Line(
            "started for all polls",
            "processes",
            (float(started),),
            sense=Sense.AT_MOST,
            goal=0,
            promise="poll-process",
        ),
        Line("connections opened for all polls", "", (float(opened),)),
    ]


def _compared(what: str, ours: list[Cost], prober: list[Cost], others: dict[str, list[Cost]]) -> list[Line]:
    """CPU against each; and the time that one look takes, where ours has eight under way at a time."""
    lines = []
    for name, theirs in others.items():
        judged = name == _reference(others)
        promise = "poll poll-next" if judged else "poll-clients"
        goal = 300 if judged else None
        line = Line(what, "ms CPU", _ms(ours), _ms(theirs), goal=goal, against=name, promise=promise)
        lines.append(replace(line, limit=_limit(line, prober)) if judged else line)
    for name, theirs in others.items():
        wall = tuple(c.wall_s * 1000 for c in ours), tuple(c.wall_s * 1000 for c in theirs)
        lines.append(Line(what, "ms wall", *wall, against=name, promise="poll-clients"))
    return lines


def _limit(line: Line, prober: list[Cost]) -> str:
    """What stands between the figure and its goal, where it is missed."""
    if line.met or line.theirs_median is None or line.goal is None:
        return ""
    own = median(_ms(prober))
    return (
        f"{line.goal:g} times less than {line.theirs_median:.1f} ms is"
        f" {line.theirs_median / line.goal * 1000:.0f} µs. One exchange over asyncio and TLS takes our prober"
        f" {own * 1000:.0f}, and the engine around it (queue, limits, a task, bookkeeping, reports)"
        f" {(line.ours_median - own) * 1000:.0f}"
    )


def _reference(clients: Collection[str]) -> str:
    """Whom the promise is about: git with the usual authorities in one file, where there are such."""
    return CA_BUNDLE if CA_BUNDLE in clients else ONE_AUTHORITY


def _ms(costs: list[Cost]) -> tuple[float, ...]:
    return tuple(c.cpu_s * 1000 for c in costs)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


BENCH = Bench(
    name="poll",
    measures=f"client CPU of a poll that sees no change ({REFS} refs, TLS, kept alive)",
    alternative="git ls-remote with one authority, with Debian's in one file, in a folder; dulwich; pygit2",
    run=_run,
    order=10,
    takes_s=21,
)
