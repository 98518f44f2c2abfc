"""Results written to the coordinator's database: in batches, against one transaction for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch, alternate
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoVerified, Write, writes_of
from evermirror.model.activity import Activity
from evermirror.model.messages import Synced
from evermirror.model.refs import Oid, RefChange, RefsDigest
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from tests.support.postgres import PostgresServer, find_bin_dir

BATCH = 1000
NOW = 1_700_000_000.0


def _record(i: int) -> RepoRecord:
    key = RepoKey(f"forge.example/team/repo-{i}")
    return RepoRecord(RepoSpec(key, f"https://{key}.git", Host("forge.example")))


def _synced(i: int, at: float) -> Synced:
    oid = Oid(f"{i:040x}")
    return Synced(
        key=RepoKey(f"forge.example/team/repo-{i}"),
        task_ids=(),
        digest=RefsDigest(f"{int(at) + i:064x}"),
        head_commit=oid,
        refs_count=12,
        changes=(RefChange("refs/heads/main", None, oid),),
        changes_total=1,
        commits=3,
        received_bytes=4_000,
        size_bytes=1_000_000,
        first=False,
        started_at=at - 1,
        verified_at=at,
        ended_at=at,
        activity=Activity((1.0, 2.0, 3.0), at, at),
    )


def _writes(n: int, at: float) -> list[Sequence[Write]]:
    return [writes_of(_synced(i, at)) for i in range(n)]


@contextmanager
def _databases(context: Context) -> Iterator[list[tuple[str, str]]]:
    here = [("SQLite", f"sqlite:///{context.folder / 'bench.sqlite'}")]
    folder = find_bin_dir()
    if folder is None:
        yield here
        return
    server = PostgresServer(folder)
    try:
        yield [*here, ("PostgreSQL", server.create_database())]
    finally:
        server.close()


def _measure(name: str, url: str, context: Context) -> list[Line]:
    n = context.size(5_000, 1_000)
    single = context.size(200, 20)
    rounds = context.repeats(3)
    now = NOW
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(url))
        runner.run(store.upsert_repos(_record(i) for i in range(n)))

        async def apply_all(batches: list[list[Write]]) -> None:
            for batch in batches:
                await store.apply(batch)

        def timed(batches: list[list[Write]], results: int) -> Cost:
            with Stopwatch() as watch:
                runner.run(apply_all(batches))
            return watch.cost.per(results)

        def batched() -> Cost:
            nonlocal now
            now += 60
            made = _writes(n, now)
            return timed([[w for r in made[i : i + BATCH] for w in r] for i in range(0, n, BATCH)], n)

        def one_by_one() -> Cost:
            nonlocal now
            now += 60
            return timed([list(r) for r in _writes(single, now)], single)

        def verified() -> Cost:
            nonlocal now
            now += 60
            made: list[Write] = [RepoVerified(RepoKey(f"forge.example/team/repo-{i}"), now) for i in range(n)]
            return timed([made[i : i + BATCH] for i in range(0, n, BATCH)], n)

        ours, theirs = alternate(rounds, batched, one_by_one)
        looks = [verified() for _ in range(rounds)]
        runner.run(store.close())
    return [
        Line(f"{name}: a changed repo with its task", "µs wall", _us(ours), _us(theirs), Sense.TIMES_LESS),
        Line(f"{name}: changed repos", "per s", tuple(1 / c.wall_s for c in ours), sense=Sense.AT_LEAST),
        Line(f"{name}: unchanged repos", "per s", tuple(1 / c.wall_s for c in looks), sense=Sense.AT_LEAST),
    ]


def _us(costs: list[Cost]) -> tuple[float, ...]:
    return tuple(c.wall_s * 1e6 for c in costs)


def _run(context: Context) -> list[Line]:
    with _databases(context) as databases:
        return [line for name, url in databases for line in _measure(name, url, context)]


BENCH = Bench(
    name="store",
    measures=f"results written in batches of {BATCH:,}",
    alternative="one transaction for each result",
    run=_run,
    order=20,
    takes_s=13,
)
