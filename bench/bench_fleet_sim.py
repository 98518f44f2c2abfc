"""A large simulated fleet in which every worker flaps, with the real mind inside: how fast it goes."""

from __future__ import annotations

from bench.measure import Bench, Context, Line, Sense, Stopwatch
from evermirror.core.fleet.settings import FleetSettings
from evermirror.sim.fleet.checkers import Checkers
from evermirror.sim.fleet.faults import Faults
from evermirror.sim.fleet.plan import Plan
from evermirror.sim.fleet.story import Story
from evermirror.sim.fleet.world import World

EVENTS_LEAST = 1_000_000
SLICE_S = 300.0  # virtual


def _run(context: Context) -> list[Line]:
    workers, repos = context.size(1000, 50), context.size(100_000, 2000)
    least = context.size(EVENTS_LEAST, 20_000)
    plan = Plan(
        seed=1,
        workers=workers,
        repos=repos,
        private=0.05,
        duration_s=1e9,
        calm_s=0.0,
        settings=FleetSettings(warm_up_s=60.0),
        faults=Faults(flappers=1.0, flap_s=300.0, push=2000.0),
    )
    world = World(plan, Checkers, Story())
    with Stopwatch() as watch:
        world.begin()
        while (outcome := world.outcome()).events < least:
            world.advance(SLICE_S)
    return [
        Line(
            f"{outcome.events:,} events, {workers:,} flapping workers × {repos:,} repos, all checked",
            "s wall",
            (watch.cost.wall_s,),
            sense=Sense.AT_MOST,
            goal=300.0,
        ),
        Line("one event of it", "µs CPU", (watch.cost.cpu_s / outcome.events * 1e6,), sense=Sense.AT_MOST),
    ]


BENCH = Bench(
    name="fleet-sim",
    measures="the simulated fleet: a million events of a thousand flapping workers",
    alternative="none: the limit is five minutes",
    run=_run,
    order=80,
)
