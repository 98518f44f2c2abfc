"""What a study of the fleet found: figures from the change on, and points over time."""

from __future__ import annotations

from dataclasses import dataclass


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
