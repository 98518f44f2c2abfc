"""What a simulated run is made of, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from evermirror.core.fleet.settings import FleetSettings
from evermirror.sim.fleet.faults import Faults
from evermirror.sim.fleet.network import Habits

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The same plan is the same run. Shares are of 1; times in virtual seconds."""

    seed: int = 1
    workers: int = 10
    repos: int = 200
    trusted: float = 0.7  # share of the workers
    private: float = 0.1  # share of the repos
    dead: float = 0.0  # share of the repos that no clone ever succeeds of
    replicas: tuple[int, ...] = ()  # a repo's own, by chance; empty: the fleet's setting
    weights: tuple[float, ...] = (1.0,)  # of workers, by chance
    room: int | None = None  # copies that a worker's disk takes, of which it does not speak
    serving: bool = False  # people read from the first worker's machine
    slots: int = 10  # clones at once on a worker
    witness: float = 0.0  # share of the repos that the aggregator fetches
    duration_s: float = 4 * HOUR
    calm_s: float = 1 * HOUR  # at the end: no new faults
    join_s: float = 30.0  # within it the first workers start
    trash_s: float = HOUR  # from removal until a repo is forgotten
    sweep_s: float = 60.0
    sample_s: float = 60.0
    settings: FleetSettings = field(default_factory=FleetSettings)
    faults: Faults = field(default_factory=Faults)
    habits: Habits = field(default_factory=Habits)


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one time, as the coordinator sees it; ``load`` is the busiest worker against the mean."""

    now: float
    repos: int
    owned: int
    held: int
    moving: int
    asked: int
    alive: int
    load: float
    braked: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """``trace`` is a digest of every event and decision: equal for equal plans."""

    events: int  # handled by the machine
    steps: int  # of the world
    messages: int
    checks: int
    clones: int
    relayed: int  # of these, through the relay from another worker
    cloned_mb: float
    deleted: int
    owned_at: float | None  # first sample with every repo owned
    held_at: float | None  # and with every repo held
    epochs: int  # lives of the coordinator
    samples: tuple[Sample, ...]
    trace: str
