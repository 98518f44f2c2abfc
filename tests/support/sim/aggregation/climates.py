"""Kinds of weather for the aggregator, each a way to be rough; `tools/soak --collect` plays them all."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.collect.settings import CollectMode, CollectSettings, Verify
from tests.support.sim.aggregation.checks import Broken
from tests.support.sim.aggregation.worker import Kind
from tests.support.sim.aggregation.world import Climate, World

SMALL = CollectSettings(fetches=4, per_holder=2, looks=2, queue_max=64, load_batch=10, rescan_s=60.0)
TIGHT = CollectSettings(fetches=2, per_holder=1, looks=1, queue_max=6, load_batch=3, rescan_s=30.0)
PULL = CollectSettings(mode=CollectMode.PULL_THROUGH, fetches=4, queue_max=64, rescan_s=60.0)
ALL = CollectSettings(verify=Verify.ALL, fetches=4, queue_max=64, rescan_s=60.0)

CLIMATES: dict[str, Climate] = {
    "honest": Climate(SMALL, trusted=0, honest=6, holders=3),
    "trusted": Climate(SMALL, trusted=3, honest=5),
    "liars": Climate(SMALL, trusted=0, liars=(Kind.STALE, Kind.FORGER, Kind.CORRUPT, Kind.HOLLOW)),
    "switchers": Climate(SMALL, liars=(Kind.SWITCHER, Kind.STALE), trusted=2, away_gap_s=60.0),
    "tight": Climate(TIGHT, repos=40, trusted=1, liars=(Kind.STALE,), push_gap_s=60.0, crash_gap_s=300.0),
    "pull": Climate(PULL, trusted=1, liars=(Kind.STALE,), client_gap_s=3.0, disk_repos=12),
    "verify": Climate(ALL, trusted=2, liars=(Kind.FORGER,)),
    "lagging": Climate(SMALL, trusted=1, honest=5, report_delay_s=60.0, cut_gap_s=300.0, push_gap_s=8.0),
    "swinging": Climate(SMALL, trusted=0, honest=4, back_share=0.3, push_gap_s=6.0),
}


@dataclass(frozen=True, slots=True)
class Run:
    """``story`` is empty where every promise held."""

    climate: str
    seed: int
    events: int
    served: int
    accused: int
    story: str = ""


def play(climate: str, seed: int) -> Run:
    """One whole run."""
    world = World(CLIMATES[climate], seed)
    story = ""
    try:
        world.run()
    except Broken as broken:
        at = world.time.now
        story = f"collect, climate {climate}, seed {seed}, at {at:.1f}: {broken}"
    checks = world.aggregator.checks
    return Run(climate, seed, world.aggregator.events, checks.served, len(checks.accused), story)
