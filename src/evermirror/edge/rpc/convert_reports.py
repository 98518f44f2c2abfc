"""Reports to the wire and back."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.core.watch.course import whole_of
from evermirror.edge.rpc.convert_parts import (
    activity_in,
    activity_out,
    change_in,
    change_out,
    failure_in,
    failure_out,
    held_in,
    held_out,
    tip_in,
    tip_out,
)
from evermirror.edge.rpc.convert_push import pushes_in, pushes_out
from evermirror.edge.rpc.convert_status import status_in, status_out
from evermirror.edge.rpc.convert_values import (
    FrameInvalid,
    bounded,
    count,
    counts,
    cut_in,
    digest_in,
    digest_out,
    finite,
    key,
    keys,
    maybe,
    name,
    oid_in,
    oid_out,
    ref_in,
    ref_out,
    text_in,
    text_out,
)
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.messages import (
    Declined,
    Deferred,
    Excused,
    Failed,
    HandedBack,
    HeldRepo,
    Kept,
    Progress,
    Refused,
    Released,
    Report,
    Restored,
    Started,
    Synced,
    Verified,
    WorkerStatus,
)
from evermirror.model.task import TaskId


def report_out(report: Report) -> pb.Report:
    match report:
        case Started():
            return pb.Report(started=_started_out(report))
        case Progress():
            return pb.Report(progress=progress_out(report))
        case Synced():
            return pb.Report(synced=_synced_out(report))
        case Restored():
            return pb.Report(restored=_restored_out(report))
        case Failed():
            return pb.Report(failed=_failed_out(report))
        case Refused():
            return pb.Report(refused=_refused_out(report))
        case Excused(told):
            return pb.Report(excused=pb.Excused(keys=keys(told, "Excused.keys")))
        case Verified():
            return pb.Report(verified=_verified_out(report))
        case Released(told):
            return pb.Report(released=pb.Released(keys=keys(told, "Released.keys")))
        case Kept(items):
            return pb.Report(kept=pb.Kept(items=[held_out(item) for item in items]))
        case Declined(items):
            return pb.Report(declined=pb.Declined(items=[held_out(item) for item in items]))
        case HandedBack(told, reason):
            back = pb.HandedBack(keys=keys(told, "HandedBack.keys"), reason=text_out(reason))
            return pb.Report(handed_back=back)
        case Deferred(told):
            return pb.Report(deferred=pb.Deferred(keys=keys(told, "Deferred.keys")))
        case WorkerStatus():
            return pb.Report(worker_status=status_out(report))


def report_in(m: pb.Report) -> Report:
    match m.WhichOneof("report"):
        case "started":
            return _started_in(m.started)
        case "progress":
            return progress_in(m.progress)
        case "synced":
            return _synced_in(m.synced)
        case "restored":
            return _restored_in(m.restored)
        case "failed":
            return _failed_in(m.failed)
        case "refused":
            return _refused_in(m.refused)
        case "excused":
            return Excused(keys(m.excused.keys, "Excused.keys"))
        case "verified":
            return _verified_in(m.verified)
        case "released":
            return Released(keys(m.released.keys, "Released.keys"))
        case "kept":
            return Kept(held_list_in(m.kept.items, "Kept.items"))
        case "declined":
            return Declined(held_list_in(m.declined.items, "Declined.items"))
        case "handed_back":
            reason = cut_in(m.handed_back.reason, "HandedBack.reason")
            return HandedBack(keys(m.handed_back.keys, "HandedBack.keys"), reason)
        case "deferred":
            return Deferred(keys(m.deferred.keys, "Deferred.keys"))
        case "worker_status":
            return status_in(m.worker_status)
        case None:
            raise FrameInvalid("Report is none that is known here")


def held_list_in(items: Sequence[pb.HeldRepo], what: str) -> tuple[HeldRepo, ...]:
    return tuple([held_in(item) for item in bounded(items, what)])


def _tasks_in(values: Sequence[int], what: str) -> tuple[TaskId, ...]:
    return tuple([TaskId(value) for value in counts(values, what)])


def _started_out(report: Started) -> pb.Started:
    return pb.Started(
        key=name(report.key, "Started.key"),
        task_ids=counts(report.task_ids, "Started.task_ids"),
        at=finite(report.at, "Started.at"),
    )


def _started_in(m: pb.Started) -> Started:
    return Started(
        key=key(m.key, "Started.key"),
        task_ids=_tasks_in(m.task_ids, "Started.task_ids"),
        at=finite(m.at, "Started.at"),
    )


def progress_out(report: Progress) -> pb.Progress:
    return pb.Progress(
        key=name(report.key, "Progress.key"),
        task_ids=counts(report.task_ids, "Progress.task_ids"),
        phase=text_out(report.phase),
        whole_percent=maybe(finite, report.percent, "Progress.whole_percent"),
        received_bytes=count(report.received_bytes, "Progress.received_bytes"),
        at=finite(report.at, "Progress.at"),
    )


def progress_in(m: pb.Progress) -> Progress:
    return Progress(
        key=key(m.key, "Progress.key"),
        task_ids=_tasks_in(m.task_ids, "Progress.task_ids"),
        phase=cut_in(m.phase, "Progress.phase"),
        percent=_percent_in(m),
        received_bytes=count(m.received_bytes, "Progress.received_bytes"),
        at=finite(m.at, "Progress.at"),
    )


def _percent_in(m: pb.Progress) -> float | None:
    if m.HasField("whole_percent"):
        return finite(m.whole_percent, "Progress.whole_percent")
    return whole_of(m.phase, finite(m.percent, "Progress.percent")) if m.HasField("percent") else None


def _synced_out(report: Synced) -> pb.Synced:
    return pb.Synced(
        key=name(report.key, "Synced.key"),
        task_ids=counts(report.task_ids, "Synced.task_ids"),
        digest=digest_out(report.digest, "Synced.digest"),
        head_commit=maybe(oid_out, report.head_commit, "Synced.head_commit"),
        refs_count=count(report.refs_count, "Synced.refs_count"),
        changes=[change_out(change) for change in report.changes],
        changes_total=count(report.changes_total, "Synced.changes_total"),
        commits=count(report.commits, "Synced.commits"),
        received_bytes=count(report.received_bytes, "Synced.received_bytes"),
        size_bytes=count(report.size_bytes, "Synced.size_bytes"),
        first=report.first,
        started_at=finite(report.started_at, "Synced.started_at"),
        verified_at=finite(report.verified_at, "Synced.verified_at"),
        ended_at=finite(report.ended_at, "Synced.ended_at"),
        activity=activity_out(report.activity),
        phases=[
            pb.Phase(name=text_out(phase), seconds=finite(seconds, "Phase.seconds"))
            for phase, seconds in report.phases_s
        ],
        kept=[tip_out(tip) for tip in report.kept],
        kept_total=count(report.kept_total, "Synced.kept_total"),
        pushes=pushes_out(report.pushes),
        look_s=maybe(finite, report.look_s, "Synced.look_s"),
        forced=report.forced,
    )


def _synced_in(m: pb.Synced) -> Synced:
    if not m.HasField("activity"):
        raise FrameInvalid("Synced.activity is missing")
    return Synced(
        key=key(m.key, "Synced.key"),
        task_ids=_tasks_in(m.task_ids, "Synced.task_ids"),
        digest=digest_in(m.digest, "Synced.digest"),
        head_commit=oid_in(m.head_commit, "Synced.head_commit") if m.HasField("head_commit") else None,
        refs_count=count(m.refs_count, "Synced.refs_count"),
        changes=tuple([change_in(c) for c in bounded(m.changes, "Synced.changes")]),
        changes_total=count(m.changes_total, "Synced.changes_total"),
        commits=count(m.commits, "Synced.commits"),
        received_bytes=count(m.received_bytes, "Synced.received_bytes"),
        size_bytes=count(m.size_bytes, "Synced.size_bytes"),
        first=m.first,
        started_at=finite(m.started_at, "Synced.started_at"),
        verified_at=finite(m.verified_at, "Synced.verified_at"),
        ended_at=finite(m.ended_at, "Synced.ended_at"),
        activity=activity_in(m.activity),
        phases_s=tuple(
            [
                (text_in(p.name, "Phase.name"), finite(p.seconds, "Phase.seconds"))
                for p in bounded(m.phases, "Synced.phases")
            ]
        ),
        kept=tuple([tip_in(tip) for tip in bounded(m.kept, "Synced.kept")]),
        kept_total=count(m.kept_total, "Synced.kept_total"),
        pushes=pushes_in(m.pushes),
        look_s=finite(m.look_s, "Synced.look_s") if m.HasField("look_s") else None,
        forced=m.forced,
    )


def _restored_out(report: Restored) -> pb.Restored:
    return pb.Restored(
        key=name(report.key, "Restored.key"),
        task_ids=counts(report.task_ids, "Restored.task_ids"),
        ref=ref_out(report.ref, "Restored.ref"),
        oid=oid_out(report.oid, "Restored.oid"),
        started_at=finite(report.started_at, "Restored.started_at"),
        ended_at=finite(report.ended_at, "Restored.ended_at"),
    )


def _restored_in(m: pb.Restored) -> Restored:
    return Restored(
        key=key(m.key, "Restored.key"),
        task_ids=_tasks_in(m.task_ids, "Restored.task_ids"),
        ref=ref_in(m.ref, "Restored.ref"),
        oid=oid_in(m.oid, "Restored.oid"),
        started_at=finite(m.started_at, "Restored.started_at"),
        ended_at=finite(m.ended_at, "Restored.ended_at"),
    )


def _failed_out(report: Failed) -> pb.Failed:
    return pb.Failed(
        key=name(report.key, "Failed.key"),
        task_ids=counts(report.task_ids, "Failed.task_ids"),
        failure=failure_out(report.failure),
        counted=report.counted,
        consecutive_failures=count(report.consecutive_failures, "Failed.consecutive_failures"),
        started_at=finite(report.started_at, "Failed.started_at"),
        ended_at=finite(report.ended_at, "Failed.ended_at"),
        next_attempt_at=maybe(finite, report.next_attempt_at, "Failed.next_attempt_at"),
    )


def _failed_in(m: pb.Failed) -> Failed:
    if not m.HasField("failure"):
        raise FrameInvalid("Failed.failure is missing")
    return Failed(
        key=key(m.key, "Failed.key"),
        task_ids=_tasks_in(m.task_ids, "Failed.task_ids"),
        failure=failure_in(m.failure),
        counted=m.counted,
        consecutive_failures=count(m.consecutive_failures, "Failed.consecutive_failures"),
        started_at=finite(m.started_at, "Failed.started_at"),
        ended_at=finite(m.ended_at, "Failed.ended_at"),
        next_attempt_at=finite(m.next_attempt_at, "Failed.next_attempt_at")
        if m.HasField("next_attempt_at")
        else None,
    )


def _refused_out(report: Refused) -> pb.Refused:
    return pb.Refused(
        key=name(report.key, "Refused.key"),
        task_ids=counts(report.task_ids, "Refused.task_ids"),
        failure=failure_out(report.failure),
        started_at=finite(report.started_at, "Refused.started_at"),
        ended_at=finite(report.ended_at, "Refused.ended_at"),
    )


def _refused_in(m: pb.Refused) -> Refused:
    if not m.HasField("failure"):
        raise FrameInvalid("Refused.failure is missing")
    return Refused(
        key=key(m.key, "Refused.key"),
        task_ids=_tasks_in(m.task_ids, "Refused.task_ids"),
        failure=failure_in(m.failure),
        started_at=finite(m.started_at, "Refused.started_at"),
        ended_at=finite(m.ended_at, "Refused.ended_at"),
    )


def _verified_out(report: Verified) -> pb.Verified:
    return pb.Verified(
        items=[
            pb.VerifiedRepo(key=name(repo, "Verified.key"), at=finite(at, "Verified.at"))
            for repo, at in report.items
        ]
    )


def _verified_in(m: pb.Verified) -> Verified:
    return Verified(
        tuple(
            [
                (key(item.key, "Verified.key"), finite(item.at, "Verified.at"))
                for item in bounded(m.items, "Verified.items")
            ]
        )
    )
