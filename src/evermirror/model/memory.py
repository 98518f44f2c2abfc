"""What a worker remembers of a repo between polls and across restarts: one row of its local file."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.activity import NO_ACTIVITY, Activity
from evermirror.model.failure import FailureKind
from evermirror.model.kept import GuardMemory
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey


@dataclass(frozen=True, slots=True)
class RepoMemory:
    """Times are UTC seconds since the epoch; 0 means never."""

    key: RepoKey
    activity: Activity = NO_ACTIVITY
    last_poll_at: float = 0.0
    verified_at: float = 0.0
    digest: RefsDigest | None = None  # of the refs here; None until the first sync
    mark: bytes | None = None  # the prober's shortcut: hash of the raw answer that ``digest`` belongs to
    failures: int = 0
    failure_kind: FailureKind | None = None
    not_before: float = 0.0  # a retry is not due before this
    guard: GuardMemory | None = None  # a change that is held back
