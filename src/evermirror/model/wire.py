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
        │ AskSource ────────────────────────────────────────▶ │   a ticket has ended: a LookAt brings another
        │ ◀────────────────────────────────────────── Access  │   its pass and the relays, renewed in time

      aggregator
        │ Hello ────────────────────────────────────────────▶ │   where its relay listens
        │ ◀──────────────────────────────── Welcomed, Access  │   or Rejected
        │ Follow(since) ────────────────────────────────────▶ │
        │ ◀───────────────────────────────────────── Changes  │   one at a time, until …
        │ Followed(upto) ───────────────────────────────────▶ │   … they are on its disk
        │ Have, Lack ───────────────────────────────────────▶ │   what it serves, verified
        │ AskHolders ───────────────────────────────────────▶ │
        │ ◀───────────────────────────────────────── Holders  │
        │ Doubted, Accused ─────────────────────────────────▶ │   let them look; this one lies
"""

from __future__ import annotations

from dataclasses import dataclass, field

from evermirror.model.access import Role
from evermirror.model.changes import Change, RepoHolders
from evermirror.model.messages import ApplySettings, Command, HeldRepo, Progress, Report, WorkerStatus
from evermirror.model.relay import Denial, NodeId, RelayAddress
from evermirror.model.repo import RepoKey

PROTOCOL = 3  # grows when a frame changes its meaning; unknown fields of a newer side are left out
UNREACHED_MAX = 1_000  # nodes in a heartbeat: those beyond are told once others are reached again
PROTOCOL_OLDEST = 1  # the oldest that a coordinator still speaks with

# Worker to coordinator


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame. ``boot`` names the process, ``generation`` the local file in which reports are
    numbered; ``epoch`` and ``seen`` are the coordinator's process that it last spoke with, and that one's
    last command."""

    protocol: int
    version: str  # of the program
    name: str  # empty: as its token is named
    boot: int
    generation: int
    epoch: int = 0
    seen: int = 0
    weight: float = 1.0
    capacity: int | None = None
    relay: RelayAddress | None = None  # that it runs, as others reach it
    role: Role | None = None  # what it takes itself for: a token of the other kind is then refused in words
    limits: ApplySettings | None = None  # that it was told last, by whichever process
    refs_extra: tuple[str, ...] = ()  # what it mirrors besides branches and tags: digests depend on it
    trial: bool = False  # it only asks whether it would be let in: nothing is registered
    http_url: str = ""  # of an aggregator: where people clone from it


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, with load and disk. ``unreached``: of an aggregator, holders to which its relay has no
    line now; bounded."""

    status: WorkerStatus
    unreached: tuple[NodeId, ...] = ()


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


@dataclass(frozen=True, slots=True)
class AskSource:
    """It copies this repo from a holder, and the ticket has ended: another comes in a LookAt without keys."""

    key: RepoKey


# Aggregator to coordinator


@dataclass(frozen=True, slots=True)
class Follow:
    """Tell every change after this number; 0: every repo."""

    since: int


@dataclass(frozen=True, slots=True)
class Followed:
    """Changes up to ``upto`` are on its disk."""

    upto: int


@dataclass(frozen=True, slots=True)
class Have:
    """It serves these, verified; told again in full after each Welcomed that is not resumed."""

    items: tuple[HeldRepo, ...]


@dataclass(frozen=True, slots=True)
class Lack:
    """It no longer holds these."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class AskHolders:
    """Who holds these now? At most 500."""

    number: int
    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class Doubted:
    """What holders report of these is not what upstream says: let them look again. At most 500."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class Accused:
    """What this node reported or served is false, for a reason that a person can check."""

    node: NodeId
    key: RepoKey
    reason: str
    evidence: str  # digests and times, as text


FromWorker = Hello | Beat | Holding | Numbered | Passing | Obeyed | Compared | Answer | AskSource
FromAggregator = Hello | Beat | Follow | Followed | Have | Lack | AskHolders | Doubted | Accused
Up = FromWorker | FromAggregator

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
    redial_s: float = 0.0  # the longest pause between two tries to reach it again; 0: not said
    grace_s: float = 0.0  # out of contact for longer, its repos may be somebody else's; 0: not said
    name: str = ""  # of the node, for people


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


@dataclass(frozen=True, slots=True)
class Access:
    """Who the node is for others, and where relays are. ``pass_`` is sealed by the coordinator's key, whose
    public half is ``seal_key``; a new frame comes well before the pass ends (``until``, UTC seconds by the
    coordinator's clock, which shows ``told_at`` now)."""

    node: NodeId
    pass_: str = field(repr=False)
    until: float
    seal_key: bytes
    relays: tuple[RelayAddress, ...] = ()
    user_tokens: bool = False  # for aggregators: the coordinator has tokens that are people's, not nodes'
    denied: tuple[Denial, ...] = ()  # for aggregators: all nodes that their relays refuse from now on
    told_at: float = 0.0  # 0: not said


# Coordinator to aggregator


@dataclass(frozen=True, slots=True)
class Changes:
    """In the order of their numbers; the next ones follow once these are on the aggregator's disk."""

    items: tuple[Change, ...]
    upto: int


@dataclass(frozen=True, slots=True)
class Holders:
    """The answer to the question of that number."""

    number: int
    items: tuple[RepoHolders, ...]


ToWorker = Welcomed | Rejected | Ordered | Taken | Compare | Question | Access
ToAggregator = Welcomed | Rejected | Access | Changes | Holders
Down = ToWorker | ToAggregator
