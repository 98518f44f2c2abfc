"""A worker's figures, and the status that is told from them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.watch.lately import Lately
from evermirror.edge.git.folder import DiskUsage
from evermirror.model.messages import HostState, WorkerStatus
from evermirror.model.repo import RepoKey
from evermirror.model.whole import Work
from evermirror.model.worker import WorkerId
from evermirror.nodes.worker.round import Round

SHOWN_MAX = 50  # running syncs and hosts named in a status
_SELF = WorkerId(0)  # the one worker whose counters are watched here


@dataclass(slots=True)
class Tally:
    """Counts since the start."""

    polls: int = 0
    changes: int = 0
    received_bytes: int = 0
    _lately: Lately = field(default_factory=Lately)

    def polls_per_second(self, now: float) -> float:
        """Over the last minute; asked every few seconds."""
        self._lately.heard(_SELF, Work(self.polls, self.changes, self.received_bytes), now)
        return self._lately.rates(now).polls


def status_of(
    tally: Tally,
    scheduler: Scheduler,
    rounds: Iterable[Round],
    *,
    here: Container[RepoKey],
    repos: int,
    polled_bytes: int,
    disk: DiskUsage,
    accepting_clones: bool,
    now: float,
) -> WorkerStatus:
    """How the worker is doing now."""
    told = (this.running(first=this.key not in here) for this in rounds)
    running = [sync for sync in told if sync is not None]
    return WorkerStatus(
        repos=repos,
        polls_total=tally.polls,
        polls_per_second=tally.polls_per_second(now),
        changes_total=tally.changes,
        received_bytes_total=tally.received_bytes + polled_bytes,
        running=tuple(running[:SHOWN_MAX]),
        queued_syncs=scheduler.syncs_waiting,
        hosts=_hosts(scheduler, now),
        disk_free_bytes=disk.free_bytes,
        disk_total_bytes=disk.total_bytes,
        accepting_clones=accepting_clones,
        warnings=tuple(
            w.message if w.host is None else f"{w.host}: {w.message}" for w in scheduler.warnings(now)
        ),
        at=now,
    )


def _hosts(scheduler: Scheduler, now: float) -> tuple[HostState, ...]:
    told = []
    for host in scheduler.hosts(now):
        if host.blocked_until is not None:
            reason = "the host asked us to wait"
            told.append(HostState(host.host, host.repos, "waiting", host.blocked_until, reason))
        elif host.storm is not None:
            reason = host.storm_reason or f"host-wide failures: {host.storm.value}"
            told.append(HostState(host.host, host.repos, "stormy", host.probe_at, reason))
    return tuple(told[:SHOWN_MAX])
