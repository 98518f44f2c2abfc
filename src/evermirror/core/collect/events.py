"""What happened: the only way in to the collector (``machine.handle(event, now)``, ``now`` in UTC seconds).

Events are handled one at a time. Some carry the repo's ``row`` as the store has it, read after the writes of
all earlier decisions; None where the store has none. Where the machine holds the row itself, its own counts.

Reads that the store must offer, each answered by one event:
    row_of(key)                 for Changed, Wanted and Lost
    pending(first, after, limit)  rows with a place or a doubt (``row.scan_at`` is not None) of which nothing
                                (``first``) or something is here, in the order (scan_at, key), beyond
                                ``after``: answers LoadPending with PendingLoaded
    audited(share, first)       one row that is here (first: that is not, and was reported), untrusted and
                                enabled, at that share of all, as near to evenly as is cheap: answers
                                PickAudit with AuditPicked
    least_used(limit)           what is here, the longest unused first: for DiskTold above the mark
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.core.collect.rows import Row
from evermirror.model.changes import Change, RepoHolders
from evermirror.model.failure import Failure
from evermirror.model.kept import GuardMemory
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

Cursor = tuple[float, RepoKey]  # of a scan through the store: time and key of the last row seen


class End(Enum):
    """How an attempt ended. The edge turns everything that can happen into one of these."""

    DONE = "done"  # published: the refs here are ``published``
    LOOKED = "looked"  # a look at upstream only: ``upstream`` is what it said
    MISSING = "missing"  # the holder lacks objects that upstream's refs name ("not our ref")
    DIFFERS = "differs"  # the holder serves other refs (``served``) than were expected; nothing was fetched
    CORRUPT = "corrupt"  # objects, as received whole, are broken or fail fsck; never a stream that broke off
    HOLDER_AWAY = "holder-away"  # no line, busy, broke off, stalled, or sent more than the bound
    HOLDER_REFUSED = "holder-refused"  # not here, or it does not let us
    UPSTREAM_AWAY = "upstream-away"  # did not answer, is gone, limits us, or wants credentials
    GUARDED = "guarded"  # the guard here holds the change back (``guard``); nothing public changed
    NO_ROOM = "no-room"  # on the disk here
    FAILED = "failed"  # anything else, by no fault of the holder: damage here, a bug, a shutdown


@dataclass(frozen=True, slots=True)
class Attempt:
    """One ``Fetch`` or ``Look``, ended. ``number`` and ``key`` are those of the action.

    ``looked_at`` is when the refs that count were asked for (UTC seconds, taken before the question):
    upstream's, or the holder's where its word is believed. After MISSING the holder is asked for its refs
    (``served``) where it still answers."""

    number: int
    key: RepoKey
    end: End
    looked_at: float
    upstream: RefsDigest | None = None  # what upstream said; None where it was not asked, or did not answer
    served: RefsDigest | None = None  # the holder's public refs as it served them; None where not asked
    published: RefsDigest | None = None  # of the public refs that are here now (DONE)
    size_bytes: int = 0  # of the mirror here (DONE)
    guard: GuardMemory | None = None
    failure: Failure | None = None
    retry_after_s: float | None = None  # what the other side asked for


@dataclass(frozen=True, slots=True)
class Changed:
    """The coordinator told a repo as it is now; also one that left the catalog (``change.removed``)."""

    change: Change
    row: Row | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A client waits for this repo, which is not served now. Answered by TellClients, always and once; asked
    again for the same repo, all who wait get the same answer."""

    key: RepoKey
    row: Row | None


@dataclass(frozen=True, slots=True)
class HoldersTold:
    """Who holds these now, as the coordinator answered."""

    items: tuple[RepoHolders, ...]


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Reachability:
    """These nodes can be read from now: all of them, not the difference."""

    nodes: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class PendingLoaded:
    """The answer to LoadPending; ``last``: the store has no more beyond these."""

    first: bool
    rows: tuple[Row, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class AuditPicked:
    """The answer to PickAudit; None: there is nothing to audit."""

    row: Row | None


@dataclass(frozen=True, slots=True)
class Unused:
    """A repo that is here, as a candidate to make room; ``read``: a client is reading it now."""

    row: Row
    read: bool = False


@dataclass(frozen=True, slots=True)
class DiskTold:
    """A look at the disk, every few seconds. ``least_used``: in pull-through mode at or above the mark
    (``settings.disk_high``) the least used that are here, in that order; empty otherwise."""

    used_share: float
    total_bytes: int
    least_used: tuple[Unused, ...] = ()


@dataclass(frozen=True, slots=True)
class Evicted:
    """``Evict`` is done: its room is free again."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Lost:
    """The mirror that the row says is here is ``damaged``, or gone from the disk."""

    key: RepoKey
    damaged: bool
    row: Row | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """Comes about every second; ``chance`` is evenly drawn from [0, 1)."""

    chance: float = 0.0


Event = (
    Changed
    | Wanted
    | HoldersTold
    | AttemptEnded
    | Reachability
    | PendingLoaded
    | AuditPicked
    | DiskTold
    | Evicted
    | Lost
    | Ticked
)
