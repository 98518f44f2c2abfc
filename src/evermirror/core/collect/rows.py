"""What the aggregator knows of one repo: the row that its store keeps, whole, under the repo's key.

Everything that must outlive a crash is in here; the machine holds rows of repos that something is to be done
about, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.model.kept import GuardMemory
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey, RepoSpec

DIGEST_LEAST = 16  # hex digits: the fleet's tables keep 8 bytes of a digest


def agree(one: RefsDigest | None, other: RefsDigest | None) -> bool:
    """Two digests name the same refs. One of them may be known by its first 8 bytes alone."""
    if one is None or other is None:
        return False
    length = min(len(one), len(other))
    return length >= DIGEST_LEAST and one[:length] == other[:length]


class How(Enum):
    """By whose word the refs here are upstream's."""

    UPSTREAM = "upstream"  # its own
    HOLDER = "holder"  # a trusted worker's
    QUORUM = "quorum"  # of several operators' workers, while upstream was away
    DOUBTED = "doubted"  # by the word of a node that was accused since: on the disk, not served
    DAMAGED = "damaged"  # nobody's: the mirror is broken, not served, and replaced by the next fetch


UNSERVED = (How.DOUBTED, How.DAMAGED)


@dataclass(frozen=True, slots=True)
class Here:
    """What is on the disk, complete. Times are UTC seconds."""

    digest: RefsDigest  # of the public refs that are here
    verified_at: float
    how: How
    source: NodeId  # whom it was last fetched from
    size_bytes: int = 0


class Charge(Enum):
    """What a holder is suspected of."""

    STALE = "stale"  # reports other refs than upstream's as verified
    LACKS = "lacks"  # advertises refs whose objects it does not give
    DIFFERS = "differs"  # serves other refs than it reports
    REFUSES = "refuses"  # reports a repo, and gives nothing of it
    CORRUPT = "corrupt"  # gives objects that are none


@dataclass(frozen=True, slots=True)
class Suspicion:
    """``fact`` is what was seen at ``since`` and has stood still since then: upstream's digest, or, for
    DIFFERS, the one that the holder served. A *strike*: in between it reported something else.
    ``reported_at`` is the time of the report that counted last, as the holder told it."""

    node: NodeId
    charge: Charge
    fact: RefsDigest
    since: float
    strikes: int = 0
    reported_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something does not fit: it is looked at again at ``again_at``, for a bounded number of rounds."""

    again_at: float
    rounds: int = 0
    suspicions: tuple[Suspicion, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One repo. ``place`` is where it stands in the queue (see queue.py), None where there is nothing to
    fetch; ``taken`` is the reported digest that the last success answered, which in append-only mode is not
    the one here."""

    spec: RepoSpec
    seq: int
    alias: str | None = None
    enabled: bool = True
    held_back: bool = False
    wanted: RefsDigest | None = None  # as last reported; None: no worker has it yet
    wanted_at: float | None = None  # when the reporter saw it upstream
    changed_at: float | None = None
    size_bytes: int = 0  # as reported: what a first fetch will take
    untrusted: bool = True  # no trusted worker held it when that was last told: it is audited
    here: Here | None = None
    taken: RefsDigest | None = None
    place: float | None = None
    failures: int = 0  # in a row
    retry_at: float = 0.0
    doubt: Doubt | None = None
    guard: GuardMemory | None = None  # what the guard here remembers, for the next fetch

    @property
    def key(self) -> RepoKey:
        return self.spec.key

    @property
    def first(self) -> bool:
        """Nothing is here yet: a clone, not an update."""
        return self.here is None

    @property
    def scan_at(self) -> float | None:
        """By which the store orders what is pending; None: nothing is to be done."""
        if self.place is not None:
            return self.place
        return self.doubt.again_at if self.doubt is not None else None

    @property
    def served(self) -> bool:
        """Clients may have what is here."""
        return self.here is not None and self.here.how not in UNSERVED
