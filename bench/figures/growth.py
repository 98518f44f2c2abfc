"""What one more repo costs, from a hundred to a million: at the worker, in the store, in placement.

Each size of the worker's side is measured in a process of its own, which begins as a worker does: with what
it remembers. Its whole engine is measured to a hundred thousand repos, as a million have no room on a
worker's disk; its queue alone to a million. When a repo is due is never read from the store. The
coordinator's whole process is figures/coordinator.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

import numpy as np

from bench.figures.fleet_state import State, columns
from bench.figures.placement import Fleet
from bench.measure import Bench, Context, Curve, Found, Line, Sense, Series
from bench.worlds.grown_store import ANSWER, COUNTED, PAGED, SEARCHED, SORTED, answer_ms, ms_of, questions
from bench.worlds.grown_worker import Mind, know, mind, polls_ms
from bench.worlds.many_repos import STORE, make_memories, make_store
from bench.worlds.population import STAND_IN, make_population
from bench.worlds.product import Product, new_loop
from bench.worlds.server import GitServer
from evermirror.core.fleet.hashing import key_hashes, positions
from evermirror.edge.store.store import Store

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
QUICK = (100, 400)
ENGINE_MAX = 100_000  # repos of a worker: mirrors of more are on no disk
BASE = 1_000  # what the largest is compared with; smaller ones are all fixed costs
FLAT = 2.0  # × at the largest: a heap's log n, and memory that no longer fits the processor's caches
POLLS = 20_000
ENGINE_POLLS = 3_000
ANSWERS = 60  # a minute, in which somebody asks each second

Points = dict[int, list[float]]  # samples by size
T = TypeVar("T")


# A worker's mind


def _minds(context: Context, sizes: Sequence[int]) -> dict[int, Mind]:
    found = {}
    for n in sizes:
        folder = context.shared.made(f"memories-{n}", partial(make_memories, n=n))
        found[n] = _apart(mind, str(folder / "worker.db"), n, context.repeats(3), context.size(POLLS, 500))
    return found


def _apart(work: Callable[..., T], *about: object) -> T:
    """In a new process, where nobody left memory behind."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *about).result()


def _of_minds(minds: dict[int, Mind]) -> list[Found]:
    polls: Points = {n: list(m.poll_us) for n, m in minds.items()}
    scans: Points = {n: [m.scan_us] for n, m in minds.items()}
    loads: Points = {n: [m.load_us] for n, m in minds.items()}
    adds: Points = {n: [m.add_us] for n, m in minds.items()}
    bytes_: Points = {n: [m.bytes_each] for n, m in minds.items() if n >= BASE or len(minds) == len(QUICK)}
    most = max(minds)
    return [
        _curve(
            "A poll taken from the queue, and ended",
            "µs CPU",
            {"the queue": polls, "a look through all": scans},
            "Heaps: log n, and a million repos fit no cache of the processor.",
            "growth-queue",
            log_y=True,
        ),
        _flat("queue: a poll taken and ended", "µs CPU", polls, "growth-queue"),
        Line(
            f"queue: a poll taken and ended, of {most:,}",
            "µs CPU",
            tuple(polls[most]),
            tuple(scans[most]),
            against="a look through all for the one that waits longest",
        ),
        _curve(
            "A worker's start, each repo",
            "µs CPU",
            {"read from its file": loads, "put into the queue": adds},
            "Flat, as the garbage collector waits meanwhile: it would look through all that is there again "
            "and again.",
            "growth-start",
        ),
        _flat("start: a repo read from the worker's file", "µs CPU", loads, "growth-start"),
        _flat("start: a repo put into the queue", "µs CPU", adds, "growth-start"),
        _curve(
            "A worker's memory, each repo",
            "bytes",
            {"remembered and scheduled": bytes_},
            "What a process grew by; below a thousand repos that is pages, not repos.",
            "growth-memory",
        ),
        _flat("memory: a repo remembered and scheduled", "bytes", bytes_, "growth-memory"),
    ]


# A worker's engine


