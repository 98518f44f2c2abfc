"""What happened: the only way in to the fleet's machine (``machine.handle(event, now)``).

A *session* is one connection of a worker; the newest counts, and events of older ones are ignored. A
session is *resumed* when worker process and coordinator process are the same as before: the two streams of
numbered messages simply go on. Otherwise it is *fresh*: nothing that was sent before is still to be done,
and the worker begins by telling all that it holds (``HeldTold``, the last with ``last``).
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId


@dataclass(frozen=True, slots=True)
class Moment:
    """Monotonic for liveness and timeouts, UTC for what is remembered."""

    mono_s: float
    utc_s: float


@dataclass(frozen=True, slots=True)
class CatalogRepo:
    """What placement must know of a repo."""

    key: RepoKey
    trusted_only: bool = False  # private, or needs a credential
    replicas: int | None = None  # None: the fleet's setting
    pins: tuple[str, ...] = ()  # names of workers that shall hold it
    urgent: bool = False  # of a high priority: its first clone goes before others


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """One mirror on a worker's disk; ``digest`` is the first 8 bytes of its refs digest, 0 where not
    known."""

    key: RepoKey
    digest: int
    verified_s: float = 0.0


# Catalog


@dataclass(frozen=True, slots=True)
class CatalogChanged:
    """Repos that came, changed or left."""

    put: tuple[CatalogRepo, ...] = ()
    removed: tuple[RepoKey, ...] = ()
    forgotten: tuple[RepoKey, ...] = ()  # removed long ago, trash emptied: no more known than any unknown key


@dataclass(frozen=True, slots=True)
class CloneHastened:
    """Somebody waits for this repo, which may not have been asked of its worker yet."""

    key: RepoKey


# Workers


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    """``worker`` None: its token joins for the first time, and it gets an id.

    ``boot`` names the worker's process, ``generation`` its local file, ``epoch`` the coordinator's process
    that it last spoke with, ``seen`` the last command it took in from that one; ``limits`` are those it was
    told last, by whichever process. ``serves``: people read from its machine (an all-in-one's own worker)."""

    session: int
    worker: WorkerId | None
    facts: WorkerFacts
    boot: int
    generation: int
    epoch: int = 0
    seen: int = 0
    limits: ApplySettings | None = None
    serves: bool = False


@dataclass(frozen=True, slots=True)
class WorkerDisconnected:
    worker: WorkerId
    session: int


@dataclass(frozen=True, slots=True)
class HeartbeatHeard:
    """``accepting`` is False above the disk guard's mark, or where the disk does not take writes.
    ``progress`` is another number whenever a sync that runs there got further; 0: none runs."""

    worker: WorkerId
    session: int
    accepting: bool = True
    progress: int = 0


@dataclass(frozen=True, slots=True)
class CommandsAcked:
    """The worker took in every command up to ``seq``; it will do them, or tell why not."""

    worker: WorkerId
    session: int
    seq: int


@dataclass(frozen=True, slots=True)
class HeldTold:
    """What it holds, in chunks, at the start of a fresh session, after its older reports. Not numbered: a
    session that breaks before ``last`` is followed by a fresh one, which tells it all again."""

    worker: WorkerId
    session: int
    copies: tuple[HeldCopy, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class RangesCompared:
    """Answer to ``CompareRanges``, in order with its reports: all it holds in the ranges that differ."""

    worker: WorkerId
    session: int
    ranges: tuple[int, ...]
    copies: tuple[HeldCopy, ...]


# Reports of a worker, numbered by it: each is taken once


@dataclass(frozen=True, slots=True)
class ReportId:
    """``generation`` names the worker's local file, in which the numbers are kept."""

    worker: WorkerId
    session: int
    generation: int
    seq: int


@dataclass(frozen=True, slots=True)
class CopiesVerified:
    """These are complete here, equal to upstream at a stated time: a clone done, or a sync that changed
    refs."""

    id: ReportId
    copies: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class CopiesDropped:
    """Nothing of these is on its disk (any more)."""

    id: ReportId
    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class DeletionsDeclined:
    """These were to be deleted, but have other refs by now than those that are covered: they stay."""

    id: ReportId
    copies: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class ClonesDeferred:
    """An attempt at these failed, or none can begin now. Where it was a first clone, it keeps nobody waiting:
    the worker tries again by itself."""

    id: ReportId
    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class ReposHandedBack:
    """It cannot take these: no room. Nothing of them is on its disk."""

    id: ReportId
    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class OtherReported:
    """A report that says nothing about placement; its number counts all the same."""

    id: ReportId


# The aggregator


@dataclass(frozen=True, slots=True)
class WitnessHeld:
    """The aggregator holds these, complete: a copy with the same digest may be deleted elsewhere."""

    copies: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class WitnessLost:
    """The aggregator no longer holds these; None: nothing is known of any (it went away)."""

    keys: tuple[RepoKey, ...] | None = None


@dataclass(frozen=True, slots=True)
class AggregatorsTold:
    """Whether the fleet has aggregators: they fetch what untrusted workers hold, and so prove it."""

    some: bool


@dataclass(frozen=True, slots=True)
class UnreachedTold:
    """All workers that hold something and to which no relay has a line now."""

    workers: frozenset[WorkerId]


# People


@dataclass(frozen=True, slots=True)
class DrainAsked:
    worker: WorkerId


@dataclass(frozen=True, slots=True)
class DutyResumed:
    """Back to active: from draining or from quarantine."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class RetireAsked:
    """It does not come back: whatever it still holds alone is cloned anew elsewhere."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class QuarantineAsked:
    worker: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class BrakeOverruled:
    """A person says: those suspects are really gone."""


@dataclass(frozen=True, slots=True)
class CommandGiven:
    """Something else for a worker, to be delivered in order with the rest (a sync on demand, settings)."""

    worker: WorkerId
    command: object


# Time


@dataclass(frozen=True, slots=True)
class Ticked:
    """Comes about every ``tick_s``; late or missing ones are no matter."""


Event = (
    CatalogChanged
    | CloneHastened
    | WorkerConnected
    | WorkerDisconnected
    | HeartbeatHeard
    | CommandsAcked
    | HeldTold
    | CopiesVerified
    | CopiesDropped
    | DeletionsDeclined
    | ReposHandedBack
    | ClonesDeferred
    | OtherReported
    | RangesCompared
    | WitnessHeld
    | WitnessLost
    | AggregatorsTold
    | UnreachedTold
    | DrainAsked
    | DutyResumed
    | RetireAsked
    | QuarantineAsked
    | BrakeOverruled
    | CommandGiven
    | Ticked
)
