"""A worker of the fleet: who it is, whether it lives, and what the operator wants of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

from evermirror.model.access import TokenLimits

WorkerId = NewType("WorkerId", int)
"""An index from the bitmap of ids: the lowest that was free. What is hashed onto the ring."""

WORKERS_MAX = 65_535  # ids fit two bytes in the tables of a million repos; the last value means nobody

WEIGHT_MAX = 1000.0  # as the setting: a worker that says more would own the ring
CAPACITY_MAX = 1_000_000_000  # repos; more than any fleet has
UNTRUSTED_WEIGHT = 1.0  # where its token says nothing: as much as a worker that says nothing
UNTRUSTED_CAPACITY = 10_000  # repos, where its token says nothing: the most that one stranger can spoil


class Liveness(Enum):
    """What the heartbeats say."""

    ALIVE = "alive"
    SUSPECT = "suspect"  # missed too many rounds; its grace runs
    DOWN = "down"  # its grace is over; its repos were given to others


class Duty(Enum):
    """What the operator, or our own checks, want of it."""

    ACTIVE = "active"
    DRAINING = "draining"  # hands everything over, takes nothing new
    QUARANTINED = "quarantined"  # caught serving something else than it reported: nothing of it counts
    RETIRED = "retired"  # does not come back; its id is free again


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker says of itself, and what its token says of it."""

    name: str
    trusted: bool = False  # from the token: may hold private repos; its reports count as verified copies
    weight: float = 1.0
    capacity: int | None = None  # repos it holds at most


def worker_facts(
    name: str, trusted: bool, limits: TokenLimits, said_weight: float, said_capacity: int | None
) -> WorkerFacts:
    """A worker's weight and capacity, as they count. A trusted worker's word counts. An untrusted one has
    what its token says; its own word can only lower that: a weight below 1 takes that part of it."""
    if trusted:
        return WorkerFacts(name, trusted, said_weight, said_capacity)
    weight = UNTRUSTED_WEIGHT if limits.weight is None else limits.weight
    capacity = UNTRUSTED_CAPACITY if limits.capacity is None else limits.capacity
    if 0 < said_weight < 1:
        weight *= said_weight
    if said_capacity is not None:
        capacity = min(capacity, said_capacity)
    return WorkerFacts(name, trusted, weight, capacity)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """What is remembered of a worker for as long as it may come back. Times are UTC seconds."""

    id: WorkerId
    facts: WorkerFacts
    liveness: Liveness = Liveness.ALIVE
    duty: Duty = Duty.ACTIVE
    joined_at: float = 0.0
    last_alive_at: float = 0.0
    flap_score: float = 0.0  # as of flap_at; fades (core/fleet/flaps.py)
    flap_at: float = 0.0
    history: tuple[tuple[float, str], ...] = ()  # ups and downs, newest last, bounded

    @property
    def status(self) -> str:
        """The one word shown to people."""
        ended = self.duty in (Duty.RETIRED, Duty.QUARANTINED)
        draining = self.duty is Duty.DRAINING and self.liveness is Liveness.ALIVE
        word: Duty | Liveness = self.duty if ended or draining else self.liveness
        return str(word.value)


@dataclass(frozen=True, slots=True)
class AggregatorRecord:
    """What is remembered of an aggregator, by its token. Times are UTC seconds."""

    token_id: int
    name: str
    http_url: str = ""  # where people clone from it; empty: not told
    relay: str = ""  # the address of its relay; empty: it runs none
    version: str = ""  # of its program
    liveness: Liveness = Liveness.ALIVE
    retired: bool = False  # its token was revoked
    joined_at: float = 0.0
    last_alive_at: float = 0.0
    history: tuple[tuple[float, str], ...] = ()  # ups and downs, newest last, bounded

    @property
    def status(self) -> str:
        """The one word shown to people."""
        return Duty.RETIRED.value if self.retired else self.liveness.value
