"""One round: a look at one upstream, and the sync that follows where its refs moved.

A round is begun by a poll and ends exactly once, as ``Synced`` or ``Failed``, for all callers that share it.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass, field, replace

import structlog

from evermirror.core.schedule.views import Verdict
from evermirror.core.watch.course import Course
from evermirror.edge.git.mirror import HeldBack, SyncOutcome
from evermirror.edge.git.probe import Seen
from evermirror.edge.git.progress import GitProgress
from evermirror.model.activity import Activity
from evermirror.model.failure import MISSING_COMMIT, Failure, FailureKind
from evermirror.model.kept import GuardMemory
from evermirror.model.messages import Failed, Refused, RunningSync, Synced, SyncNow
from evermirror.model.push import Pushed, PushTo, TargetId
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot
from evermirror.model.repo import Mode, RepoKey, RepoSpec
from evermirror.model.task import SyncPhase, TaskId

log = structlog.get_logger(__name__)

CHANGES_TOLD = 1000  # refs named in a report; the total is always told
BEFORE_SENDING = frozenset(
    {SyncPhase.COUNTING, SyncPhase.COMPRESSING}
)  # phases of a push in which nothing is sent yet
KEPT_TOLD = 1000  # the same of kept tips
DIGEST_APART_REFS = 5000  # more refs than this are hashed in a thread: 5 ms of the event loop


@dataclass(slots=True)
class Mirrored:
    """What the worker keeps of a repo besides its place in the schedule."""

    spec: RepoSpec
    here: bool  # there is a mirror on disk
    digest: RefsDigest | None = None
    mark: bytes | None = None
    head_commit: Oid | None = None
    refs_count: int = 0
    size_bytes: int = 0
    guard: GuardMemory | None = None  # upstream's change that is held back
    damaged: bool = False  # found broken: the next round syncs it whatever it sees, and replaces it
    following: bool = False  # another worker polls it: here it is looked at on request alone
    paused: bool = False  # a person disabled it: it is not looked at
    verified_at: float = 0.0  # UTC; 0: not known
    source_url: str | None = None  # the address that last answered; None: none since the start
    own: RefsDigest | None = None  # in append-only mode, of the refs that are here beside upstream's

    @property
    def told(self) -> RefsDigest | None:
        """Of the refs here, by which another copy is known to be equal. ``digest`` is upstream's."""
        return self.own if self.spec.mode is Mode.APPEND_ONLY else self.digest

    def answered_at(self, url: str) -> None:
        """Remembers which address did; said aloud where it is another than before."""
        if url != (self.source_url or self.spec.url):
            log.warning("answers at another address", repo=self.spec.key, url=url)
        self.source_url = url

    @property
    def quiet(self) -> bool:
        """Not polled by itself. One that follows or is pulled is, until it has its first clone: placement
        waits for that, and must not have to wait for somebody to ask."""
        return self.paused or ((self.following or self.spec.pulled) and self.here)

    def hold_back(self, held: HeldBack) -> None:
        """A guard did; said aloud the first time."""
        self.guard = held.memory
        if held.memory.sightings == 1:
            reason = held.memory.reason.value
            log.warning(
                "held back", repo=self.spec.key, guard=reason, reason=held.failure.message, alert=True
            )


@dataclass(slots=True)
class Round:
    """A round under way. ``started_at`` and ``looked_at`` are UTC seconds."""

    key: RepoKey
    asked: tuple[SyncNow, ...]  # the callers whose round this is
    started_at: float
    looked_at: float  # when the refs in ``seen`` were asked for
    seen: Seen | None = None
    syncing_since: float | None = None
    progress: GitProgress | None = None
    told: GitProgress | None = None  # the progress that was last reported
    course: Course = field(default_factory=Course)  # how far the whole is
    outdated: bool = False  # it looked before the repo was last assigned, or is to look again elsewhere
    looked: bool = False  # the coordinator wants to know the digest, also where nothing moved
    begun: frozenset[TaskId] = frozenset()  # those of its callers who were told that it started
    look_s: float | None = None  # how long upstream took to answer
    pushed: tuple[Pushed, ...] = ()  # what became of ``push``

    @property
    def force(self) -> bool:
        return any(a.force for a in self.asked)

    @property
    def accept(self) -> bool:
        return any(a.accept for a in self.asked)

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        return tuple(a.task_id for a in self.asked)

    @property
    def push(self) -> tuple[PushTo, ...]:
        """The targets of all callers, each once: as the last one has it, and to be overwritten where any
        of them has a person's word for that."""
        merged: dict[TargetId, PushTo] = {}
        for to in (to for asked in self.asked for to in asked.push):
            before = merged.get(to.target)
            merged[to.target] = replace(to, adopt=to.adopt or (before is not None and before.adopt))
        return tuple(merged.values())

    @property
    def waits_to_sync(self) -> bool:
        """For a git slot, to clone or fetch; one that waits to push alone has nothing to fetch."""
        return self.seen is not None and self.syncing_since is None

    def answers(self, command: SyncNow) -> bool:
        """A first clone does for who asked before it began; not for who wants more than it was begun for."""
        return command.early and not (self.outdated or command.force or command.accept or command.push)

    def begin_again(self) -> None:
        """At another address: nothing has been seen yet."""
        self.seen = self.syncing_since = self.progress = self.told = None
        self.outdated = True

    def fetching(self, progress: GitProgress) -> None:
        """A fetch is so far."""
        self.progress = progress
        self.course.fetched(progress.phase, progress.percent)

    def pushing(self, target: TargetId, host: str, progress: GitProgress) -> None:
        """A push to this host is so far; what it counts and compresses before is not what was sent."""
        self.progress = replace(progress, phase=SyncPhase.PUSHING, host=host)
        self.course.pushed(target, None if progress.phase in BEFORE_SENDING else progress.percent)

    def running(self, *, first: bool) -> RunningSync | None:
        """As shown to people; None while it only polls. ``first``: there is no mirror of it yet."""
        if self.syncing_since is None:
            return None
        progress = self.progress
        return RunningSync(
            self.key,
            progress.told if progress else SyncPhase.STARTING.value,
            progress.percent if progress else None,
            progress.received_bytes if progress else 0,
            self.syncing_since,
            first,
        )


