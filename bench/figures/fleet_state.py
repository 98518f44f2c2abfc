"""What the coordinator knows of a million repos and where they are: memory, loading, finding one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.measure import Bench, Context, Line, Sense
from evermirror.core.fleet.table import CopyState, FleetTable, Reason
from tests.support.plain_hashing import key_hash

FILE = 1000  # lines of a catalog file: keys come in such batches
WORKERS = 1000
NOW = 1_700_000_000
LOOKS = 20_000  # lookups that are timed

Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True)
class State:
    """One side, measured in a process of its own: RSS is what it grew by."""

    rss_mb: float
    load_s: float
    find_us: float
    counted_mb: float  # by itself


def _key(i: int) -> str:
    return f"forge-{i % 7}.example/team-{i * 7919 % 50_021}/some-repository-{i}"


def _files(n: int) -> Iterator[list[str]]:
    for begin in range(0, n, FILE):
        yield [_key(i) for i in range(begin, min(begin + FILE, n))]


def _rss_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1000


@dataclass(frozen=True, slots=True)
class Side:
    """One way to keep it: how keys get in, how one is found, what it says of its own size."""

    load: Callable[[list[str]], None]
    find: Callable[[str], object]
    nbytes: Callable[[], int]


def _columns(n: int) -> Side:
    table = FleetTable()
    table.reserve(n, n)  # as a coordinator that starts: its database knows how many

    def load(keys: list[str]) -> None:
        m = len(keys)
        rows = table.put_repos(keys, np.zeros(m, np.bool_), np.ones(m, np.uint8))
        workers = (table.hash[rows] % np.uint64(WORKERS)).astype(np.uint16)
        ranks, reasons = np.zeros(m, np.uint8), np.full(m, Reason.HOME, np.uint8)
        table.add_copies(rows, workers, ranks, reasons, CopyState.HELD, NOW)

    return Side(load, lambda key: table.copies_of(table.row_of(key)), lambda: table.nbytes)


def _dicts(_n: int) -> Side:
    table: dict[str, dict[str, int]] = {}

    def load(keys: list[str]) -> None:
        for key in keys:
            hash_ = key_hash(key)
            table[key] = {
                "hash": hash_,
                "salt": 0,
                "flags": 1,
                "replicas": 1,
                "worker": hash_ % WORKERS,
                "rank": 0,
                "state": 2,
                "reason": 0,
                "digest": 0,
                "since": NOW,
            }

    return Side(load, lambda key: table[key]["worker"], lambda: 0)


def _load(side: Side, n: int) -> float:
    """CPU seconds, without making the keys."""
    taken = 0.0
    for keys in _files(n):
        start = time.process_time()
        side.load(keys)
        taken += time.process_time() - start
    return taken


def _measure(make: Callable[[int], Side], n: int) -> State:
    _load(make(FILE), FILE)  # what is done only once in a process is not counted
    before = _rss_mb()
    side = make(n)
    load_s = _load(side, n)
    grown = max(_rss_mb() - before, 0.001)
    some = [_key(i * 7_919 % n) for i in range(LOOKS)]
    start = time.process_time()
    for key in some:
        side.find(key)
    return State(grown, load_s, (time.process_time() - start) / LOOKS * 1e6, side.nbytes() / 1e6)


def columns(n: int) -> State:
    return _measure(_columns, n)


def dicts(n: int) -> State:
    return _measure(_dicts, n)


def at_once(n: int) -> float:
    """CPU seconds of loading everything in one call."""
    keys = [_key(i) for i in range(n)]
    table = FleetTable()
    start = time.process_time()
    table.put_repos(keys, np.zeros(n, np.bool_), np.ones(n, np.uint8))
    return time.process_time() - start


def _apart(measure: Callable[[int], Figures], n: int) -> Figures:
    """In a new process, so that neither side finds memory that another left behind."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, n).result()


def _run(context: Context) -> list[Line]:
    n = context.size(1_000_000, 20_000)
    pairs = [(_apart(columns, n), _apart(dicts, n)) for _ in range(context.repeats(2))]
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    once = tuple(_apart(at_once, n) for _ in range(context.repeats(2)))

    def line(what: str, unit: str, figure: Callable[[State], float], sense: Sense) -> Line:
        return Line(what, unit, tuple(map(figure, ours)), tuple(map(figure, theirs)), sense)

    return [
        line(f"RSS of {n:,} repos, placed", "MB", lambda s: s.rss_mb, Sense.TIMES_LESS),
        Line("the same, counted", "MB", tuple(s.counted_mb for s in ours), sense=Sense.AT_MOST, goal=120),
        line(f"loaded and placed in batches of {FILE:,}", "s CPU", lambda s: s.load_s, Sense.TIMES_AS_MUCH),
        Line("put in one call", "s CPU", once, sense=Sense.AT_MOST, goal=1.5),
        line("a key's copies found", "µs CPU", lambda s: s.find_us, Sense.TIMES_AS_MUCH),
    ]


BENCH = Bench(
    name="fleet-state",
    measures="a million repos and their placement in memory, loading them, finding one",
    alternative="a dict of dicts",
    run=_run,
    order=30,
    takes_s=9,
)
