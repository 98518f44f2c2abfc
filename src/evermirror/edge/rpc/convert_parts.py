"""What several messages are made of, to the wire and back: specs, failures, activities, refs, held repos."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from types import MappingProxyType

from evermirror.edge.rpc.convert_values import (
    OUTPUT_CHARS_MAX,
    FrameInvalid,
    bounded,
    cut_in,
    digest_in,
    digest_out,
    finite,
    key,
    maybe,
    maybe_name,
    name,
    node,
    oid_in,
    oid_out,
    ref_in,
    ref_out,
    seal,
    text_out,
)
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.access import Role
from evermirror.model.activity import NO_ACTIVITY, NO_RHYTHM, Activity, Rhythm, rhythm_of
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.kept import KeptTip, Why
from evermirror.model.messages import HeldRepo
from evermirror.model.refs import RefChange, RefsDigest
from evermirror.model.relay import RelayAddress, Source
from evermirror.model.repo import Host, Mode, Priority, RepoSpec

_PRIORITIES = {
    Priority.CRITICAL: pb.PRIORITY_CRITICAL,
    Priority.HIGH: pb.PRIORITY_HIGH,
    Priority.NORMAL: pb.PRIORITY_NORMAL,
    Priority.LOW: pb.PRIORITY_LOW,
}
_MODES = {Mode.EXACT: pb.MODE_EXACT, Mode.APPEND_ONLY: pb.MODE_APPEND_ONLY}
_KINDS = {
    FailureKind.NETWORK_TIMEOUT: pb.FAILURE_KIND_NETWORK_TIMEOUT,
    FailureKind.RATE_LIMITED: pb.FAILURE_KIND_RATE_LIMITED,
    FailureKind.AUTH_FAILED: pb.FAILURE_KIND_AUTH_FAILED,
    FailureKind.NOT_FOUND: pb.FAILURE_KIND_NOT_FOUND,
    FailureKind.PERMISSION_DENIED: pb.FAILURE_KIND_PERMISSION_DENIED,
    FailureKind.CONFLICT: pb.FAILURE_KIND_CONFLICT,
    FailureKind.DISK_FULL: pb.FAILURE_KIND_DISK_FULL,
    FailureKind.UNKNOWN: pb.FAILURE_KIND_UNKNOWN,
}
_ROLES = {Role.WORKER: pb.NODE_ROLE_WORKER, Role.AGGREGATOR: pb.NODE_ROLE_AGGREGATOR}
_WHYS = {Why.DELETED: pb.WHY_DELETED, Why.REWRITTEN: pb.WHY_REWRITTEN}

_PRIORITY_OF = {number: value for value, number in _PRIORITIES.items()}
_MODE_OF = {number: value for value, number in _MODES.items()}
_KIND_OF = {number: value for value, number in _KINDS.items()}
_ROLE_OF = {number: value for value, number in _ROLES.items()}
_WHY_OF = {number: value for value, number in _WHYS.items()}

_NOTHING_KNOWN = pb.Activity(counts=NO_ACTIVITY.counts)  # nearly all of very many
_COUNTS = 3  # of an Activity
CONTEXT_MAX = 64  # words of a Failure; ours have a few
_RHYTHM = 5  # numbers of one


def priority_out(value: Priority | None) -> pb.Priority.ValueType:
    return pb.PRIORITY_UNSPECIFIED if value is None else _PRIORITIES[value]


def priority_in(value: pb.Priority.ValueType, what: str) -> Priority | None:
    """None where it was left open."""
    if value == pb.PRIORITY_UNSPECIFIED:
        return None
    try:
        return _PRIORITY_OF[value]
    except KeyError:
        raise FrameInvalid(f"{what} is {value}, which is none") from None


def role_out(value: Role | None, what: str) -> pb.NodeRole.ValueType:
    if value is None:
        return pb.NODE_ROLE_UNSPECIFIED
    try:
        return _ROLES[value]
    except KeyError:
        raise FrameInvalid(f"{what} is {value.value}, which is no node's") from None


def role_in(value: pb.NodeRole.ValueType, what: str) -> Role | None:
    """None where it was left open."""
    if value == pb.NODE_ROLE_UNSPECIFIED:
        return None
    try:
        return _ROLE_OF[value]
    except KeyError:
        raise FrameInvalid(f"{what} is {value}, which is none") from None


def spec_out(spec: RepoSpec) -> pb.RepoSpec:
    m = pb.RepoSpec()
    put_spec(spec, m)
    return m


def put_spec(spec: RepoSpec, m: pb.RepoSpec) -> None:
    """Where it belongs, and only what is not the default: very many are told at once."""
    m.key = name(spec.key, "RepoSpec.key")
    m.url = name(spec.url, "RepoSpec.url")
    m.host = name(spec.host, "RepoSpec.host")
    m.priority = _PRIORITIES[spec.priority]
    m.mode = _MODES[spec.mode]
    if spec.interval_s is not None:
        m.interval_s = finite(spec.interval_s, "RepoSpec.interval_s")
    if spec.private:
        m.private = True
    if spec.credential is not None:
        m.credential = maybe_name(spec.credential, "RepoSpec.credential")
    if spec.fallbacks:
        m.fallbacks.extend([name(url, "RepoSpec.fallbacks") for url in spec.fallbacks])
    if spec.pulled:
        m.pulled = True
    if spec.hooked:
        m.hooked = True
    if spec.fsck_allow:
        m.fsck_allow.extend([name(defect, "RepoSpec.fsck_allow") for defect in spec.fsck_allow])


def spec_in(m: pb.RepoSpec) -> RepoSpec:
    priority = priority_in(m.priority, "RepoSpec.priority")
    mode = _MODE_OF.get(m.mode)
    if priority is None or mode is None:
        raise FrameInvalid("RepoSpec.priority or mode is missing, or unknown")
    return RepoSpec(
        key=key(m.key, "RepoSpec.key"),
        url=name(m.url, "RepoSpec.url"),
        host=Host(name(m.host, "RepoSpec.host")),
        priority=priority,
        interval_s=finite(m.interval_s, "RepoSpec.interval_s") if m.HasField("interval_s") else None,
        mode=mode,
        private=m.private,
        credential=maybe_name(m.credential, "RepoSpec.credential") if m.HasField("credential") else None,
        fallbacks=tuple([name(u, "RepoSpec.fallbacks") for u in bounded(m.fallbacks, "RepoSpec.fallbacks")]),
        pulled=m.pulled,
        hooked=m.hooked,
        fsck_allow=tuple(
            [name(defect, "RepoSpec.fsck_allow") for defect in bounded(m.fsck_allow, "RepoSpec.fsck_allow")]
        ),
    )


def activity_out(activity: Activity) -> pb.Activity:
    m = pb.Activity()
    put_activity(activity, m)
    return m


def put_activity(activity: Activity, m: pb.Activity) -> None:
    """Where it belongs."""
    if activity is NO_ACTIVITY:
        m.counts.extend(activity.counts)
        return
    m.counts.extend([finite(c, "Activity.counts") for c in activity.counts])
    m.as_of = finite(activity.as_of, "Activity.as_of")
    m.last_push_at = finite(activity.last_push_at, "Activity.last_push_at")
    if activity.rhythm is not NO_RHYTHM:
        m.rhythm.extend(_rhythm_out(activity.rhythm))


def activity_in(m: pb.Activity) -> Activity:
    if m == _NOTHING_KNOWN:
        return NO_ACTIVITY
    if len(m.counts) != _COUNTS:
        raise FrameInvalid(f"Activity.counts has {len(m.counts)} items, not {_COUNTS}")
    short, middle, long = (_fading(c, "Activity.counts") for c in m.counts)
    return Activity(
        counts=(short, middle, long),
        as_of=finite(m.as_of, "Activity.as_of"),
        last_push_at=finite(m.last_push_at, "Activity.last_push_at"),
        rhythm=_rhythm_in(m.rhythm),
    )


def _fading(value: float, what: str) -> float:
    if value < 0.0:
        raise FrameInvalid(f"{what} is {value}, which is less than none")
    return finite(value, what)


def _rhythm_out(rhythm: Rhythm) -> list[float]:
    if rhythm == NO_RHYTHM:
        return []
    day, half_day = rhythm.day, rhythm.half_day
    numbers = (rhythm.pushes, day.real, day.imag, half_day.real, half_day.imag)
    return [finite(number, "Activity.rhythm") for number in numbers]


def _rhythm_in(numbers: Sequence[float]) -> Rhythm:
    """None of it where a node knows nothing of hours."""
    if not numbers:
        return NO_RHYTHM
    if len(numbers) != _RHYTHM:
        raise FrameInvalid(f"Activity.rhythm has {len(numbers)} items, not {_RHYTHM}")
    pushes, *waves = (finite(number, "Activity.rhythm") for number in numbers)
    rhythm = rhythm_of(pushes, waves)
    if rhythm is None:
        raise FrameInvalid("Activity.rhythm has waves that are higher than its pushes")
    return rhythm


def failure_out(failure: Failure) -> pb.Failure:
    return pb.Failure(
        kind=_KINDS[failure.kind],
        message=text_out(failure.message),
        hint=text_out(failure.hint),
        retry_after_s=maybe(finite, failure.retry_after_s, "Failure.retry_after_s"),
        git_command=text_out(failure.git_command),
        stdout=text_out(failure.stdout),
        stderr=text_out(failure.stderr),
        corrupt=failure.corrupt,
        context={text_out(word): text_out(told) for word, told in failure.context.items()},
    )


def failure_in(m: pb.Failure) -> Failure:
    if m.kind == pb.FAILURE_KIND_UNSPECIFIED:
        raise FrameInvalid("Failure.kind is missing")
    context = {
        cut_in(word, "Failure.context"): cut_in(told, "Failure.context")
        for word, told in islice(m.context.items(), CONTEXT_MAX)
    }
    return Failure(
        kind=_KIND_OF.get(m.kind, FailureKind.UNKNOWN),  # a newer side may know more kinds
        message=cut_in(m.message, "Failure.message"),
        hint=cut_in(m.hint, "Failure.hint"),
        retry_after_s=finite(m.retry_after_s, "Failure.retry_after_s")
        if m.HasField("retry_after_s")
        else None,
        git_command=cut_in(m.git_command, "Failure.git_command"),
        stdout=cut_in(m.stdout, "Failure.stdout", OUTPUT_CHARS_MAX),
        stderr=cut_in(m.stderr, "Failure.stderr", OUTPUT_CHARS_MAX),
        corrupt=m.corrupt,
        context=MappingProxyType(context),
    )


def change_out(change: RefChange) -> pb.RefChange:
    return pb.RefChange(
        name=ref_out(change.name, "RefChange.name"),
        old=maybe(oid_out, change.old, "RefChange.old"),
        new=maybe(oid_out, change.new, "RefChange.new"),
    )


def change_in(m: pb.RefChange) -> RefChange:
    return RefChange(
        name=ref_in(m.name, "RefChange.name"),
        old=oid_in(m.old, "RefChange.old") if m.HasField("old") else None,
        new=oid_in(m.new, "RefChange.new") if m.HasField("new") else None,
    )


def tip_out(tip: KeptTip) -> pb.KeptTip:
    return pb.KeptTip(
        name=ref_out(tip.name, "KeptTip.name"),
        ref=ref_out(tip.ref, "KeptTip.ref"),
        at=finite(tip.at, "KeptTip.at"),
        why=_WHYS[tip.why],
        old=oid_out(tip.old, "KeptTip.old"),
        new=maybe(oid_out, tip.new, "KeptTip.new"),
    )


def tip_in(m: pb.KeptTip) -> KeptTip:
    why = _WHY_OF.get(m.why)
    if why is None:
        raise FrameInvalid("KeptTip.why is missing, or unknown")
    return KeptTip(
        name=ref_in(m.name, "KeptTip.name"),
        ref=ref_in(m.ref, "KeptTip.ref"),
        at=finite(m.at, "KeptTip.at"),
        why=why,
        old=oid_in(m.old, "KeptTip.old"),
        new=oid_in(m.new, "KeptTip.new") if m.HasField("new") else None,
    )


def held_out(held: HeldRepo) -> pb.HeldRepo:
    return pb.HeldRepo(
        key=name(held.key, "HeldRepo.key"),
        digest=maybe(digest_out, held.digest, "HeldRepo.digest"),
        verified_at=maybe(finite, held.verified_at, "HeldRepo.verified_at"),
    )


def held_in(m: pb.HeldRepo) -> HeldRepo:
    return HeldRepo(
        key=key(m.key, "HeldRepo.key"),
        digest=digest_in(m.digest, "HeldRepo.digest") if m.HasField("digest") else None,
        verified_at=finite(m.verified_at, "HeldRepo.verified_at") if m.HasField("verified_at") else None,
    )


def source_out(source: Source) -> pb.Source:
    return pb.Source(
        key=name(source.key, "Source.key"),
        holder=node(source.holder, "Source.holder"),
        ticket=seal(source.ticket, "Source.ticket"),
        trusted=source.trusted,
    )


def source_in(m: pb.Source) -> Source:
    return Source(
        key=key(m.key, "Source.key"),
        holder=node(m.holder, "Source.holder"),
        ticket=seal(m.ticket, "Source.ticket"),
        trusted=m.trusted,
    )


def relay_out(relay: RelayAddress) -> pb.RelayAddress:
    fingerprint = digest_out(RefsDigest(relay.fingerprint), "RelayAddress.fingerprint")
    return pb.RelayAddress(address=name(relay.address, "RelayAddress.address"), fingerprint=fingerprint)


def relay_in(m: pb.RelayAddress) -> RelayAddress:
    fingerprint = digest_in(m.fingerprint, "RelayAddress.fingerprint")
    return RelayAddress(address=name(m.address, "RelayAddress.address"), fingerprint=fingerprint)
