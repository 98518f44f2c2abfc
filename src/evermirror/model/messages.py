"""What coordinator and worker say to each other; wire.py has the frames that it travels in.

Commands go to a worker, reports come back.
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.activity import Activity
from evermirror.model.failure import Failure
from evermirror.model.kept import KeptTip
from evermirror.model.push import Pushed, PushTo
from evermirror.model.refs import Oid, RefChange, RefsDigest
from evermirror.model.relay import Source
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec
from evermirror.model.task import TaskId

# Commands


@dataclass(frozen=True, slots=True)
class AssignRepos:
    """Mirror these from now on; for one already held, its configuration or role changed.

    ``activities`` (parallel to ``repos``, or empty) is what earlier holders knew of their pushes.
    Of a list in chunks all but the last have ``more``: their places in the queue depend on one another.
    ``following``: another worker polls these; this one looks only when it is told to. ``paused``: a person
    disabled them; they are held and not looked at. ``sources``: live holders to clone from."""

    repos: tuple[RepoSpec, ...]
    activities: tuple[Activity | None, ...] = ()
    more: bool = False
    following: frozenset[RepoKey] = frozenset()
    paused: frozenset[RepoKey] = frozenset()
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseRepos:
    """Stop mirroring these. ``delete`` moves their mirrors to the trash: told by Released; but one whose
    digest begins with another number than ``digests`` (parallel to ``keys``, or empty) says, and not 0,
    stays and goes on, told by Declined. Otherwise those that are complete stay on disk, told by Kept, and
    only the rest is Released."""

    keys: tuple[RepoKey, ...]
    delete: bool = False
    digests: tuple[int, ...] = ()  # the first 8 bytes of each


@dataclass(frozen=True, slots=True)
class SyncNow:
    """Look at once and sync if it moved. ``force`` fetches even where nothing seems to have changed;
    ``accept`` is a person's word that upstream is to be followed where a guard holds its change back.
    ``push``: targets that are to have what is here then. ``early``: asked for before the repo was last
    assigned, so that a first clone which began since then has not looked too early."""

    key: RepoKey
    task_id: TaskId
    force: bool = False
    min_commit: Oid | None = None
    priority: Priority | None = None  # of this request; None: the repo's own
    accept: bool = False
    push: tuple[PushTo, ...] = ()
    early: bool = False


@dataclass(frozen=True, slots=True)
class LookAt:
    """Others changed these, or differ: look now and tell the digest, also where nothing moved. Nobody
    waits. ``sources``: live holders that have seen them move."""

    keys: tuple[RepoKey, ...]
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreTip:
    """Show a kept tip again, as a public ref of its own below ``refs/restored/``."""

    key: RepoKey
    task_id: TaskId
    kept: str  # the hidden ref that holds it
    as_name: str | None = None  # None: named after the ref and the day


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """All limits that the coordinator sets for this worker, in place of those told before; None: it sets
    none. The worker's own settings hold besides: the smaller one counts.

    ``host_rate`` is for every host that ``host_rates`` does not name. ``told_at``: UTC seconds, of the
    coordinator."""

    polls_per_second: float | None = None
    host_rate: float | None = None
    slots: int | None = None
    host_rates: tuple[tuple[Host, float], ...] = ()
    told_at: float = 0.0


Command = AssignRepos | ReleaseRepos | SyncNow | LookAt | RestoreTip | ApplySettings


# Reports


@dataclass(frozen=True, slots=True)
class Started:
    """Work on these tasks began (several callers may share one sync)."""

    key: RepoKey
    task_ids: tuple[TaskId, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A long transfer goes on. ``percent`` is of the whole sync; None where nothing is known of it."""

    key: RepoKey
    task_ids: tuple[TaskId, ...]
    phase: str
    percent: float | None
    received_bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class Synced:
    """Refs here were verified equal to upstream's; ``changes`` is what moved, empty where nothing had."""

    key: RepoKey
    task_ids: tuple[TaskId, ...]
    digest: RefsDigest
    head_commit: Oid | None
    refs_count: int
    changes: tuple[RefChange, ...]  # bounded: see changes_total
    changes_total: int
    commits: int  # new commits, bounded by the worker's limit
    received_bytes: int
    size_bytes: int
    first: bool  # this was the first sync
    started_at: float
    verified_at: float
    ended_at: float
    activity: Activity
    phases_s: tuple[tuple[str, float], ...] = ()
    kept: tuple[KeptTip, ...] = ()  # old tips that upstream threw away; bounded: see kept_total
    kept_total: int = 0
    pushes: tuple[Pushed, ...] = ()  # one for each target that the callers named
    look_s: float | None = None  # how long upstream took to answer the look
    forced: bool = False  # fetched and compared, with the targets, though nothing seemed to have changed


