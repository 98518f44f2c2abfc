"""How a task ended, by what its worker reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evermirror.model.duration import took_s
from evermirror.model.failure import SOURCE_URL, Failure, FailureKind, ls_remote_command
from evermirror.model.kept import KeptTip
from evermirror.model.messages import Failed, Refused, Restored, Synced
from evermirror.model.printable import one_line
from evermirror.model.push import Pushed, PushedRef, RefOutcome, TargetId
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskStatus

OUTPUT_KEPT = 2000  # characters of what git said of one target; the task's own failure has all of it
CHANGES_KEPT = 100  # refs named in a task's result; the total is always told


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended. One that succeeded has a failure where some of its targets did not."""

    status: TaskStatus
    started_at: float
    ended_at: float
    source_commit: str | None = None
    has_changes: bool = False
    changes_count: int = 0
    result: Mapping[str, object] | None = None
    failure: Failure | None = None
    retry_count: int = 0
    target_commit: str | None = None


def outcome_of(report: Synced | Failed | Refused | Restored, worker: str = "") -> Outcome:
    """What is kept of a task that ended so; ``worker`` is the name of who did it, empty where nobody did."""
    outcome = _ended(report)
    about: dict[str, object] = {
        "duration_s": took_s(report.started_at, report.ended_at),
        "worker": worker or None,
    }
    return replace(outcome, result={**(outcome.result or {}), **about})


def _with_command(failure: Failure, key: RepoKey) -> Failure:
    """One that ended before any git was to be started is told with the first thing that was to be done."""
    if failure.git_command:
        return failure
    url = failure.context.get(SOURCE_URL) or f"https://{key}"
    return replace(failure, git_command=one_line(ls_remote_command(url)))


def _ended(report: Synced | Failed | Refused | Restored) -> Outcome:
    match report:
        case Synced():
            return _synced(report)
        case Failed():
            return Outcome(
                status=TaskStatus.FAILED,
                started_at=report.started_at,
                ended_at=report.ended_at,
                result={"counted": report.counted, "next_attempt_at": report.next_attempt_at},
                failure=report.failure,
                retry_count=max(0, report.consecutive_failures - 1),
            )
        case Refused():
            failure = _with_command(report.failure, report.key)
            return Outcome(TaskStatus.FAILED, report.started_at, report.ended_at, failure=failure)
        case Restored():
            return Outcome(
                TaskStatus.SUCCESS,
                report.started_at,
                report.ended_at,
                source_commit=report.oid,
                result={"ref": report.ref, "oid": report.oid},
            )


def moved(report: Synced) -> bool:
    """Whether the mirror is another than before."""
    return report.changes_total > 0 or report.first


def _synced(report: Synced) -> Outcome:
    """Failed where no target could be served; one that could be makes it a success, with that failure. So is
    what was forced: all of it was done, whatever it brought."""
    failures = [push.failure for push in report.pushes if push.failure is not None]
    changed = moved(report) or any(push.changed for push in report.pushes)
    if failures and len(failures) == len(report.pushes):
        status = TaskStatus.FAILED
    else:
        status = TaskStatus.SUCCESS if changed or report.forced else TaskStatus.SKIPPED
    return Outcome(
        status=status,
        started_at=report.started_at,
        ended_at=report.ended_at,
        source_commit=report.head_commit,
        has_changes=changed,
        changes_count=report.commits,
        result=_result(report),
        failure=failures[0] if failures else None,
        target_commit=next((push.commit for push in report.pushes if push.commit is not None), None),
    )


def _result(report: Synced) -> dict[str, object]:
    """It begins as pushes.py reads it."""
    result: dict[str, object] = {
        "digest": report.digest,
        "head_commit": report.head_commit,
        "refs_count": report.refs_count,
        "first": report.first,
        "changes": [{"ref": c.name, "old": c.old, "new": c.new} for c in report.changes[:CHANGES_KEPT]],
        "changes_total": report.changes_total,
        "commits": report.commits,
        "received_bytes": report.received_bytes,
        "size_bytes": report.size_bytes,
        "verified_at": report.verified_at,
        "phases_s": dict(report.phases_s),
        "kept": [_kept(tip) for tip in report.kept[:CHANGES_KEPT]],
        "kept_total": report.kept_total,
    }
    if report.pushes:
        named = max(1, CHANGES_KEPT // len(report.pushes))
        result["pushes"] = [_pushed(push, named) for push in report.pushes]
    return result


def _kept(tip: KeptTip) -> dict[str, object]:
    return {"ref": tip.ref, "at": tip.at, "why": tip.why.value, "old": tip.old, "new": tip.new}


def _pushed(push: Pushed, named: int) -> dict[str, object]:
    told: dict[str, object] = {
        "target": push.target,
        "put": push.put,
        "commit": push.commit,
        "refs": [
            {"ref": r.name, "old": r.old, "new": r.new, "outcome": r.outcome.value, "reason": r.reason}
            for r in push.refs[:named]
        ],
        "put_total": push.put_total,
        "deleted_total": push.deleted_total,
        "waiting_total": push.waiting_total,
        "sent_bytes": push.sent_bytes,
        "started_at": push.started_at,
        "ended_at": push.ended_at,
        "warning": push.warning,
    }
    failure = push.failure
    if failure is not None:
        told["failure"] = {
            "kind": failure.kind.value,
            "message": failure.message,
            "hint": failure.hint,
            "git_command": failure.git_command,
            "stdout": failure.stdout[-OUTPUT_KEPT:],
            "stderr": failure.stderr[-OUTPUT_KEPT:],
        }
    return told


def pushes_of(result: Mapping[str, Any] | None) -> tuple[Pushed, ...]:
    """What became of targets, by a task's result: all that a project's state follows from."""
    return tuple(_push_out(told) for told in (result or {}).get("pushes", ()))


def _push_out(told: Mapping[str, Any]) -> Pushed:
    failure = told.get("failure")
    return Pushed(
        target=TargetId(told["target"]),
        put=told["put"],
        commit=told["commit"],
        refs=tuple(
            PushedRef(r["ref"], r["old"], r["new"], RefOutcome(r["outcome"]), r["reason"])
            for r in told["refs"]
        ),
        **{name: told[name] for name in _PLAIN},
        failure=None if failure is None else Failure(**failure | {"kind": FailureKind(failure["kind"])}),
    )


_PLAIN = (
    "put_total", "deleted_total", "waiting_total", "sent_bytes", "started_at", "ended_at", "warning",
)  # fmt: skip
