"""One round: a look at one upstream, and the sync that follows where its refs moved.

A round is begun by a poll and ends exactly once, as ``Synced`` or ``Failed``, for all callers that share it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from evermirror.edge.git.mirror import SyncOutcome
from evermirror.edge.git.probe import Seen
from evermirror.edge.git.progress import GitProgress
from evermirror.model.activity import Activity
from evermirror.model.kept import GuardMemory
from evermirror.model.messages import Refused, RunningSync, Synced, SyncNow
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot
from evermirror.model.repo import Mode, RepoKey, RepoSpec
from evermirror.model.task import TaskId

CHANGES_TOLD = 1000  # refs named in a report; the total is always told
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
    damaged: bool = False  # fsck found it broken: the next sync replaces it
    following: bool = False  # another worker polls it: here it is looked at on request alone
    paused: bool = False  # a person disabled it: it is not looked at
    verified_at: float = 0.0  # UTC; 0: not known
    own: RefsDigest | None = None  # in append-only mode, of the refs that are here beside upstream's

    @property
    def told(self) -> RefsDigest | None:
        """Of the refs here, by which another copy is known to be equal. ``digest`` is upstream's."""
        return self.own if self.spec.mode is Mode.APPEND_ONLY else self.digest

    @property
    def quiet(self) -> bool:
        """Not polled by itself. One that follows is, until it has its first clone."""
        return self.paused or (self.following and self.here)


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
    looked: bool = False  # the coordinator wants to know the digest, also where nothing moved

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
    def waits_for_slot(self) -> bool:
        return self.seen is not None and self.syncing_since is None

    def running(self) -> RunningSync | None:
        """As shown to people; None while it only polls."""
        if self.syncing_since is None:
            return None
        progress = self.progress
        return RunningSync(
            self.key,
            progress.phase if progress else "starting",
            progress.percent if progress else None,
            progress.received_bytes if progress else 0,
            self.syncing_since,
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
    )


def without(report: Synced, refused: list[Refused]) -> Synced:
    """The report for those callers who got what they asked for."""
    gone = {task_id for refusal in refused for task_id in refusal.task_ids}
    return replace(report, task_ids=tuple(t for t in report.task_ids if t not in gone))
