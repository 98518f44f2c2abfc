"""What a sync brought, for the schedule and for people."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from evermirror.edge.git.command import Git
from evermirror.edge.git.folder import size_of
from evermirror.edge.git.refs import first_parent_times, new_commits
from evermirror.edge.git.transfer import Transfer
from evermirror.model.kept import KeptTip
from evermirror.model.refs import RefChange, RefSnapshot, changes_between


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """A sync that succeeded: the refs here equal ``after``, which upstream advertised.

    ``after`` is newer than the snapshot that was passed in where upstream moved meanwhile. ``push_times`` are
    commit times as upstream wrote them: hostile input, newest first."""

    first: bool
    before: RefSnapshot
    after: RefSnapshot
    changes: tuple[RefChange, ...]
    commits: int
    push_times: tuple[float, ...]
    received_bytes: int
    size_bytes: int
    phases_s: tuple[tuple[str, float], ...]
    kept: tuple[KeptTip, ...] = ()  # what upstream threw away this time


def outcome_of(
    transfer: Transfer,
    before: RefSnapshot,
    after: RefSnapshot,
    times: tuple[float, ...],
    commits: int,
    size: int,
    *,
    first: bool,
) -> SyncOutcome:
    """What came of it, with what the transfer cost."""
    return SyncOutcome(
        first=first,
        before=before,
        after=after,
        changes=changes_between(before, after),
        commits=commits,
        push_times=times,
        received_bytes=transfer.received_bytes + transfer.discarded_bytes,
        size_bytes=size,
        phases_s=tuple(transfer.phases_s.items()),
    )


async def first_outcome(
    git: Git, path: Path, transfer: Transfer, seen: RefSnapshot, commits_max: int
) -> SyncOutcome:
    """Of a clone: all is new, and the main branch tells when it was pushed to."""
    with transfer.phase("count"):
        times: tuple[float, ...] = ()
        if seen.head_oid is not None:
            times = await first_parent_times(git, path, seen.head_oid, limit=commits_max)
        everything = (await new_commits(git, path, set(seen.refs.values()), (), limit=commits_max)).times
        size = await asyncio.to_thread(size_of, path)
    return outcome_of(transfer, RefSnapshot({}), seen, times, len(everything), size, first=True)
