"""The fleet in the database: decisions written together, and a million repos loaded at a start."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import overload

import sqlalchemy as sa

from bench.figures.store import _databases, _record, _synced
from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch, alternate
from bench.worlds.coordinator_process import settle_workers
from bench.worlds.many_repos import STORE, make_store
from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import CopyRow, PutCopies, PutWorker, ReportTaken
from evermirror.core.fleet.events import CatalogRepo, Moment
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.views import Restored
from evermirror.edge.store.store import Store
from evermirror.edge.store.tables import copies, repos
from evermirror.edge.store.writes import Decided, Entry, writes_of
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId, WorkerRecord

REPORTS = 1000  # of a batch, each a decision
WORKERS = 1000
NOW = 1_700_000_000.0


def _decided(n: int, first: int, at: float) -> list[Entry]:
    """A report of a changed repo each: its copy, its number, what is known of the repo, and its task."""
    found: list[Entry] = []
    for i in range(n):
        worker = WorkerId(i % WORKERS)
        copy = CopyRow(RepoKey(f"forge.example/team/repo-{i}"), worker, 0, CopyState.HELD, Reason.HOME, at)
        taken = ReportTaken(worker, 1, first + i)
        found.append(Decided((PutCopies((copy,)), taken), writes_of(_synced(i, at))))
    return found


def _written(name: str, url: str, context: Context) -> list[Line]:
    n = context.size(REPORTS, 100)
    single = context.size(100, 10)
    batches = context.size(4, 2)
    first, now = 1, NOW
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(url))
        runner.run(store.upsert_repos(_record(i) for i in range(n)))

        async def apply_all(made: list[list[Entry]]) -> None:
            for batch in made:
                await store.apply(batch)

        def timed(made: list[list[Entry]]) -> Cost:
            with Stopwatch() as watch:
                runner.run(apply_all(made))
            return watch.cost.per(sum(map(len, made)))

        def next_ones(count: int) -> list[Entry]:
            nonlocal first, now
            first, now = first + count, now + 60
            return _decided(count, first, now)

        def together() -> Cost:
            return timed([next_ones(n) for _ in range(batches)])

        def row_by_row() -> Cost:
            return timed([[entry] for entry in next_ones(single)])

        ours, theirs = alternate(context.repeats(3), together, row_by_row)
        runner.run(store.close())
    wall = tuple(c.wall_s * 1e6 for c in ours), tuple(c.wall_s * 1e6 for c in theirs)
    return [
        Line(f"{name}: a report's decision", "µs wall", *wall, Sense.TIMES_LESS),
        Line(f"{name}: the same, alone", "µs CPU", tuple(c.cpu_s * 1e6 for c in ours), sense=Sense.AT_MOST),
        Line(
            f"{name}: batches of {n:,} reports",
            "per s",
            tuple(1 / c.wall_s / n for c in ours),
            sense=Sense.AT_LEAST,
        ),
    ]


# A start


@dataclass(frozen=True, slots=True)
class Start:
    """One way to begin, in a process of its own."""

    cpu_s: float
    wall_s: float
    peak_mb: float


async def _in_columns(store: Store) -> Restored:
    return await store.load_fleet()


async def _row_by_row(store: Store) -> Restored:
    """Values for each row, as the rest of the store reads them."""
    known = [WorkerRecord(WorkerId(i), WorkerFacts(f"worker-{i}", trusted=True)) for i in range(WORKERS)]
    async with store._db.read() as c:
        catalog = [
            (CatalogRepo(row.key, row.private or row.credential is not None), row.salt)
            for row in await c.execute(sa.select(repos))
        ]
        joined = sa.select(repos.c.key, *copies.c).join(repos, repos.c.id == copies.c.repo)
        placed = [
            CopyRow(row.key, row.worker, row.rank, CopyState(row.state), Reason(row.reason), row.since)
            for row in await c.execute(joined)
        ]
    return Restored(known, catalog, (), placed)


def _started(how: str, url: str, n: int) -> Start:
    async def start() -> Start:
        store = await Store.open(url)
        cpu, wall = time.process_time(), time.perf_counter()
        restored = await (_in_columns if how == "columns" else _row_by_row)(store)
        machine = FleetMachine(FleetSettings(), 1, Moment(0.0, NOW), restored)
        # getrusage would tell the peak of the process that started this one, where that is higher.
        peak_mb = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1000
        spent = Start(time.process_time() - cpu, time.perf_counter() - wall, peak_mb)
        if machine.totals().held != n:
            raise RuntimeError(f"{machine.totals()} is not what was written")
        await store.close()
        return spent

    return asyncio.run(start())


def _apart(how: str, url: str, n: int) -> Start:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_started, how, url, n).result()


class _FirstPlacement(Sequence[CopyRow]):
    """Rows that are made as they are looked at."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, at: int) -> CopyRow: ...
    @overload
    def __getitem__(self, at: slice) -> list[CopyRow]: ...
    def __getitem__(self, at: int | slice) -> CopyRow | list[CopyRow]:
        if isinstance(at, slice):
            return [_row(i) for i in range(*at.indices(self._n))]
        return _row(range(self._n)[at])


