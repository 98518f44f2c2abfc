"""What the fleet's machine decides: writes, committed in one transaction, and then actions, in order.

Who runs the machine persists ``writes`` before it starts any of ``actions``. A crash in between loses the
actions only: each follows again from what was written (see machine.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from evermirror.core.fleet.digests import RangeDigests
from evermirror.core.fleet.table import CopyState, Reason
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId, WorkerRecord

# Writes


@dataclass(frozen=True, slots=True)
class CopyRow:
    """One row of the placement; ``rank`` None: held, but no longer wanted there."""

    key: RepoKey
    worker: WorkerId
    rank: int | None
    state: CopyState
    reason: Reason
    since_s: float


@dataclass(frozen=True, slots=True)
class PutCopies:
    """Very many at the first placement: then ``rows`` makes each one as it is looked at."""

    rows: Sequence[CopyRow]


@dataclass(frozen=True, slots=True)
class DropCopies:
    copies: tuple[tuple[RepoKey, WorkerId], ...]


@dataclass(frozen=True, slots=True)
class PutSalt:
    """So often was the repo handed back; part of its place on the ring."""

    key: RepoKey
    salt: int


@dataclass(frozen=True, slots=True)
class PutWorker:
    record: WorkerRecord


@dataclass(frozen=True, slots=True)
class ReportTaken:
    """Reports of this worker and generation are known up to ``seq``."""

    worker: WorkerId
    generation: int
    seq: int


Write = PutCopies | DropCopies | PutSalt | PutWorker | ReportTaken


# Commands to a worker, numbered by its outbox


@dataclass(frozen=True, slots=True)
class Assignment:
    """``primary``: it polls, syncs and pushes; others follow it. ``source``: a live holder to clone from,
    through the relay, so that only the difference comes from upstream. ``orphan``: nobody holds it, the
    front of the queue."""

    key: RepoKey
    primary: bool
    source: WorkerId | None = None
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Hold these from now on, or, where held already, in this role. ``more``: the list goes on in the next
    command."""

    items: tuple[Assignment, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """``delete``: another verified copy exists, or the catalog dropped it. To the trash with it, told by
    ``CopiesDropped``; but where ``digests`` (parallel to ``keys``) names another digest than 0 or the one
    it has by then, it stays, told by ``DeletionsDeclined``. Without ``delete`` it only stops:
    ``CopiesVerified`` for what is complete, ``CopiesDropped`` for the rest."""

    keys: tuple[RepoKey, ...]
    delete: bool
    digests: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Nudge:
    """Look at upstream (or, as a follower, at the primary) now and report the digest: copies differ."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class CompareRanges:
    """Compare with what you hold; answer with ``RangesCompared`` (no ranges where all are equal)."""

    digests: RangeDigests


@dataclass(frozen=True, slots=True)
class SetLimits:
    """The worker's shares of the fleet's rates, all of them. In force as soon as it is taken in."""

    limits: ApplySettings


@dataclass(frozen=True, slots=True)
class Other:
    """A command that placement knows nothing of."""

    command: object


Command = Assign | Release | Nudge | CompareRanges | SetLimits | Other


# Actions


@dataclass(frozen=True, slots=True)
class Welcome:
    """The worker is registered; ``resumed`` tells it whether to go on or to tell all that it holds.

    An ``AckReports`` follows: what comes after is sent (again) by the worker, before anything new."""

    session: int
    worker: WorkerId
    epoch: int
    resumed: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """This session may not join."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class Send:
    worker: WorkerId
    session: int
    seq: int
    command: Command


@dataclass(frozen=True, slots=True)
class AckReports:
    """Reports up to ``seq`` are safe here: the worker may forget them. At the start of a session, and where
    the same number comes twice, it sends again what comes after."""

    worker: WorkerId
    session: int
    generation: int
    seq: int


class AlertKind(Enum):
    """What people must know of the fleet."""

    BRAKE = "brake"  # too many suspects at once: nobody is declared down
    NO_ROOM = "no-room"  # repos wait, no worker can take them
    WORKER_DOWN = "worker-down"
    QUARANTINE = "quarantine"
    ACCUSATION = "accusation"  # an aggregator accuses more workers than it is believed about
    DISK_FULL = "disk-full"  # a worker takes no new clones
    AGGREGATOR_DOWN = "aggregator-down"  # nobody can clone from it
    STALLED = "stalled"  # work waits, and none of it moves
    SLOW = "slow-clones"  # a worker does not complete the first clones that it was asked for
    UNVERIFIED = "unverified"  # repos that only untrusted workers say they hold
    UNREACHABLE = "unreachable"  # no relay has a line to a worker: nobody can read what it holds
    STRAY = "stray"  # a worker holds repos that nobody knows of; they are left alone


@dataclass(frozen=True, slots=True)
class Alert:
    """Raised, or, with ``over``, cleared. ``about`` tells alerts of one kind apart; ``facts`` are what is in
    the text, for other languages."""

    kind: AlertKind
    about: str
    text: str
    over: bool = False
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A command given from outside did not reach its worker, which is gone, full or began anew."""

    worker: WorkerId
    command: object


@dataclass(frozen=True, slots=True)
class DutyChanged:
    """People want something else of this worker now, or nothing at all: other nodes may have to know."""

    record: WorkerRecord


Action = Welcome | Refuse | Send | AckReports | Alert | Undelivered | DutyChanged


@dataclass(frozen=True, slots=True)
class Decision:
    writes: tuple[Write, ...] = field(default=())
    actions: tuple[Action, ...] = field(default=())


NOTHING = Decision()


class EventFailed(Exception):
    """An event that the machine could not handle: a bug. ``decision`` is what had followed from it before:
    the tables have changed by it, so it is persisted and acted on. The number of a report is not taken."""

    def __init__(self, event: object, decision: Decision) -> None:
        super().__init__(f"{type(event).__name__} could not be handled")
        self.decision = decision
