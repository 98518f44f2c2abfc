"""Kinds of days for pull mirroring; `tools/soak --pull` plays them all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.model.pull import Strategy
from evermirror.sim.pull.world import AIM, HOUR_S
from tests.support.sim.pull.truth import Broken
from tests.support.sim.pull.world import Climate, World

NIGHT = replace(AIM, peak_start=22, peak_end=6, night_start=6, night_end=8, night_max_concurrent=10)

CLIMATES: dict[str, Climate] = {
    "aim": Climate(),
    "three days": Climate(days=3.0, outage_gap_s=30 * HOUR_S),
    "fresh": Climate(fresh=True),
    "outages": Climate(outage_gap_s=4 * HOUR_S, outage_s=1.5 * HOUR_S),
    "overload": Climate(overload_gap_s=3 * HOUR_S, overload_s=2 * HOUR_S, cpu_max=None),
    "own polls": Climate(metrics=False, overload_gap_s=4 * HOUR_S, overload_after_s=6 * HOUR_S),
    "limited": Climate(looks_a_minute=12, cpu_max=None),
    "ill": Climate(ill_gap_s=0.2 * HOUR_S, target_ill_gap_s=0.3 * HOUR_S, push_fails=0.1),
    "crashes": Climate(crash_gap_s=0.5 * HOUR_S, store_fails=0.02),
    "people": Climate(
        manual_gap_s=0.2 * HOUR_S, batch_gap_s=2 * HOUR_S, change_gap_s=0.5 * HOUR_S, cpu_max=None
    ),
    "clocks go forward": Climate(zone="Europe/Berlin", day="2026-03-28", days=2.0, strategy=NIGHT),
    "clocks go back": Climate(zone="Europe/Berlin", day="2026-10-24", days=2.0, strategy=NIGHT),
    "no avoidance": Climate(strategy=Strategy(), zone="America/New_York"),
    "cron": Climate(settings=PullSettings(by_cron=True), cron="0 * * * * ?"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """``story`` is empty where every promise held."""

    climate: str
    seed: int
    events: int
    tasks: int
    most_at_once: int
    latest_s: tuple[float, ...]  # by class, beyond what is excused
    cpu_share: float  # the highest that we kept busy of the source over a minute
    starts_a_minute: int
    story: str = ""


def play(climate: str, seed: int, make_machine: type[PullMachine] = PullMachine) -> Run:
    """One whole run."""
    world = World(CLIMATES[climate], seed, make_machine)
    story = ""
    try:
        world.run()
    except Broken as broken:
        after_h = (world.time.now - world.began_at) / HOUR_S
        story = f"pull, climate {climate}, seed {seed}, after {after_h:.3f} h: {broken}"
    checkers = world.checkers
    return Run(
        climate,
        seed,
        world.coordinator.events,
        world.store.tasks,
        checkers.limits.most,
        tuple(round(late_s, 1) for late_s in checkers.punctual.latest_s.values()),
        round(world.source.peak_share, 4),
        checkers.starts_a_minute,
        story,
    )
