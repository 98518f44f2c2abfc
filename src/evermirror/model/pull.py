"""Pull mirroring: repos that are looked at in a fixed rhythm and pushed on to targets, and the one strategy
for all of them. Times are UTC seconds since the epoch, durations seconds; faces speak of minutes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.model.failure import Failure
from evermirror.model.push import TargetId
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus

MINUTE = 60.0

INTERVALS_S = {
    Priority.CRITICAL: 10 * MINUTE,
    Priority.HIGH: 30 * MINUTE,
    Priority.NORMAL: 120 * MINUTE,
    Priority.LOW: 360 * MINUTE,
}
INTERVAL_MAX_S = 366 * 1440 * MINUTE  # a year; more is a slip of the pen
RETRIES_MAX = 100
RETRY_DELAY_MAX_S = 7 * 1440 * MINUTE
CONCURRENT_MAX = 1000
TARGETS_MAX = 16  # that one project may have


@dataclass(frozen=True, slots=True)
class Strategy:
    """How many pulls may run when. ``peak`` and ``night`` are hours of the day in ``time_zone``, from start
    (inclusive) to end (exclusive); a window may cross midnight, one with equal ends is empty."""

    name: str = "default"
    max_concurrent: int = 5
    peak_avoidance: bool = False
    peak_start: int = 9
    peak_end: int = 18
    peak_max_concurrent: int = 3
    off_peak_max_concurrent: int = 8
    night_start: int | None = None  # None: nights are like any other time outside the peak
    night_end: int | None = None
    night_max_concurrent: int | None = None
    adaptive: bool = True
    enabled: bool = True  # False: nothing is started by the schedule
    created_at: float = 0.0
    updated_at: float = 0.0


class LoadLevel(Enum):
    """How the source is doing."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Load:
    """The source's load as last seen, and by what that is known: "cpu 83 %", "polls take 2.4× as long"."""

    level: LoadLevel
    reason: str


class WaitReason(Enum):
    """Why a task that was asked for has not begun."""

    PEAK = "peak"  # its class does not run in peak hours
    LOAD = "load"  # its class does not run while the source is overloaded
    SOURCE = "source"  # its source fails for all, or asked us to wait
    ROOM = "room"  # as many run as may
    WORKER = "worker"  # nobody can do it now


@dataclass(frozen=True, slots=True)
class Wait:
    """``until``: None where nobody can say; ``clock``: the same on the strategy's clock, ``18:00``."""

    reason: WaitReason
    text: str
    until: float | None = None
    clock: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """So many wait for the same."""

    wait: Wait
    count: int


@dataclass(frozen=True, slots=True)
class PullConfig:
    """What people set of a project, or its defaults."""

    priority: Priority = Priority.NORMAL
    interval_s: float = INTERVALS_S[Priority.NORMAL]
    enabled: bool = True
    max_retries: int = 3
    retry_delay_s: float = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How failed syncs are tried again: so often early, after a delay that grows by a factor; then at the
    normal interval. A project may have its own count and delay."""

    max_retries: int = 3
    retry_delay_s: float = 5 * MINUTE
    backoff_multiplier: float = 2.0


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target as people name it."""

    url: str
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a project, and how it is."""

    id: TargetId
    url: str
    credential: str | None = None
    put: RefsDigest | None = None  # of what we last put there
    put_at: float | None = None
    commit: Oid | None = None
    failures: int = 0  # in a row
    not_before: float = 0.0  # of its next attempt
    paused: str = ""  # why it is left alone until a person resets it
    adopt: bool = False  # a person's word for the next push: what is there may be overwritten
    last_failure: Failure | None = None
    last_failure_at: float | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """A repo with a pull configuration, and how it is. ``task`` is its open task, while there is one."""

    key: RepoKey
    name: str  # the project key: the repo's alias, else its key
    host: Host
    config: PullConfig
    targets: tuple[Target, ...] = ()
    overrides: frozenset[str] = frozenset()  # what a person set in place of the catalog's or the defaults
    catalog: tuple[TargetSpec, ...] = ()  # targets that its line in the catalog names, overridden or not
    last_sync_at: float | None = None
    next_sync_at: float = 0.0
    failures: int = 0  # in a row
    paused: str = ""  # why it was disabled by itself; empty: a person did, or it is enabled
    last_status: TaskStatus | None = None  # of its last task that ended
    last_failure: Failure | None = None
    last_failure_at: float | None = None
    task: TaskId | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    source_credential: str | None = None  # the repo's own; a name, never a secret
    priority_before: Priority | None = None  # what the repo or its line says, while a person set another