def _engine(context: Context, sizes: Sequence[int]) -> list[Found]:
    polls, cost = context.size(ENGINE_POLLS, 200), dict[int, list[float]]()
    with (
        GitServer(context.folder / "up", stand_in=STAND_IN) as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        product = Product.wire(server, context.folder / "first")
        first = runner.run(make_population(server, product, 1, context.folder / "first.db"))
        runner.run(product.close())
        for n in sizes:
            product, file = runner.run(know(server, first.local_file, n, context.folder))
            cost[n] = runner.run(polls_ms(server, product, n, file, polls, context.repeats(2)))
            runner.run(product.close())
    return [
        _curve(
            "A poll of an unchanged upstream in a worker's engine",
            "ms CPU",
            {"by repos assigned": cost},
            "The whole way: queue, limits, TLS, bookkeeping, reports. Mirrors are claimed, not made: of an "
            "upstream that did not change none is opened.",
            "growth-poll",
        ),
        _flat("engine: a poll, end to end", "ms CPU", cost, "growth-poll"),
    ]


# The store


def _store(context: Context, sizes: Sequence[int]) -> list[Found]:
    ours: dict[str, Points] = {}
    theirs: dict[str, Points] = {}
    for n in sizes:
        folder = context.shared.made(f"store-{n}", partial(make_store, n=n))
        asyncio.run(_ask(context, n, f"sqlite:///{folder / STORE}", ours, theirs))
    return _of_store(ours, theirs)


async def _ask(
    context: Context, n: int, url: str, ours: dict[str, Points], theirs: dict[str, Points]
) -> None:
    store = await Store.open(url)
    try:
        for name, (mine, other) in questions(store, n).items():
            await mine()  # what is compiled once
            for _ in range(context.repeats(3)):
                ours.setdefault(name, {}).setdefault(n, []).append(await ms_of(mine))
                theirs.setdefault(name, {}).setdefault(n, []).append(await ms_of(other))
        ours.setdefault(ANSWER, {})[n] = [await answer_ms(store, context.size(ANSWERS, 3))]
    finally:
        await store.close()


def _of_store(ours: dict[str, Points], theirs: dict[str, Points]) -> list[Found]:
    most = max(ours[PAGED])

    def line(what: str, against: str) -> Line:
        return Line(what, "ms CPU", tuple(ours[what][most]), tuple(theirs[what][most]), against=against)

    def within(what: str, goal: float, promise: str = "") -> Line:
        what_at = f"{what}, of {most:,}"
        samples = tuple(ours[what][most])
        return Line(what_at, "ms CPU", samples, sense=Sense.AT_MOST, goal=goal, promise=promise)

    return [
        _curve(
            "The overview",
            "ms CPU",
            {
                "counted anew": ours[COUNTED],
                "answered": ours[ANSWER],
                "counted over the table": theirs[COUNTED],
            },
            "A count is one walk through an index, so it grows with the repos. Answers do not: a count that "
            "took long is good for twenty times as long, and an older one stands in while a new one is made.",
            "growth-overview",
            log_y=True,
        ),
        within(ANSWER, 50.0, "growth-overview"),
        within(COUNTED, 500.0),
        line(COUNTED, "GROUP BY over the table"),
        _curve(
            "Lists and search",
            "ms CPU",
            {
                "page by key": ours[PAGED],
                "page by OFFSET": theirs[PAGED],
                "stalest first": ours[SORTED],
                "search": ours[SEARCHED],
                "search by LIKE over rows": theirs[SEARCHED],
            },
            "A page in the order of keys is where it is looked for. Other orders and a search are one walk "
            "through an index that holds all that can be asked for: the same for each repo, a fraction of a "
            "second for a million.",
            log_y=True,
        ),
        _flat(PAGED, "ms CPU", ours[PAGED]),
        line(PAGED, "OFFSET"),
        within(SORTED, 500.0),
        line(SORTED, "ORDER BY over the table"),
        within(SEARCHED, 500.0),
        line(SEARCHED, "LIKE over the table"),
    ]


# The fleet


def _fleet(context: Context, sizes: Sequence[int]) -> list[Found]:
    first: Points = {}
    joins: Points = {}
    table: dict[int, State] = {}
    for n in sizes:
        workers = max(3, n // 1_000)
        keys = [f"forge.example/team-{i % 977}/repo-{i}" for i in range(n)]
        fleet = Fleet(positions(key_hashes(keys), np.zeros(n, np.uint8)), 1, workers + 1)
        del keys
        for _ in range(context.repeats(3)):
            placed, cost = fleet.place(fleet.nowhere(), range(workers))
            first.setdefault(n, []).append(cost.cpu_s / n * 1e6)
            _, cost = fleet.place(placed.should, range(workers + 1), joined=(workers,))
            joins.setdefault(n, []).append(cost.cpu_s / n * 1e6)
        table[n] = _apart(columns, n)
    bytes_: Points = {n: [s.counted_mb * 1e6 / n] for n, s in table.items()}
    return [
        _curve(
            "Placement, each repo",
            "µs CPU",
            {"first placement": first, "a worker joins": joins},
            "A worker for each thousand repos, three at least. Few repos pay for the ring, which is built "
            "each time; a join looks at all repos once.",
            "growth-placement",
            log_y=True,
        ),
        _flat("placement: a repo placed", "µs CPU", first, "growth-placement"),
        _flat("placement: a repo looked at as a worker joins", "µs CPU", joins, "growth-placement"),
        _curve(
            "The coordinator's state, each repo",
            "bytes",
            {"as it counts itself": bytes_},
            "Columns and the bytes of keys; what a small table has too much is room to grow.",
            "growth-memory",
            log_y=True,
        ),
        _flat("memory: a repo in the coordinator's state", "bytes", bytes_, "growth-memory"),
    ]


# All together


def _curve(
    title: str, y: str, series: dict[str, Points], says: str, promise: str = "", *, log_y: bool = False
) -> Curve:
    lines = tuple(
        Series(name, tuple((float(n), float(np.median(found))) for n, found in sorted(points.items())))
        for name, points in series.items()
    )
    return Curve(title, "repos", y, lines, log_x=True, log_y=log_y, says=says, promise=promise)


def _flat(what: str, unit: str, points: Points, promise: str = "") -> Line:
    """At the most repos, against the same at a thousand."""
    most, base = max(points), BASE if BASE in points else min(points)
    return Line(
        f"{what}: {most:,} repos",
        unit,
        tuple(points[most]),
        tuple(points[base]),
        Sense.TIMES_AS_MUCH,
        FLAT,
        against=f"the same with {base:,}",
        promise=promise,
    )


def _run(context: Context) -> list[Found]:
    sizes = QUICK if context.quick else SIZES
    return [
        *_engine(context, [n for n in sizes if n <= ENGINE_MAX]),
        *_of_minds(_minds(context, sizes)),
        *_fleet(context, sizes),
        *_store(context, sizes),
    ]


BENCH = Bench(
    name="growth",
    measures="what a repo costs from a hundred to a million: polls, queue, memory, start, placement, lists",
    alternative="the same with a thousand repos; scans, OFFSET and counts over the table",
    run=_run,
    order=60,
    takes_s=98,
)
