"""A million repos on a thousand workers: placed, and placed again when a worker joins or is lost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch, alternate
from evermirror.core.fleet.copies import NOBODY
from evermirror.core.fleet.hashing import key_hashes, positions
from evermirror.core.fleet.placement import UNCHANGED, Placement, Sites, Wishes, place
from evermirror.core.fleet.ring import Ring

POINTS = 200  # on the ring for each worker, on both sides
BOUND = 1.1
NO_LIMIT = 1 << 40
LOOKED_UP = 10


@dataclass(frozen=True, slots=True)
class Fleet:
    """Repos on the ring, and how many of each."""

    at: NDArray[np.uint64]
    replicas: int
    ids: int  # largest worker id, and one

    def nowhere(self) -> NDArray[np.uint16]:
        return np.full((len(self.at), self.replicas), NOBODY, np.uint16)

    def place(
        self, should: NDArray[np.uint16], workers: Sequence[int], joined: tuple[int, ...] = ()
    ) -> tuple[Placement, Cost]:
        """Building the ring is part of it. All copies are held: the fleet is at rest before the change."""
        n = len(self.at)
        member = np.zeros(self.ids, bool)
        member[list(workers)] = True
        sites = Sites(
            member, member, np.zeros(self.ids, bool), np.ones(self.ids), np.full(self.ids, NO_LIMIT)
        )
        index, rank = np.nonzero(should != NOBODY)
        wishes = Wishes(
            self.at,
            np.zeros(n, bool),
            np.full(n, self.replicas, np.uint8),
            should,
            index.astype(np.int32),
            should[index, rank],
            joined=joined,
        )
        with Stopwatch() as watch:
            result = place(wishes, Ring.build(workers, [1.0] * len(workers), POINTS), sites, BOUND)
        return result, watch.cost

    def busiest(self, should: NDArray[np.uint16]) -> float:
        load = np.bincount(should.ravel())
        return float(load.max() / load[load > 0].mean())


def _new(result: Placement) -> int:
    return int(np.count_nonzero(result.reason != UNCHANGED))


def _newly_placed(before: NDArray[np.uint16], after: NDArray[np.uint16]) -> int:
    """Copies on workers that had none of that repo."""
    return sum(
        int(np.count_nonzero((before != after[:, rank, None]).all(axis=1))) for rank in range(after.shape[1])
    )


def _measure(fleet: Fleet, workers: int, rounds: int, goal_s: float) -> list[Line]:
    ids = list(range(workers))
    first_s, join_s, loss_s = [], [], []
    for _ in range(rounds):
        first, cost = fleet.place(fleet.nowhere(), ids)
        first_s.append(cost.cpu_s)
        joined, cost = fleet.place(first.should, [*ids, workers], joined=(workers,))
        join_s.append(cost.cpu_s)
        lost, cost = fleet.place(first.should, ids[1:])
        loss_s.append(cost.cpu_s)
    copies = len(fleet.at) * fleet.replicas
    share, gone = copies / (workers + 1), int(np.count_nonzero(first.should == 0))
    anew_joined, _ = fleet.place(fleet.nowhere(), [*ids, workers])
    anew_lost, _ = fleet.place(fleet.nowhere(), ids[1:])
    plain = Ring.build(ids, [1.0] * workers, POINTS)
    unbounded = plain.homes(plain.after(fleet.at), fleet.replicas, np.ones(1 << 16, bool))
    name = f"{fleet.replicas} cop{'y' if fleet.replicas == 1 else 'ies'}"

    def moved(what: str, ours: float, anew: float, goal: float) -> Line:
        return Line(f"{name}: moved by {what}", "× ideal", (ours,), (anew,), Sense.AT_MOST, goal)

    return [
        Line(f"{name}: first placement", "s CPU", tuple(first_s), sense=Sense.AT_MOST, goal=goal_s),
        Line(f"{name}: a worker joins", "s CPU", tuple(join_s), sense=Sense.AT_MOST, goal=0.4),
        Line(f"{name}: a worker is lost", "s CPU", tuple(loss_s), sense=Sense.AT_MOST, goal=0.4),
        moved("a join", _new(joined) / share, _newly_placed(first.should, anew_joined.should) / share, 1.1),
        moved("a loss", _new(lost) / gone, _newly_placed(first.should, anew_lost.should) / gone, 1.0),
        Line(
            f"{name}: busiest worker",
            "× mean",
            tuple(fleet.busiest(r.should) for r in (first, joined, lost)),
            (fleet.busiest(unbounded),),
            Sense.AT_MOST,
            BOUND,
        ),
    ]


def _against_uhashring(keys: Sequence[str], workers: int, rounds: int) -> list[Line]:
    """From keys to workers, one copy each, the ring built anew; nothing where it is not installed. It finds
    each key by itself: one in ``LOOKED_UP`` is enough."""
    try:
        from uhashring import HashRing  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print("  uhashring is not installed (pip install uhashring): ours is shown alone", file=sys.stderr)
        return []

    some = keys[::LOOKED_UP]

    def ours() -> Cost:
        with Stopwatch() as watch:
            at = positions(key_hashes(keys), np.zeros(len(keys), np.uint8))
        fleet = Fleet(at, 1, workers)
        cost = fleet.place(fleet.nowhere(), range(workers))[1]
        return Cost(watch.cost.cpu_s + cost.cpu_s, watch.cost.wall_s + cost.wall_s)

    def theirs() -> Cost:
        with Stopwatch() as watch:
            ring = HashRing(nodes=[f"worker-{w}" for w in range(workers)], vnodes=POINTS)
        with Stopwatch() as finding:
            for key in some:
                ring.get_node(key)
        times, built, found = len(keys) / len(some), watch.cost, finding.cost
        return Cost(built.cpu_s + times * found.cpu_s, built.wall_s + times * found.wall_s)

    a, b = alternate(rounds, ours, theirs)
    samples = (tuple(c.cpu_s for c in side) for side in (a, b))
    return [
        Line(
            f"1 copy: {len(keys):,} keys hashed and placed (uhashring: 1 in {LOOKED_UP}, scaled)",
            "s CPU",
            *samples,
            Sense.TIMES_LESS,
            5.0,
            "uhashring",
            "placement-peers",
        )
    ]


def _run(context: Context) -> list[Line]:
    n, workers = context.size(1_000_000, 5_000), context.size(1_000, 20)
    keys = [f"forge.example/team-{i % 977}/repo-{i}" for i in range(n)]
    at = positions(key_hashes(keys), np.zeros(n, np.uint8))
    lines = _against_uhashring(keys, workers, context.repeats(3))
    for replicas, goal_s in ((1, 1.0), (3, 1.5)):
        lines += _measure(Fleet(at, replicas, workers + 1), workers, context.repeats(3), goal_s)
    return lines


BENCH = Bench(
    name="placement",
    measures="a million repos on a thousand workers: time, balance, and what a join or a loss moves",
    alternative="uhashring (time), placing everything anew (moved), the ring without a bound (busiest)",
    run=_run,
    order=10,
    takes_s=12,
)
