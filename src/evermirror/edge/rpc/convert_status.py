"""A worker's status, which rides on every heartbeat, to the wire and back."""

from __future__ import annotations

from evermirror.edge.rpc.convert_values import bounded, count, finite, key, maybe, name, text_in, text_out
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.messages import HostState, RunningSync, WorkerStatus


def status_out(status: WorkerStatus) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        repos=count(status.repos, "WorkerStatus.repos"),
        polls_total=count(status.polls_total, "WorkerStatus.polls_total"),
        polls_per_second=finite(status.polls_per_second, "WorkerStatus.polls_per_second"),
        changes_total=count(status.changes_total, "WorkerStatus.changes_total"),
        received_bytes_total=count(status.received_bytes_total, "WorkerStatus.received_bytes_total"),
        running=[_running_out(sync) for sync in status.running],
        queued_syncs=count(status.queued_syncs, "WorkerStatus.queued_syncs"),
        hosts=[_host_out(host) for host in status.hosts],
        disk_free_bytes=count(status.disk_free_bytes, "WorkerStatus.disk_free_bytes"),
        disk_total_bytes=count(status.disk_total_bytes, "WorkerStatus.disk_total_bytes"),
        accepting_clones=status.accepting_clones,
        warnings=[text_out(warning) for warning in status.warnings],
        at=finite(status.at, "WorkerStatus.at"),
    )


def status_in(m: pb.WorkerStatus) -> WorkerStatus:
    return WorkerStatus(
        repos=count(m.repos, "WorkerStatus.repos"),
        polls_total=count(m.polls_total, "WorkerStatus.polls_total"),
        polls_per_second=finite(m.polls_per_second, "WorkerStatus.polls_per_second"),
        changes_total=count(m.changes_total, "WorkerStatus.changes_total"),
        received_bytes_total=count(m.received_bytes_total, "WorkerStatus.received_bytes_total"),
        running=tuple([_running_in(sync) for sync in bounded(m.running, "WorkerStatus.running")]),
        queued_syncs=count(m.queued_syncs, "WorkerStatus.queued_syncs"),
        hosts=tuple([_host_in(host) for host in bounded(m.hosts, "WorkerStatus.hosts")]),
        disk_free_bytes=count(m.disk_free_bytes, "WorkerStatus.disk_free_bytes"),
        disk_total_bytes=count(m.disk_total_bytes, "WorkerStatus.disk_total_bytes"),
        accepting_clones=m.accepting_clones,
        warnings=tuple(
            [text_in(w, "WorkerStatus.warnings") for w in bounded(m.warnings, "WorkerStatus.warnings")]
        ),
        at=finite(m.at, "WorkerStatus.at"),
    )


def _running_out(sync: RunningSync) -> pb.RunningSync:
    return pb.RunningSync(
        key=name(sync.key, "RunningSync.key"),
        phase=text_out(sync.phase),
        percent=maybe(finite, sync.percent, "RunningSync.percent"),
        received_bytes=count(sync.received_bytes, "RunningSync.received_bytes"),
        started_at=finite(sync.started_at, "RunningSync.started_at"),
        first=sync.first,
    )


def _running_in(m: pb.RunningSync) -> RunningSync:
    return RunningSync(
        key=key(m.key, "RunningSync.key"),
        phase=text_in(m.phase, "RunningSync.phase"),
        percent=finite(m.percent, "RunningSync.percent") if m.HasField("percent") else None,
        received_bytes=count(m.received_bytes, "RunningSync.received_bytes"),
        started_at=finite(m.started_at, "RunningSync.started_at"),
        first=m.first,
    )


def _host_out(host: HostState) -> pb.HostState:
    return pb.HostState(
        host=name(host.host, "HostState.host"),
        repos=count(host.repos, "HostState.repos"),
        state=text_out(host.state),
        until=maybe(finite, host.until, "HostState.until"),
        reason=text_out(host.reason),
    )


def _host_in(m: pb.HostState) -> HostState:
    return HostState(
        host=name(m.host, "HostState.host"),
        repos=count(m.repos, "HostState.repos"),
        state=text_in(m.state, "HostState.state"),
        until=finite(m.until, "HostState.until") if m.HasField("until") else None,
        reason=text_in(m.reason, "HostState.reason"),
    )
