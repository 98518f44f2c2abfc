"""Targets of a sync, and what became of them, to the wire and back."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.edge.rpc.convert_parts import failure_in, failure_out
from evermirror.edge.rpc.convert_values import (
    FrameInvalid,
    bounded,
    count,
    cut_in,
    digest_in,
    digest_out,
    finite,
    maybe,
    maybe_name,
    name,
    oid_in,
    oid_out,
    ref_in,
    ref_out,
    text_out,
)
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.push import PUSHES_MAX, Pushed, PushedRef, PushTo, RefOutcome, TargetId

_OUTCOMES = {
    RefOutcome.PUT: pb.REF_OUTCOME_PUT,
    RefOutcome.DELETED: pb.REF_OUTCOME_DELETED,
    RefOutcome.CONFLICT: pb.REF_OUTCOME_CONFLICT,
    RefOutcome.REFUSED: pb.REF_OUTCOME_REFUSED,
}
_OUTCOME_OF = {number: value for value, number in _OUTCOMES.items()}


def targets_out(push: Sequence[PushTo]) -> list[pb.PushTo]:
    return [_target_out(to) for to in bounded(push, "SyncNow.push", items_max=PUSHES_MAX)]


def targets_in(push: Sequence[pb.PushTo]) -> tuple[PushTo, ...]:
    return tuple([_target_in(m) for m in bounded(push, "SyncNow.push", items_max=PUSHES_MAX)])


def pushes_out(pushes: Sequence[Pushed]) -> list[pb.Pushed]:
    return [_pushed_out(pushed) for pushed in bounded(pushes, "Synced.pushes", items_max=PUSHES_MAX)]


def pushes_in(pushes: Sequence[pb.Pushed]) -> tuple[Pushed, ...]:
    return tuple([_pushed_in(m) for m in bounded(pushes, "Synced.pushes", items_max=PUSHES_MAX)])


def _target_out(to: PushTo) -> pb.PushTo:
    return pb.PushTo(
        target=count(to.target, "PushTo.target"),
        url=name(to.url, "PushTo.url"),
        credential=maybe(maybe_name, to.credential, "PushTo.credential"),
        put=maybe(digest_out, to.put, "PushTo.put"),
        adopt=to.adopt,
    )


def _target_in(m: pb.PushTo) -> PushTo:
    return PushTo(
        target=TargetId(count(m.target, "PushTo.target")),
        url=name(m.url, "PushTo.url"),
        credential=maybe_name(m.credential, "PushTo.credential") if m.HasField("credential") else None,
        put=digest_in(m.put, "PushTo.put") if m.HasField("put") else None,
        adopt=m.adopt,
    )


def _pushed_out(pushed: Pushed) -> pb.Pushed:
    return pb.Pushed(
        target=count(pushed.target, "Pushed.target"),
        put=maybe(digest_out, pushed.put, "Pushed.put"),
        commit=maybe(oid_out, pushed.commit, "Pushed.commit"),
        refs=[_ref_out(ref) for ref in pushed.refs],
        put_total=count(pushed.put_total, "Pushed.put_total"),
        deleted_total=count(pushed.deleted_total, "Pushed.deleted_total"),
        waiting_total=count(pushed.waiting_total, "Pushed.waiting_total"),
        sent_bytes=count(pushed.sent_bytes, "Pushed.sent_bytes"),
        started_at=finite(pushed.started_at, "Pushed.started_at"),
        ended_at=finite(pushed.ended_at, "Pushed.ended_at"),
        failure=None if pushed.failure is None else failure_out(pushed.failure),
        warning=text_out(pushed.warning),
    )


def _pushed_in(m: pb.Pushed) -> Pushed:
    return Pushed(
        target=TargetId(count(m.target, "Pushed.target")),
        put=digest_in(m.put, "Pushed.put") if m.HasField("put") else None,
        commit=oid_in(m.commit, "Pushed.commit") if m.HasField("commit") else None,
        refs=tuple([_ref_in(ref) for ref in bounded(m.refs, "Pushed.refs")]),
        put_total=count(m.put_total, "Pushed.put_total"),
        deleted_total=count(m.deleted_total, "Pushed.deleted_total"),
        waiting_total=count(m.waiting_total, "Pushed.waiting_total"),
        sent_bytes=count(m.sent_bytes, "Pushed.sent_bytes"),
        started_at=finite(m.started_at, "Pushed.started_at"),
        ended_at=finite(m.ended_at, "Pushed.ended_at"),
        failure=failure_in(m.failure) if m.HasField("failure") else None,
        warning=cut_in(m.warning, "Pushed.warning"),
    )


def _ref_out(ref: PushedRef) -> pb.PushedRef:
    return pb.PushedRef(
        name=ref_out(ref.name, "PushedRef.name"),
        old=maybe(oid_out, ref.old, "PushedRef.old"),
        new=maybe(oid_out, ref.new, "PushedRef.new"),
        outcome=_OUTCOMES[ref.outcome],
        reason=text_out(ref.reason),
    )


def _ref_in(m: pb.PushedRef) -> PushedRef:
    outcome = _OUTCOME_OF.get(m.outcome)
    if outcome is None:
        raise FrameInvalid("PushedRef.outcome is missing, or unknown")
    return PushedRef(
        name=ref_in(m.name, "PushedRef.name"),
        old=oid_in(m.old, "PushedRef.old") if m.HasField("old") else None,
        new=oid_in(m.new, "PushedRef.new") if m.HasField("new") else None,
        outcome=outcome,
        reason=cut_in(m.reason, "PushedRef.reason"),
    )
