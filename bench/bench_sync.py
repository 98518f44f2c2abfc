"""A repo that changed, from the poll that sees it to verified refs, against a bare ``git fetch``."""

from __future__ import annotations

import asyncio
import subprocess

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch
from bench.product import Product, new_loop, spec_of
from bench.server import GitServer
from evermirror.edge.git.probe import Seen
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoSpec
from tests.support.gitrepo import UpstreamRepo, read_refs

HISTORY = 2_000  # commits before the first push: a repo of ordinary age
PUSHED = 5  # commits in each push


async def _sync(product: Product, spec: RepoSpec) -> None:
    async def look() -> RefSnapshot:
        outcome = await product.prober.probe(spec, None)
        assert isinstance(outcome, Seen)
        return outcome.snapshot

    addresses = await product.resolver.resolve("127.0.0.1", int(spec.host.rpartition(":")[2]))
    await product.mirrors.sync(spec, addresses, await look(), look)


def _make_upstream(server: GitServer) -> UpstreamRepo:
    repo = server.create("team/repo", commits=HISTORY)
    for i in range(10):
        repo.tag(f"v{i}")
    return repo


def _run(context: Context) -> list[Line]:
    pushes = context.size(20, 2)
    ours: list[Cost] = []
    theirs: list[Cost] = []
    with (
        GitServer(context.folder / "up") as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        repo, spec, env = _make_upstream(server), spec_of(server, "team/repo"), server.git_env(context.folder)
        product = Product.wire(server, context.folder / "data")
        bare = context.folder / "bare.git"
        runner.run(_sync(product, spec))
        subprocess.run(["git", "clone", "--quiet", "--mirror", spec.url, str(bare)], env=env, check=True)

        for i in range(pushes * context.repeats(2)):
            repo.bulk_commits(PUSHED)
            for side in ("ours", "theirs") if i % 2 else ("theirs", "ours"):
                with Stopwatch() as watch:
                    if side == "ours":
                        runner.run(_sync(product, spec))
                    else:
                        subprocess.run(
                            ["git", "-C", str(bare), "fetch", "--quiet", "--prune"], env=env, check=True
                        )
                (ours if side == "ours" else theirs).append(watch.cost)
            assert read_refs(product.mirrors.path(spec.key)) == read_refs(bare) == repo.refs()
        runner.run(product.close())
    return [
        Line(f"sync of {what}", f"ms {unit}", _ms(ours, unit), _ms(theirs, unit), Sense.TIMES_AS_MUCH, 1.3)
        for what, unit in ((f"{PUSHED} commits", "CPU"), (f"{PUSHED} commits", "wall"))
    ]


def _ms(costs: list[Cost], unit: str) -> tuple[float, ...]:
    return tuple((c.cpu_s if unit == "CPU" else c.wall_s) * 1000 for c in costs)


BENCH = Bench(
    name="sync",
    measures="a changed repo: poll, fetch, refs verified (TLS)",
    alternative="git fetch --prune in a clone --mirror of the same upstream",
    run=_run,
    order=30,
)
