"""What the collector decides: writes, committed in one transaction, and then actions, in order.

Writes are persisted before actions start. A crash in between loses the actions only. After one the node
serves what its rows say is here (``row.served``), discards mirrors that have no row, deletes those that no
row says are here unless the row has a place (a fetch goes on with them), and makes a new machine, whose
first tick asks for the pending rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from evermirror.core.collect.events import Cursor
from evermirror.core.collect.rows import Here, Row
from evermirror.model.changes import HolderReport
from evermirror.model.kept import GuardMemory
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey, RepoSpec

# Writes


@dataclass(frozen=True, slots=True)
class PutRow:
    """The whole row, new or in place of the old one. When it was last used is the store's own matter."""

    row: Row


@dataclass(frozen=True, slots=True)
class DropRow:
    key: RepoKey


@dataclass(frozen=True, slots=True)
class DistrustWord:
    """This node was accused. Every row that is here by its word alone (``source`` it, ``how`` HOLDER or
    QUORUM) becomes DOUBTED, and gets ``place`` where it has none; those repos are served no more."""

    node: NodeId
    place: float


Write = PutRow | DropRow | DistrustWord


# Actions


class Belief(Enum):
    """Whose refs are published; objects come from the holder in any case."""

    UPSTREAM = "upstream"  # upstream is asked; what it says is published
    HOLDER = "holder"  # the holder's, which is trusted, if they are ``expected``
    QUORUM = "quorum"  # the holder's, if they are ``expected``: several operators report the same


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring this repo from this holder; answered by one AttemptEnded with the same number, always.

    Under HOLDER and QUORUM the refs served must agree with ``expected`` (``rows.agree``), else DIFFERS.
    ``first``: nothing is here. ``accept``: the guard here need not hold a loss back where what is published
    agrees with ``expected``: who is believed has confirmed it. ``kept``: fetch its kept tips too, as far as
    they are lacking here."""

    number: int
    key: RepoKey
    spec: RepoSpec
    holder: HolderReport
    belief: Belief
    expected: RefsDigest | None
    first: bool
    kept: bool = False
    accept: bool = False
    guard: GuardMemory | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Ask upstream for its refs, no more; answered by one AttemptEnded with LOOKED or UPSTREAM_AWAY."""

    number: int
    key: RepoKey
    spec: RepoSpec


@dataclass(frozen=True, slots=True)
class AskHolders:
    """Ask the coordinator who holds these now; asked again where no answer comes. At most 500."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class DoubtReports:
    """Tell the coordinator that reports of this repo do not fit: it lets the holders look again."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Accuse:
    """Tell the coordinator that this node lies, in words that a person can check."""

    node: NodeId
    key: RepoKey
    reason: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Serve:
    """What is here may be served, and is told to the coordinator (Have)."""

    key: RepoKey
    here: Here


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Serve it no more; told to the coordinator (Lack). Readers at work may end."""

    key: RepoKey
    why: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete the mirror once its last reader is through, then tell Evicted. It was withdrawn before."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Discard:
    """It left the catalog: its mirror goes to the trash. It was withdrawn before."""

    key: RepoKey


class Outcome(Enum):
    """What clients who wait for a repo are told."""

    HERE = "here"
    LATER = "later"  # in the catalog, not here yet: try again
    NO_ROOM = "no-room"  # in the catalog, and the disk here is full
    UNKNOWN = "unknown"  # not in the catalog


@dataclass(frozen=True, slots=True)
class TellClients:
    key: RepoKey
    outcome: Outcome
    retry_after_s: float = 0.0
    text: str = ""  # why not, for people


@dataclass(frozen=True, slots=True)
class LoadPending:
    """Read the next pending rows beyond ``after`` (None: from the beginning), of which nothing (``first``) or
    something is here; answered by PendingLoaded."""

    first: bool
    after: Cursor | None
    limit: int


@dataclass(frozen=True, slots=True)
class PickAudit:
    """Read a row to audit, at ``share`` (in [0, 1)) of all; answered by AuditPicked. ``first``: one that was
    reported and of which nothing is here."""

    share: float
    first: bool = False


class AlertKind(Enum):
    """What people must know."""

    NO_ROOM = "no-room"  # above the mark: repos wait
    ACCUSED = "accused"  # a worker was found lying
    SPLIT = "split"  # several operators' workers agree, and upstream tells us something else


@dataclass(frozen=True, slots=True)
class Alert:
    """Raised, or, with ``over``, cleared. ``about`` tells alerts of one kind apart."""

    kind: AlertKind
    about: str
    text: str
    over: bool = False


Action = (
    Fetch
    | Look
    | AskHolders
    | DoubtReports
    | Accuse
    | Serve
    | Withdraw
    | Evict
    | Discard
    | TellClients
    | LoadPending
    | PickAudit
    | Alert
)


@dataclass(frozen=True, slots=True)
class Decision:
    writes: tuple[Write, ...] = field(default=())
    actions: tuple[Action, ...] = field(default=())


NOTHING = Decision()
