"""A force-push upstream, whose old tip is kept, against a plain push of as much."""

from __future__ import annotations

import asyncio

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch
from bench.worlds.product import Product, new_loop, spec_of
from bench.worlds.server import GitServer
from evermirror.edge.git.probe import Seen
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoSpec

HISTORY = 2_000  # commits before the first push: a repo of ordinary age
GOAL = 1.1


async def _look(product: Product, spec: RepoSpec) -> RefSnapshot:
    outcome = await product.prober.probe(spec, None)
    assert isinstance(outcome, Seen)
    return outcome.snapshot


async def _sync(product: Product, spec: RepoSpec) -> int:
    addresses = await product.resolver.resolve("127.0.0.1", int(spec.host.rpartition(":")[2]))
    seen = await _look(product, spec)
    outcome = await product.mirrors.sync(spec, addresses, seen, lambda: _look(product, spec))
    return len(outcome.kept)


def _run(context: Context) -> list[Line]:
    pushes = context.size(20, 2)
    forced: list[Cost] = []
    plain: list[Cost] = []
    with (
        GitServer(context.folder / "up") as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        repo, spec = server.create("team/repo", commits=HISTORY), spec_of(server, "team/repo")
        product = Product.wire(server, context.folder / "data")
        runner.run(_sync(product, spec))
        for i in range(pushes * context.repeats(2)):
            for side in ("forced", "plain") if i % 2 else ("plain", "forced"):
                repo.force_push() if side == "forced" else repo.commit()
                with Stopwatch() as watch:
                    kept = runner.run(_sync(product, spec))
                assert kept == (1 if side == "forced" else 0)
                (forced if side == "forced" else plain).append(watch.cost)
        runner.run(product.close())
    return [
        Line(
            "force-push",
            f"ms {unit}",
            _ms(forced, unit),
            _ms(plain, unit),
            Sense.TIMES_AS_MUCH,
            GOAL,
            promise="keep",
        )
        for unit in ("CPU", "wall")
    ]


def _ms(costs: list[Cost], unit: str) -> tuple[float, ...]:
    return tuple((c.cpu_s if unit == "CPU" else c.wall_s) * 1000 for c in costs)


BENCH = Bench(
    name="keep",
    measures="a force-pushed repo: poll, fetch, old tip kept, refs verified (TLS)",
    alternative="the same for a plain push of one commit",
    run=_run,
    order=31,
    takes_s=16,
)