async def digest_of(snapshot: RefSnapshot) -> RefsDigest:
    """The digest, without holding up the event loop for a repo of very many refs."""
    if len(snapshot.refs) > DIGEST_APART_REFS:
        return await asyncio.to_thread(snapshot.digest)
    return snapshot.digest()


def nothing_moved(this: Round, repo: Mirrored, activity: Activity, now: float) -> Synced:
    """The answer to callers of a round in which upstream was as it is here."""
    assert repo.digest is not None  # noqa: S101 - only a mirror can be found unchanged
    return Synced(
        key=this.key,
        task_ids=this.task_ids,
        digest=repo.told or repo.digest,
        head_commit=repo.head_commit,
        refs_count=repo.refs_count,
        changes=(),
        changes_total=0,
        commits=0,
        received_bytes=0,
        size_bytes=repo.size_bytes,
        first=False,
        started_at=this.started_at,
        verified_at=this.looked_at,
        ended_at=now,
        activity=activity,
        pushes=this.pushed,
        look_s=this.look_s,
    )


def moved(this: Round, outcome: SyncOutcome, digest: RefsDigest, activity: Activity, now: float) -> Synced:
    """The report of a sync that succeeded."""
    return Synced(
        key=this.key,
        task_ids=this.task_ids,
        digest=digest,
        head_commit=outcome.after.head_oid,
        refs_count=len(outcome.after.refs),
        changes=outcome.changes[:CHANGES_TOLD],
        changes_total=len(outcome.changes),
        commits=outcome.commits,
        received_bytes=outcome.received_bytes,
        size_bytes=outcome.size_bytes,
        first=outcome.first,
        started_at=this.started_at,
        verified_at=this.looked_at,
        ended_at=now,
        activity=activity,
        phases_s=outcome.phases_s,
        kept=outcome.kept[:KEPT_TOLD],
        kept_total=len(outcome.kept),
        pushes=this.pushed,
        look_s=this.look_s,
        forced=this.force,
    )


def not_synced(this: Round, failure: Failure, verdict: Verdict, now: float) -> Failed:
    """The report of a round that failed."""
    return Failed(
        key=this.key,
        task_ids=this.task_ids,
        failure=failure,
        counted=verdict.counted,
        consecutive_failures=verdict.failures,
        started_at=this.started_at,
        ended_at=now,
        next_attempt_at=verdict.next_attempt_at,
    )


def without(report: Synced, refused: list[Refused]) -> Synced:
    """The report for those callers who got what they asked for."""
    gone = {task_id for refusal in refused for task_id in refusal.task_ids}
    return replace(report, task_ids=tuple(t for t in report.task_ids if t not in gone))


def log_synced(report: Synced) -> None:
    """One line, where something moved."""
    if report.changes_total or report.first:
        log.info(
            "synced",
            repo=report.key,
            first=report.first,
            refs=report.changes_total,
            commits=report.commits,
            kept=report.kept_total,
            seconds=round(report.ended_at - report.started_at, 3),
        )


def no_room(why: str) -> Failure:
    """What those are told who wait for a clone while the disk is full."""
    return Failure(
        FailureKind.DISK_FULL,
        f"no room for a new clone: {why}",
        hint="Free some space on the disk of the data folder, raise fleet.disk_high, or add a worker",
    )


def too_many() -> Failure:
    """What those are told who come when the line is full."""
    return Failure(FailureKind.CONFLICT, "too many callers wait for this repo", hint="Ask again later")


def taken_away() -> Failure:
    """What those are told who wait for a repo that is not this worker's any more."""
    return Failure(
        FailureKind.NOT_FOUND,
        "the repo left the catalog, or moved to another worker",
        hint="Ask again, or add it again",
    )


def without_commit(oid: str) -> Failure:
    """What those are told who asked for a commit that upstream does not have."""
    return Failure(
        FailureKind.NOT_FOUND,
        f"upstream's branches and tags do not contain commit {oid}",
        hint="Push it first, or check the id",
        context={MISSING_COMMIT: oid},
    )


def bug(error: Exception) -> Failure:
    """What nobody thought of."""
    return Failure(
        FailureKind.UNKNOWN,
        f"internal error: {type(error).__name__}: {error}",
        hint="This is a bug in evermirror: please report it with the log",
        context={"traceback": "".join(traceback.format_exception(error))[-8000:]},
    )
