"""The fleet's mind at a million repos: a worker joins, one is lost, heartbeats come; what moves of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.measure import Bench, Context, Line, Sense, Stopwatch
from evermirror.core.fleet.copies import NOBODY, UNWANTED, CopyState
from evermirror.core.fleet.decisions import Decision
from evermirror.core.fleet.events import (
    CatalogChanged,
    CatalogRepo,
    Event,
    HeartbeatHeard,
    HeldTold,
    Moment,
    RetireAsked,
    Ticked,
    WorkerConnected,
)
from evermirror.core.fleet.hashing import key_hashes, positions
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.placement import Sites, Wishes, place
from evermirror.core.fleet.ring import Ring
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId

SETTINGS = FleetSettings(warm_up_s=0.0, rebalance_gap_s=0.0)
UTC = 1_700_000_000.0
BEATS = 50_000
PRIMARY = 1  # the role that each copy's worker was told

Owners = NDArray[np.uint16]


def _key(i: int) -> RepoKey:
    return RepoKey(f"forge-{i % 7}.example/team-{i * 7919 % 50_021}/some-repository-{i}")


@dataclass(frozen=True, slots=True)
class Change:
    """One join or loss."""

    cpu_s: float
    moved: float  # against the ideal
    busiest: float  # against the mean, both per weight


class Fleet:
    """A machine with so many repos, each complete on one of so many workers."""

    def __init__(self, repos: int, workers: int) -> None:
        self.machine = FleetMachine(SETTINGS, 1, Moment(0.0, UTC))
        self.time_s = 0.0
        self.session = 0
        for _ in range(workers):
            self.join()
        self.handle(CatalogChanged(put=tuple(CatalogRepo(_key(i)) for i in range(repos))))
        with Stopwatch() as watch:
            self.tick()
        self.first_s = watch.cost.cpu_s
        self.settle()

    def handle(self, event: Event) -> Decision:
        return self.machine.handle(event, Moment(self.time_s, UTC + self.time_s))

    def tick(self) -> None:
        self.time_s += 1.0
        self.handle(Ticked())

    def join(self) -> WorkerId:
        """Registered, connected and known to hold nothing; its share comes with the next tick."""
        self.session += 1
        facts = WorkerFacts(f"worker-{self.session}", trusted=True)
        self.handle(WorkerConnected(self.session, None, facts, boot=1, generation=1))
        worker = max(view.record.id for view in self.machine.workers())
        self.handle(HeldTold(worker, self.session, (), last=True))
        return worker

    def settle(self) -> None:
        """As if every worker had done and told what it was asked; a million reports would take minutes."""
        table = self.machine._table
        for c in np.flatnonzero(table.c_rank[: table.copies] == UNWANTED).tolist():
            if table.c_worker[c] != NOBODY:
                table.drop_copy(c)
        n = table.copies
        table.c_state[:n] = CopyState.HELD
        table.c_digest[:n] = 7
        table.c_primary[:n] = PRIMARY

    def owners(self) -> Owners:
        table = self.machine._table
        return table.should(table.catalog_rows(), 1)[:, 0]

    def timed(self, change: Callable[[], None], ideal: Callable[[Owners], float]) -> Change:
        before = self.owners()
        with Stopwatch() as watch:
            change()
        after = self.owners()
        self.settle()
        load = np.bincount(after)
        load = load[load > 0]
        moved = float(np.count_nonzero(before != after)) / ideal(before)
        return Change(watch.cost.cpu_s, moved, float(load.max() / load.mean()))

    def one_joins(self) -> Change:
        self.join()
        workers = len(self.machine.workers())
        return self.timed(self.tick, lambda before: len(before) / workers)

    def one_is_lost(self, worker: WorkerId) -> Change:
        return self.timed(
            lambda: void(self.handle(RetireAsked(worker))),
            lambda before: float(np.count_nonzero(before == worker)),
        )


def void(_: object) -> None:
    """Nothing is done with what was decided."""


class Recomputed:
    """The alternative: who should hold what follows from the ring alone, bounded, and is computed anew."""

    def __init__(self, repos: int, workers: int) -> None:
        self._positions = positions(key_hashes([_key(i) for i in range(repos)]), np.zeros(repos, np.uint8))
        self._ids = list(range(workers))
        self._owners = self._place()

    def _place(self) -> Owners:
        n, width = len(self._positions), max(self._ids) + 1
        there = np.isin(np.arange(width), self._ids)
        sites = Sites(there, there, there, there.astype(float), np.full(width, 1 << 40, np.int64))
        none = np.empty(0, np.int32)
        wishes = Wishes(
            self._positions,
            np.zeros(n, bool),
            np.ones(n, np.uint8),
            np.full((n, 1), NOBODY, np.uint16),
            none,
            none.astype(np.uint16),
        )
        ring = Ring.build(self._ids, [1.0] * len(self._ids), SETTINGS.points)
        return place(wishes, ring, sites, SETTINGS.load_bound).should[:, 0]

    def _change(self, ideal: float) -> Change:
        before = self._owners
        with Stopwatch() as watch:
            self._owners = self._place()
        load = np.bincount(self._owners, minlength=max(self._ids) + 1)[self._ids]
        moved = float(np.count_nonzero(before != self._owners)) / ideal
        return Change(watch.cost.cpu_s, moved, float(load.max() / load.mean()))

    def one_joins(self) -> Change:
        self._ids.append(max(self._ids) + 1)
        return self._change(len(self._positions) / len(self._ids))

    def one_is_lost(self, worker: int) -> Change:
        self._ids.remove(worker)
        return self._change(float(np.count_nonzero(self._owners == worker)))


def _heartbeat_us(fleet: Fleet) -> float:
    view = fleet.machine.workers()[0]
    event = HeartbeatHeard(view.record.id, fleet.machine._crew[view.record.id].session)
    now = Moment(fleet.time_s, UTC)
    handle = fleet.machine.handle
    with Stopwatch() as watch:
        for _ in range(BEATS):
            handle(event, now)
    return watch.cost.cpu_s / BEATS * 1e6


def _scanned_us(workers: int) -> float:
    """With every heartbeat, look who of all is overdue."""
    heard = dict.fromkeys(range(workers), 0.0)
    beats = max(BEATS * 10 // workers, 10)
    with Stopwatch() as watch:
        for i in range(beats):
            heard[i % workers] = float(i)
            void([worker for worker, at in heard.items() if at < i - 1e9])
    return watch.cost.cpu_s / beats * 1e6


def _run(context: Context) -> list[Line]:
    repos, workers = context.size(1_000_000, 20_000), context.size(1_000, 50)
    rounds = context.repeats(3)
    fleet, other = Fleet(repos, workers), Recomputed(repos, workers)
    joins = [(fleet.one_joins(), other.one_joins()) for _ in range(rounds)]
    lost = [(fleet.one_is_lost(WorkerId(3 + i)), other.one_is_lost(3 + i)) for i in range(rounds)]
    beats = [(_heartbeat_us(fleet), _scanned_us(workers)) for _ in range(rounds)]
    name = f"{repos:,} × {workers:,}"

    def line(
        what: str,
        unit: str,
        changes: list[tuple[Change, Change]],
        of: Callable[[Change], float],
        goal: float,
        promise: str,
    ) -> Line:
        ours, theirs = (tuple(of(pair[i]) for pair in changes) for i in (0, 1))
        return Line(what, unit, ours, theirs, Sense.AT_MOST, goal, promise=promise)

    return [
        Line(f"first placement, {name}", "s CPU", (fleet.first_s,), sense=Sense.AT_MOST),
        line("a worker joins", "s CPU", joins, lambda change: change.cpu_s, 0.5, "fleet-change"),
        line("a worker is lost", "s CPU", lost, lambda change: change.cpu_s, 0.5, "fleet-change"),
        line(
            "moved by a join, against the ideal", "×", joins, lambda change: change.moved, 1.1, "fleet-moved"
        ),
        line("moved by a loss, against the lost", "×", lost, lambda change: change.moved, 1.1, "fleet-moved"),
        line(
            "busiest against the mean", "×", joins + lost, lambda change: change.busiest, 1.1, "fleet-busiest"
        ),
        Line(
            "a heartbeat",
            "µs CPU",
            *(tuple(b[i] for b in beats) for i in (0, 1)),
            Sense.AT_MOST,
            20.0,
            promise="fleet-heartbeat",
        ),
        Line(
            "the state",
            "MB",
            (fleet.machine.nbytes / 1e6,),
            sense=Sense.AT_MOST,
            goal=150.0,
            promise="fleet-state",
        ),
    ]


BENCH = Bench(
    name="fleet",
    measures="a worker joins or is lost among a thousand with a million repos; heartbeats; the state's size",
    alternative="plain recomputation of the placement; a scan of all workers with each heartbeat",
    run=_run,
    order=35,
    takes_s=10,
)
