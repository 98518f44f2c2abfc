"""What travels between a worker and its coordinator, frame by frame; over gRPC between machines, as it is
in one.

      worker                                             coordinator
        │ Hello ────────────────────────────────────────────▶ │   who it is: by its token, not by its word
        │ ◀──────────────────────────────── Welcomed, Taken   │   or Rejected
        │ Numbered (what was not acknowledged) ─────────────▶ │
        │ Holding … Holding(last) ──────────────────────────▶ │   unless the session is resumed
        │ ◀───────────────────────────────────────── Ordered  │   commands, numbered
        │ Obeyed ───────────────────────────────────────────▶ │
        │ Beat ─────────────────────────────────────────────▶ │   every few seconds; never answered
        │ Numbered ─────────────────────────────────────────▶ │   reports, kept by the worker until …
        │ ◀─────────────────────────────────────────── Taken  │   … this
        │ Passing ──────────────────────────────────────────▶ │   progress: seen live, never kept
        │ ◀───────────────────────────────────────── Compare  │   now and then
        │ Compared ─────────────────────────────────────────▶ │
        │ ◀──────────────────────────────────────── Question  │   small reads for people
        │ Answer ───────────────────────────────────────────▶ │
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.messages import Command, HeldRepo, Progress, Report, WorkerStatus
from evermirror.model.repo import RepoKey

PROTOCOL = 1  # grows when a frame changes its meaning; unknown fields of a newer side are left out
PROTOCOL_OLDEST = 1  # the oldest that a coordinator still speaks with

# Worker to coordinator


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame. ``boot`` names the process, ``generation`` the local file in which reports are
    numbered; ``epoch`` and ``seen`` are the coordinator's process that it last spoke with, and that one's
    last command."""

    protocol: int
    version: str  # of the program
    name: str
    boot: int
    generation: int
    epoch: int = 0
    seen: int = 0
    weight: float = 1.0
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, with load and disk."""

    status: WorkerStatus


@dataclass(frozen=True, slots=True)
class Holding:
    """What is on its disk, in chunks, at the start of a fresh session."""

    items: tuple[HeldRepo, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Numbered:
    """Reports with consecutive numbers, the first of which is ``first``."""

    generation: int
    first: int
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Passing:
    """What is worth seeing now and not worth keeping."""

    progress: tuple[Progress, ...]


@dataclass(frozen=True, slots=True)
class Obeyed:
    """Every command up to ``seq`` was taken in."""

    seq: int


@dataclass(frozen=True, slots=True)
class Compared:
    """All it holds in the ranges that differ; no ranges where all are equal."""

    ranges: tuple[int, ...]
    items: tuple[HeldRepo, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """To the question of that number: a JSON document, or what is wrong."""

    number: int
    body: str
    error: str = ""


Up = Hello | Beat | Holding | Numbered | Passing | Obeyed | Compared | Answer

# Coordinator to worker


@dataclass(frozen=True, slots=True)
class Welcomed:
    """It may work. ``resumed``: both numbered streams go on; otherwise it forgets commands that it has not
    done yet, and tells all that it holds."""

    worker: int
    epoch: int
    resumed: bool
    heartbeat_s: float
    http_url: str = ""  # where people and nodes reach the coordinator
    relays: tuple[str, ...] = ()  # host:port of each


@dataclass(frozen=True, slots=True)
class Rejected:
    """It may not; ``final`` where trying again is of no use without a person."""

    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class Ordered:
    """A command, with its number."""

    seq: int
    command: Command


@dataclass(frozen=True, slots=True)
class Taken:
    """Reports up to ``seq`` are safe. Lower than what was sent: something was missed, send again from
    there."""

    generation: int
    seq: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Digests of ranges of all that it is believed to hold (core/fleet/digests.py); a numbered command
    too."""

    seq: int
    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A small read: ``what`` is one of plan, refs, guard, history, upkeep."""

    number: int
    what: str
    key: RepoKey


Down = Welcomed | Rejected | Ordered | Taken | Compare | Question
