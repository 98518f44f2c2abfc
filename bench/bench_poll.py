"""One look at an unchanged upstream over TLS: the product's prober against ``git ls-remote``."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

from bench.measure import Bench, Context, Cost, Line, Stopwatch, alternate
from bench.product import Product, new_loop, spec_of
from bench.server import GitServer
from evermirror.edge.git.probe import Prober, Seen, Unchanged
from evermirror.model.repo import RepoKey, RepoSpec

REFS = 10
REPOS = 50  # on one host: their polls share its connections
AT_ONCE = 8  # the default of limits.host_connections


def _make_upstreams(server: GitServer) -> list[RepoSpec]:
    first = server.create("team/repo-0", commits=20)
    for i in range(REFS - 1):
        first.tag(f"v{i}")
    for i in range(1, REPOS):
        shutil.copytree(first.path, server.folder / f"team/repo-{i}.git")
    return [spec_of(server, f"team/repo-{i}") for i in range(REPOS)]


async def _poll_all(prober: Prober, specs: list[RepoSpec], marks: dict[RepoKey, bytes], n: int) -> None:
    todo = iter(range(n))

    async def look() -> None:
        for i in todo:
            spec = specs[i % len(specs)]
            outcome = await prober.probe(spec, marks[spec.key])
            if not isinstance(outcome, Unchanged):
                raise AssertionError(f"{spec.url} changed under the benchmark")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(look())


async def _first_look(prober: Prober, specs: list[RepoSpec]) -> dict[RepoKey, bytes]:
    marks = {}
    for spec in specs:
        outcome = await prober.probe(spec, None)
        assert isinstance(outcome, Seen)
        assert len(outcome.snapshot.refs) == REFS
        marks[spec.key] = outcome.mark
    return marks


def _run(context: Context) -> list[Line]:
    polls, looks = context.size(5_000, 200), context.size(30, 3)
    with (
        GitServer(context.folder / "up") as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        specs = _make_upstreams(server)
        product = Product.wire(server, context.folder / "data")
        prober = product.prober
        marks = runner.run(_first_look(prober, specs))
        env = server.git_env(context.folder)

        def ours() -> Cost:
            with Stopwatch() as watch:
                runner.run(_poll_all(prober, specs, marks, polls))
            return watch.cost.per(polls)

        def theirs() -> Cost:
            with Stopwatch() as watch:
                for i in range(looks):
                    command = ["git", "ls-remote", specs[i % REPOS].url]
                    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
            return watch.cost.per(looks)

        mine, gits = alternate(context.repeats(5), ours, theirs)
        opened = prober.stats.connections_opened
        runner.run(product.close())
    return [
        Line("unchanged poll, TLS", "ms CPU", _ms(mine), _ms(gits), goal=100),
        Line("connections opened for all polls", "", (float(opened),)),
    ]


def _ms(costs: list[Cost]) -> tuple[float, ...]:
    return tuple(c.cpu_s * 1000 for c in costs)


BENCH = Bench(
    name="poll",
    measures=f"client CPU of a poll that sees no change ({REFS} refs, TLS, kept alive)",
    alternative="git ls-remote with the same CA bundle file, same server",
    run=_run,
    order=10,
)
