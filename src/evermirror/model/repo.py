"""A repository to mirror: its identity, its configuration, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from evermirror.errors import InvalidValue
from evermirror.model.duration import format_duration
from evermirror.model.failure import Failure
from evermirror.model.refs import RefsDigest

RepoKey = NewType("RepoKey", str)  # canonical URL without scheme and .git: "github.com/owner/name"
Host = NewType("Host", str)  # "github.com" or "127.0.0.1:8080": what limits and weather are kept by


INTERVAL_MIN_S = 10.0  # of one repo: looking more often would be an attack on upstream


def check_interval(seconds: float) -> float:
    """A fixed gap as people may set it, returned as it is; raises InvalidValue."""
    if seconds < INTERVAL_MIN_S:
        raise InvalidValue(
            f"{format_duration(seconds)} is shorter than {format_duration(INTERVAL_MIN_S)}",
            hint="Polling faster would only burden upstream",
        )
    return seconds


class Priority(Enum):
    """How much a minute of delay counts. The weight enters every policy."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def weight(self) -> float:
        """Poll rate goes as √weight under ``adaptive``: critical gets four times the looks of normal."""
        return _WEIGHTS[self]

    @property
    def rank(self) -> int:
        """0 is the most urgent."""
        return _RANKS[self]


_WEIGHTS = {Priority.CRITICAL: 16.0, Priority.HIGH: 4.0, Priority.NORMAL: 1.0, Priority.LOW: 0.25}
_RANKS = {Priority.CRITICAL: 0, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 3}


class Mode(Enum):
    """How public refs follow upstream."""

    EXACT = "exact"
    APPEND_ONLY = "append-only"


class RepoStatus(Enum):
    """What a person is told about a repo."""

    PENDING = "pending"  # in the catalog, not mirrored yet
    ACTIVE = "active"  # mirrored, last attempt succeeded
    FAILING = "failing"  # last attempts failed; retried
    GONE = "gone"  # upstream says it is not there (or private); mirror kept
    AUTH = "auth"  # credentials refused; mirror kept
    HELD = "held"  # a guard holds a change back
    INACTIVE = "inactive"  # disabled or removed by a person

    @property
    def is_live(self) -> bool:
        """Whether looking at upstream can make it fresher: not one that is switched off, gone or refused."""
        return self not in (RepoStatus.INACTIVE, RepoStatus.GONE, RepoStatus.AUTH)


@dataclass(frozen=True, slots=True)
class RepoSpec:
    """What a worker needs to know of a repo: travels with its assignment."""

    key: RepoKey
    url: str  # the spelling that is fetched, re-serialised; never with userinfo for http(s)
    host: Host
    priority: Priority = Priority.NORMAL
    interval_s: float | None = None  # None: the policy decides
    mode: Mode = Mode.EXACT
    private: bool = False
    credential: str | None = None  # a name, never a secret
    fallbacks: tuple[str, ...] = ()  # other addresses of the same repository, as the catalog gives them
    pulled: bool = False  # the coordinator says when to look: the worker does not by itself
    hooked: bool = False  # its hooks have proved reliable: it is polled less
    fsck_allow: tuple[str, ...] = ()  # defects of objects that a person allows here: core/fsck.py


@dataclass(frozen=True, slots=True)
class RepoRecord:
    """Everything the coordinator's store knows of a repo. Times are UTC seconds since the epoch."""

    spec: RepoSpec
    alias: str | None = None
    source: str = "api"  # "api" or "catalog"
    pins: tuple[str, ...] = ()  # workers that are to hold it, by name or number; empty: any
    fsck_reason: str | None = None  # why spec.fsck_allow is
    info: Mapping[str, object] = field(default_factory=dict)  # additional_info, as given
    enabled: bool = True
    status: RepoStatus = RepoStatus.PENDING
    digest: RefsDigest | None = None
    head_commit: str | None = None
    refs_count: int = 0
    size_bytes: int = 0
    verified_at: float | None = None  # refs here were equal to upstream's at this time
    changed_at: float | None = None  # last sync that moved a ref
    consecutive_failures: int = 0
    last_failure: Failure | None = None
    last_failure_at: float | None = None
    created_at: float = 0.0
    updated_at: float = 0.0

    @property
    def key(self) -> RepoKey:
        return self.spec.key