def _row(i: int) -> CopyRow:
    return CopyRow(RepoKey(_key(i)), WorkerId(i % WORKERS), 0, CopyState.HELD, Reason.HOME, NOW)


def _key(i: int) -> str:
    """As many_repos.py names them."""
    return f"forge-{i % 7}.example/team-{i * 7919 % 50_021}/some-repository-{i}"


def _copied(context: Context, n: int) -> Path:
    path = context.folder / f"fleet-{n}.sqlite"
    shutil.copyfile(context.shared.made(f"store-{n}", partial(make_store, n=n)) / STORE, path)
    return path


def _first_placement(url: str, n: int) -> Cost:
    """As it is decided, and written."""
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(url))
        members = [
            PutWorker(WorkerRecord(WorkerId(i), WorkerFacts(f"worker-{i}", trusted=True)))
            for i in range(WORKERS)
        ]
        runner.run(store.apply([Decided(tuple(members))]))
        with Stopwatch() as watch:
            runner.run(store.apply([Decided((PutCopies(_FirstPlacement(n)),))]))
        runner.run(store.close())
    return watch.cost


def _loaded(context: Context) -> list[Line]:
    """Row by row is done for fewer, and scaled: each row costs the same, and a million take half a minute."""
    n, fewer = context.size(1_000_000, 5_000), context.size(100_000, 1_000)
    all_of_them, some = _copied(context, n), _copied(context, fewer)
    settle_workers(all_of_them, WORKERS)
    placed = _first_placement(f"sqlite:///{some}", fewer)
    ours, theirs = [], []
    for turn in range(context.repeats(3)):
        ours.append(_apart("columns", f"sqlite:///{all_of_them}", n))
        if turn < 2:
            theirs.append(_apart("rows", f"sqlite:///{some}", fewer))
    loads = tuple(s.cpu_s for s in ours)
    rows = tuple(s.cpu_s * n / fewer for s in theirs)
    what = f"{n:,} repos and copies into a machine"

    def alone(what: str, unit: str, samples: tuple[float, ...], goal: float | None = None) -> Line:
        return Line(what, unit, samples, sense=Sense.AT_MOST, goal=goal)

    return [
        alone(f"a first placement of {fewer:,}", "s CPU", (placed.cpu_s,)),
        Line(f"{what} (row by row: {fewer:,}, scaled)", "s CPU", loads, rows, Sense.TIMES_LESS),
        alone(f"{what}, alone", "s CPU", loads, 5),
        alone("peak RSS of that process", "MB", tuple(s.peak_mb for s in ours), 250),
        alone("a machine, by the clock", "s wall", tuple(s.wall_s for s in ours)),
    ]


def _run(context: Context) -> list[Line]:
    with _databases(context) as databases:
        lines = [line for name, url in databases for line in _written(name, url, context)]
    return [*lines, *_loaded(context)]


BENCH = Bench(
    name="fleet-store",
    measures=f"decisions about {REPORTS:,} reports written, and a start with a million repos",
    alternative="row by row: a transaction for each report, an object for each row",
    run=_run,
    order=35,
    takes_s=41,
)
