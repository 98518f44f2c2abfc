"""A large simulated fleet in which every worker flaps, with the real mind inside: how fast it goes."""

from __future__ import annotations

from bench.measure import Bench, Context, Line, Sense, Stopwatch
from evermirror.core.fleet.settings import FleetSettings
from tests.support.sim.fleet.checkers import Checkers
from tests.support.sim.fleet.faults import Faults
from tests.support.sim.fleet.story import Story
from tests.support.sim.fleet.world import Plan, World

EVENTS = 1_000_000
PLAYED_LEAST = 140_000  # of these: the pace is the same from cycle to cycle
SLICE_S = 300.0  # virtual: in which everybody flaps once


def _run(context: Context) -> list[Line]:
    workers, repos = context.size(1000, 50), context.size(100_000, 2000)
    least = context.size(PLAYED_LEAST, 5_000)
    plan = Plan(
        seed=1,
        workers=workers,
        repos=repos,
        private=0.05,
        dead=0.1,
        duration_s=1e9,
        calm_s=0.0,
        settings=FleetSettings(warm_up_s=60.0),
        faults=Faults(flappers=1.0, flap_s=300.0, push=2000.0),
    )
    world = World(plan, Checkers, Story())
    with Stopwatch() as beginning:  # the first placement of all, which is not to come again
        world.begin()
        world.advance(SLICE_S)
    first = world.outcome().events
    with Stopwatch() as watch:
        world.advance(SLICE_S)
        while (outcome := world.outcome()).events < least:
            world.advance(SLICE_S)
    each = watch.cost.per(outcome.events - first)
    wall_s = beginning.cost.wall_s + each.wall_s * (EVENTS - first)
    return [
        Line(
            f"{EVENTS:,} events at the pace of {outcome.events:,}, all checked,"
            f" {workers:,} flapping workers × {repos:,} repos",
            "s wall",
            (wall_s,),
            sense=Sense.AT_MOST,
            goal=300.0,
            promise="fleet-sim",
        ),
        Line("one event of it, after the beginning", "µs CPU", (each.cpu_s * 1e6,), sense=Sense.AT_MOST),
    ]


BENCH = Bench(
    name="fleet-sim",
    measures="the simulated fleet: the pace of a thousand flapping workers' events",
    alternative="none: the limit is five minutes for a million",
    run=_run,
    order=80,
    takes_s=21,
)