@dataclass(frozen=True, slots=True)
class Restored:
    """A kept tip can be fetched again as ``ref``."""

    key: RepoKey
    task_ids: tuple[TaskId, ...]
    ref: str
    oid: Oid
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt did not succeed. ``counted`` is False for the host's weather and for rate limits."""

    key: RepoKey
    task_ids: tuple[TaskId, ...]
    failure: Failure
    counted: bool
    consecutive_failures: int
    started_at: float
    ended_at: float
    next_attempt_at: float | None


@dataclass(frozen=True, slots=True)
class Refused:
    """These callers do not get what they asked for, which says nothing about the repo itself."""

    key: RepoKey
    task_ids: tuple[TaskId, ...]
    failure: Failure
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Excused:
    """Failures told before turned out to be the host's weather: one is taken back from each of these."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """Polls that saw no change, told in batches: these repos were equal to upstream at these times."""

    items: tuple[tuple[RepoKey, float], ...]


@dataclass(frozen=True, slots=True)
class HeldRepo:
    """One mirror on the worker's disk."""

    key: RepoKey
    digest: RefsDigest | None
    verified_at: float | None


@dataclass(frozen=True, slots=True)
class Released:
    """The worker no longer mirrors these, and nothing of them is on its disk (but in the trash)."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """These are complete on the worker's disk, at these digests: an answer to a release that deletes nothing,
    or to a LookAt that found nothing new."""

    items: tuple[HeldRepo, ...]


@dataclass(frozen=True, slots=True)
class Declined:
    """These were to be deleted, but their refs have moved since that was decided: they stay."""

    items: tuple[HeldRepo, ...]


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The worker cannot take these: its disk guard, or its disk. Nothing of them is there."""

    keys: tuple[RepoKey, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """First clones that cannot begin now: their host does not answer or asked us to wait, they failed a short
    while ago, or they are paused. The worker tries them when it can; nothing is to wait for them."""

    keys: tuple[RepoKey, ...]


@dataclass(frozen=True, slots=True)
class RunningSync:
    """A sync under way."""

    key: RepoKey
    phase: str
    percent: float | None
    received_bytes: int
    started_at: float
    first: bool = False  # there is no mirror of it yet


@dataclass(frozen=True, slots=True)
class HostState:
    """An upstream host that is not simply open."""

    host: str
    repos: int
    state: str  # "waiting": asked us to wait; "stormy": host-wide failures
    until: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """How the worker is doing, told every few seconds; the latest one counts."""

    repos: int
    polls_total: int
    polls_per_second: float
    changes_total: int
    received_bytes_total: int
    running: tuple[RunningSync, ...]  # bounded
    queued_syncs: int
    hosts: tuple[HostState, ...]  # bounded
    disk_free_bytes: int
    disk_total_bytes: int
    accepting_clones: bool
    warnings: tuple[str, ...]
    at: float


Report = (
    Started
    | Progress
    | Synced
    | Restored
    | Failed
    | Refused
    | Excused
    | Verified
    | Released
    | Kept
    | Declined
    | HandedBack
    | Deferred
    | WorkerStatus
)
