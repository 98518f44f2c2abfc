"""Rough weather for small fleets, in several climates: a seed is a whole run, each promise checked all along.

The first broken promise ends a run with a short story and how to play it again; ``make soak`` plays many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from evermirror.core.fleet.settings import FleetSettings
from tests.support.sim.fleet.checkers import Checkers
from tests.support.sim.fleet.faults import rough
from tests.support.sim.fleet.network import Habits
from tests.support.sim.fleet.story import Story, Violation
from tests.support.sim.fleet.world import HOUR, Plan, World

_SMALL = Plan(
    workers=8,
    repos=120,
    dead=0.2,
    duration_s=3.5 * HOUR,
    calm_s=1.5 * HOUR,
    faults=rough(2.0),
)

CLIMATES: Mapping[str, Plan] = {
    "defaults": _SMALL,
    "two copies": replace(_SMALL, settings=FleetSettings(replicas=2, grace_s=120)),
    "mixed weights": replace(
        _SMALL, weights=(0.5, 1.0, 2.0), replicas=(1, 2, 3), settings=FleetSettings(grace_s=60)
    ),
    "narrow": replace(
        _SMALL,
        settings=FleetSettings(
            replicas=2, grace_s=60, moves_first=1, moves_per_worker=4, moves_total=20, nudge_gap_s=30
        ),
        habits=Habits(breaks_per_message=0.003),
    ),
    "all trusted": replace(_SMALL, trusted=1.0, settings=FleetSettings(grace_s=60)),
    "rates": replace(
        _SMALL,
        settings=FleetSettings(replicas=2, grace_s=120, host_rate=0.2, polls_per_second=1.0),
        habits=Habits(breaks_per_message=0.002),
    ),
    "one serves": replace(_SMALL, serving=True, room=90, settings=FleetSettings(grace_s=60)),
    "full disks": replace(_SMALL, room=40, witness=0.5, settings=FleetSettings(grace_s=60)),
}


@dataclass(frozen=True, slots=True)
class Run:
    """How one seed went; ``story`` is empty where every promise held."""

    climate: str
    seed: int
    events: int
    story: str


def play(climate: str, seed: int) -> Run:
    """One run."""
    world = World(replace(CLIMATES[climate], seed=seed), Checkers, Story())
    try:
        outcome = world.run()
    except Violation as violation:
        again = f"again: make soak SEEDS=1 ARGS=\"--climate '{climate}' --first {seed}\""
        return Run(climate, seed, 0, f"{climate}, seed {seed}: {violation}\n{again}")
    return Run(climate, seed, outcome.events, "")
