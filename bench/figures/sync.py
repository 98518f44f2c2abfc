"""A repo that changed, from the poll that sees it to verified refs, against a bare ``git fetch``.

Two ways are measured: the short one, for small changes, and the one over git, which all others take.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch
from bench.worlds.product import Product, new_loop, spec_of
from bench.worlds.server import GitServer
from evermirror.edge.git.probe import Seen
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoSpec
from tests.support.gitrepo import UpstreamRepo, read_refs

HISTORY = 2_000  # commits before the first push: a repo of ordinary age
PUSHED = 5  # commits in each push
PUSH_GAP_S = 600  # what is pushed is younger than what was there
LONG_AGO_S = 7 * 86_400


async def _sync(product: Product, spec: RepoSpec, short: bool) -> None:
    async def look() -> RefSnapshot:
        outcome = await product.prober.probe(spec, None)
        assert isinstance(outcome, Seen)
        return outcome.snapshot

    addresses = await product.resolver.resolve("127.0.0.1", int(spec.host.rpartition(":")[2]))
    ask = product.prober.asker(spec) if short else None
    await product.mirrors.sync(spec, addresses, await look(), look, ask=ask)


def _make_upstream(server: GitServer, at: float) -> UpstreamRepo:
    repo = server.create("team/repo", commits=0)
    repo.bulk_commits(HISTORY, when=at)
    for i in range(10):
        repo.tag(f"v{i}")
    return repo


def _fetch(bare: Path, env: dict[str, str]) -> None:
    subprocess.run(["git", "-C", str(bare), "fetch", "--quiet", "--prune"], env=env, check=True)


def _run(context: Context) -> list[Line]:
    pushes = context.size(20, 2) * context.repeats(2)
    began = time.time() - LONG_AGO_S
    with (
        GitServer(context.folder / "up") as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        repo, spec = _make_upstream(server, began), spec_of(server, "team/repo")
        env = server.git_env(context.folder)
        short, long = (Product.wire(server, context.folder / name) for name in ("short", "long"))
        bare = context.folder / "bare.git"
        for product in (short, long):
            runner.run(_sync(product, spec, short=False))
        subprocess.run(["git", "clone", "--quiet", "--mirror", spec.url, str(bare)], env=env, check=True)
        sides: dict[str, Callable[[], object]] = {
            "short": lambda: runner.run(_sync(short, spec, short=True)),
            "long": lambda: runner.run(_sync(long, spec, short=False)),
            "bare": lambda: _fetch(bare, env),
        }
        costs: dict[str, list[Cost]] = {name: [] for name in sides}
        for i in range(pushes):
            repo.bulk_commits(PUSHED, when=began + (i + 1) * PUSH_GAP_S)
            for name in list(sides)[i % 3 :] + list(sides)[: i % 3]:
                with Stopwatch() as watch:
                    sides[name]()
                costs[name].append(watch.cost)
            here = [read_refs(product.mirrors.path(spec.key)) for product in (short, long)]
            assert here == [repo.refs()] * 2
            assert read_refs(bare) == repo.refs()
        for product in (short, long):
            runner.run(product.close())
    ways = (("short", f"sync of {PUSHED} commits"), ("long", "the same over git, as larger changes come"))
    return [
        Line(
            what,
            f"ms {unit}",
            _ms(costs[way], unit),
            _ms(costs["bare"], unit),
            Sense.TIMES_AS_MUCH,
            1.3,
            promise="sync",
        )
        for way, what in ways
        for unit in ("CPU", "wall")
    ]


def _ms(costs: list[Cost], unit: str) -> tuple[float, ...]:
    return tuple((c.cpu_s if unit == "CPU" else c.wall_s) * 1000 for c in costs)


BENCH = Bench(
    name="sync",
    measures="a changed repo: poll, fetch, refs verified (TLS)",
    alternative="git fetch --prune in a clone --mirror of the same upstream",
    run=_run,
    order=30,
    takes_s=21,
)
