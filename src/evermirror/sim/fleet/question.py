"""A study's question (lose, join or drain some workers), its bounds, and its answer: figures and points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from evermirror.core.fleet.settings import FleetSettings
from evermirror.errors import UsageError

HOUR = 3600.0
WORKERS_MAX = 10_000  # ten times the fleet that we build for; memory and patience end about there
REPOS_MAX = 1_000_000
COPIES_MAX = 5_000_000  # on disks of this one process
SLOTS_MAX = 1_000
BANDWIDTH_MAX_MB_S = 10_000.0
SIZE_MAX_MB = 100_000.0
LONGEST_S = 60 * 24 * HOUR


class Change(Enum):
    """What is done to the fleet."""

    LOSE = "lose"
    JOIN = "join"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Study:
    """The question. Shares are of 1; sizes in MB, rates in MB/s, times in virtual seconds."""

    workers: int
    repos: int
    change: Change
    count: int  # workers that it concerns
    replicas: int = 1
    back_after_s: float | None = None  # lost only for so long; None: for good, and their disks with them
    seed: int = 1
    grace_s: float = FleetSettings().grace_s
    bandwidth_mb_s: float = 10.0  # of each worker
    mean_mb: float = 50.0  # of a mirror
    slots: int = 10  # clones at once on a worker
    trusted: float = 1.0  # share of the workers
    private: float = 0.1  # share of the repos: these go to trusted workers only
    longest_s: float = 24 * HOUR  # after the change

    def __post_init__(self) -> None:
        for holds, problem, hint in self._rules():
            if not holds:
                raise UsageError(problem, hint=hint)

    def _rules(self) -> Iterator[tuple[bool, str, str]]:
        """Whether each holds, what is wrong if not, and what to do then. Later ones rely on the earlier."""
        yield _within("workers", self.workers, 1, WORKERS_MAX)
        yield _within("repos", self.repos, 1, REPOS_MAX)
        yield _within("replicas", self.replicas, 1, self.workers, "each copy is on another worker")
        yield _within("repos × replicas", self.repos * self.replicas, 1, COPIES_MAX)
        most = WORKERS_MAX if self.change is Change.JOIN else self.workers
        yield _within(f"workers to {self.change.value}", self.count, 1, most)
        yield _within("slots", self.slots, 1, SLOTS_MAX)
        yield _within("bandwidth", self.bandwidth_mb_s, 0.001, BANDWIDTH_MAX_MB_S, "MB/s")
        yield _within("mean size", self.mean_mb, 0.001, SIZE_MAX_MB, "MB")
        yield _within("trusted", self.trusted, 0.0, 1.0, "a share of the workers")
        yield _within("private", self.private, 0.0, 1.0, "a share of the repos")
        yield _within("grace", self.grace_s, 1.0, LONGEST_S, "seconds")
        yield _within("time studied", self.longest_s, 1.0, LONGEST_S, "seconds")
        yield (
            self.change is not Change.DRAIN or self.count < self.workers,
            f"all {self.workers} workers would be drained: nobody is left to take over",
            "Drain fewer",
        )
        yield (
            self.back_after_s is None or self.change is Change.LOSE,
            "only workers that were lost come back",
            "Say how many are lost, or leave the time of their return out",
        )
        yield (
            self.back_after_s is None or 0 < self.back_after_s < self.longest_s,
            "lost workers come back after more than 0 s, and within the time studied",
            "Let them come back sooner, or study a longer time",
        )
        yield (
            not self.private or self.trusted_workers >= self.replicas,
            f"each copy of a private repo is on another trusted worker: {self.replicas} are needed, "
            f"and {self.trusted_workers} of {self.workers} are trusted",
            "Trust a larger share of the workers, or set the share of private repos to 0",
        )

    @property
    def trusted_workers(self) -> int:
        return sum(is_trusted(index, self.trusted) for index in range(self.workers))

    @property
    def settings(self) -> FleetSettings:
        """The fleet's own, as an operator has them; the warm-up ends when all are there."""
        return FleetSettings(replicas=self.replicas, grace_s=self.grace_s, min_workers=self.workers)

    @property
    def detection_s(self) -> float:
        """At most, from the loss of a worker until it is suspected."""
        settings = self.settings
        return (settings.max_missed + 2) * settings.heartbeat_s + settings.tick_s


def _within(what: str, value: float, least: float, most: float, why: str = "") -> tuple[bool, str, str]:
    told = f"{what} is {value:g}{f' ({why})' if why else ''}"
    return least <= value <= most, told, f"Choose from {least:,.10g} to {most:,.10g}"


def is_trusted(index: int, share: float) -> bool:
    """Spread evenly: of any stretch of workers about this share is trusted."""
    return int((index + 1) * share + 1e-9) > int(index * share + 1e-9)


@dataclass(frozen=True, slots=True)
class Point:
    """The fleet at one time; rates are means since the point before."""

    at_s: float  # from the change
    alive: int  # workers
    owned: int  # repos wanted on a live worker
    held: int  # repos complete on a live worker
    waiting: int  # copies planned, not asked for yet
    asked: int  # copies asked for, not complete yet
    load: float  # busiest live worker against their mean, in wanted copies
    upstream_mb_s: float
    relay_mb_s: float
    braked: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """The answer. Times are seconds from the change; None: not within the time studied."""

    copies: int  # wanted in all, before
    ideal: int  # copies that had to move whoever decides
    moved: int  # copies that came, or are to come, to a worker that did not have them
    cloned: int  # of these, complete by now
    relayed: int  # of these, through the relay from another worker
    deleted: int  # no longer wanted there
    upstream_mb: float
    relay_mb: float
    suspected_after_s: float | None  # the first
    down_after_s: float | None  # the first: its repos are given to others
    unowned_max: int  # repos at once without a live worker that should hold them
    owned_after_s: float | None  # from then on every repo has one; 0 where none was ever without
    unheld_max: int
    held_after_s: float | None  # the same for a complete copy on a live worker
    settled_after_s: float | None  # every copy is where it should be, and nothing else is anywhere
    waiting_for_room: int  # repos with fewer copies than they should have, at the end: nobody can take them
    brake_after_s: float | None  # None: it was never on
    brake_at_end: bool
    load_before: float
    load_peak: float
    load_after: float
    peak_mb_s: float
    upstream_peak_mb_s: float
    relay_peak_mb_s: float
    upstream_mean_mb_s: float  # while bytes moved
    relay_mean_mb_s: float
    busy_s: float  # bytes moved
    studied_s: float
    events: int  # handled by the machine, from the first
    points: tuple[Point, ...]
