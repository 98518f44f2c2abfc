"""The fleet in the database: decisions written together, and a million repos loaded at a start."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import overload

import sqlalchemy as sa

from bench.bench_store import _databases, _record, _synced
from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch, alternate
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
    batches = context.size(10, 2)
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
    known = [WorkerRecord(WorkerId(i), WorkerFacts(f"worker-{i}")) for i in range(WORKERS)]
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
    return f"forge-{i % 7}.example/team-{i * 7919 % 50_021}/some-repository-{i}"


def _fill(path: Path, n: int) -> None:
    """The catalog, without the time that it takes to read one."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA cache_size=-200000")
    with connection:
        connection.executemany(
            """
            INSERT INTO repos (key, url, host, source, info, priority, mode, private, enabled, status,
                refs_count, size_bytes, consecutive_failures, activity_fast, activity_middle, activity_slow,
                activity_as_of, last_push_at, created_at, updated_at)
            VALUES (?1, 'https://' || ?1, ?2, 'catalog', '{}', 'normal', 'exact', 0, 1, 'active',
                9, 100000, 0, 0.1, 0.2, 0.3, 0, 0, 0, 0)
            """,
            ((key, key.partition("/")[0]) for key in map(_key, range(n))),
        )
    connection.close()


def _loaded(context: Context) -> list[Line]:
    n = context.size(1_000_000, 5_000)
    path = context.folder / "fleet.sqlite"
    url = f"sqlite:///{path}"
    with asyncio.Runner() as runner:
        runner.run(runner.run(Store.open(url)).close())
        _fill(path, n)
        store = runner.run(Store.open(url))
        members = [PutWorker(WorkerRecord(WorkerId(i), WorkerFacts(f"worker-{i}"))) for i in range(WORKERS)]
        runner.run(store.apply([Decided(tuple(members))]))
        with Stopwatch() as watch:
            runner.run(store.apply([Decided((PutCopies(_FirstPlacement(n)),))]))
        runner.run(store.close())
    pairs = [(_apart("columns", url, n), _apart("rows", url, n)) for _ in range(context.repeats(3))]
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]

    def line(what: str, unit: str, figure: Callable[[Start], float], goal: float) -> list[Line]:
        mine, others = tuple(map(figure, ours)), tuple(map(figure, theirs))
        return [
            Line(what, unit, mine, others, Sense.TIMES_LESS),
            Line(f"{what}, alone", unit, mine, sense=Sense.AT_MOST, goal=goal),
        ]

    return [
        Line(f"a first placement of {n:,}", "s CPU", (watch.cost.cpu_s,), sense=Sense.AT_MOST),
        *line(f"{n:,} repos and copies into a machine", "s CPU", lambda s: s.cpu_s, 5),
        *line("peak RSS of that process", "MB", lambda s: s.peak_mb, 250),
        Line("the same, by the clock", "s wall", tuple(s.wall_s for s in ours), sense=Sense.AT_MOST),
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
)
