"""What a sync brought, for the schedule and for people."""

from __future__ import annotations

from dataclasses import dataclass

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
        received_bytes=transfer.received_bytes,
        size_bytes=size,
        phases_s=tuple(transfer.phases_s.items()),
    )
