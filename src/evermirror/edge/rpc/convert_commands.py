"""Commands to the wire and back."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.edge.rpc.convert_parts import (
    activity_in,
    priority_in,
    priority_out,
    put_activity,
    put_spec,
    source_in,
    source_out,
    spec_in,
)
from evermirror.edge.rpc.convert_push import targets_in, targets_out
from evermirror.edge.rpc.convert_values import (
    FrameInvalid,
    bounded,
    count,
    finite,
    key,
    keys,
    maybe,
    name,
    oid_in,
    oid_out,
    ref_in,
    ref_out,
    words,
)
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.messages import (
    ApplySettings,
    AssignRepos,
    Command,
    LookAt,
    ReleaseRepos,
    RestoreTip,
    SyncNow,
)
from evermirror.model.relay import Source
from evermirror.model.repo import Host
from evermirror.model.task import TaskId


def put_command(command: Command, m: pb.Command) -> None:
    """Where it belongs: a message that is given to another is written and read once more by that."""
    match command:
        case AssignRepos():
            _put_assign(command, m.assign_repos)
        case ReleaseRepos():
            m.release_repos.CopyFrom(_release_out(command))
        case SyncNow():
            m.sync_now.CopyFrom(_sync_out(command))
        case LookAt(wanted, sources):
            look = pb.LookAt(keys=keys(wanted, "LookAt.keys"), sources=[source_out(s) for s in sources])
            m.look_at.CopyFrom(look)
        case RestoreTip():
            m.restore_tip.CopyFrom(_restore_out(command))
        case ApplySettings():
            m.apply_settings.CopyFrom(limits_out(command))


def command_in(m: pb.Command) -> Command:
    match m.WhichOneof("command"):
        case "assign_repos":
            return _assign_in(m.assign_repos)
        case "release_repos":
            return _release_in(m.release_repos)
        case "sync_now":
            return _sync_in(m.sync_now)
        case "look_at":
            return LookAt(keys(m.look_at.keys, "LookAt.keys"), _sources(m.look_at.sources, "LookAt.sources"))
        case "restore_tip":
            return _restore_in(m.restore_tip)
        case "apply_settings":
            return limits_in(m.apply_settings)
        case None:
            raise FrameInvalid("Command is none that is known here")


def _put_assign(command: AssignRepos, m: pb.AssignRepos) -> None:
    for spec in command.repos:
        put_spec(spec, m.repos.add())
    for known in command.activities:
        told = m.activities.add()
        if known is not None:
            put_activity(known, told.activity)
    m.more = command.more
    m.following.extend(keys(sorted(command.following), "AssignRepos.following"))
    m.paused.extend(keys(sorted(command.paused), "AssignRepos.paused"))
    m.sources.extend([source_out(source) for source in command.sources])


def _assign_in(m: pb.AssignRepos) -> AssignRepos:
    if len(m.activities) not in (0, len(m.repos)):
        raise FrameInvalid(f"AssignRepos has {len(m.activities)} activities for {len(m.repos)} repos")
    bounded(m.repos, "AssignRepos.repos")
    return AssignRepos(
        repos=tuple([spec_in(spec) for spec in m.repos]),
        activities=tuple([activity_in(a.activity) if a.HasField("activity") else None for a in m.activities]),
        more=m.more,
        following=frozenset(keys(m.following, "AssignRepos.following")),
        paused=frozenset(keys(m.paused, "AssignRepos.paused")),
        sources=_sources(m.sources, "AssignRepos.sources"),
    )


def _release_out(command: ReleaseRepos) -> pb.ReleaseRepos:
    return pb.ReleaseRepos(
        keys=keys(command.keys, "ReleaseRepos.keys"),
        delete=command.delete,
        digests=words(command.digests, "ReleaseRepos.digests"),
    )


def _release_in(m: pb.ReleaseRepos) -> ReleaseRepos:
    if len(m.digests) not in (0, len(m.keys)):
        raise FrameInvalid(f"ReleaseRepos has {len(m.digests)} digests for {len(m.keys)} keys")
    return ReleaseRepos(
        keys=keys(m.keys, "ReleaseRepos.keys"),
        delete=m.delete,
        digests=words(m.digests, "ReleaseRepos.digests"),
    )


def _sync_out(command: SyncNow) -> pb.SyncNow:
    return pb.SyncNow(
        key=name(command.key, "SyncNow.key"),
        task_id=count(command.task_id, "SyncNow.task_id"),
        force=command.force,
        min_commit=maybe(oid_out, command.min_commit, "SyncNow.min_commit"),
        priority=priority_out(command.priority),
        accept=command.accept,
        push=targets_out(command.push),
        early=command.early,
    )


def _sync_in(m: pb.SyncNow) -> SyncNow:
    return SyncNow(
        key=key(m.key, "SyncNow.key"),
        task_id=TaskId(count(m.task_id, "SyncNow.task_id")),
        force=m.force,
        min_commit=oid_in(m.min_commit, "SyncNow.min_commit") if m.HasField("min_commit") else None,
        priority=priority_in(m.priority, "SyncNow.priority"),
        accept=m.accept,
        push=targets_in(m.push),
        early=m.early,
    )


def _restore_out(command: RestoreTip) -> pb.RestoreTip:
    return pb.RestoreTip(
        key=name(command.key, "RestoreTip.key"),
        task_id=count(command.task_id, "RestoreTip.task_id"),
        kept=ref_out(command.kept, "RestoreTip.kept"),
        as_name=maybe(ref_out, command.as_name, "RestoreTip.as_name"),
    )


def _restore_in(m: pb.RestoreTip) -> RestoreTip:
    return RestoreTip(
        key=key(m.key, "RestoreTip.key"),
        task_id=TaskId(count(m.task_id, "RestoreTip.task_id")),
        kept=ref_in(m.kept, "RestoreTip.kept"),
        as_name=ref_in(m.as_name, "RestoreTip.as_name") if m.HasField("as_name") else None,
    )


def limits_out(command: ApplySettings) -> pb.ApplySettings:
    return pb.ApplySettings(
        polls_per_second=maybe(finite, command.polls_per_second, "ApplySettings.polls_per_second"),
        host_rate=maybe(finite, command.host_rate, "ApplySettings.host_rate"),
        slots=maybe(count, command.slots, "ApplySettings.slots"),
        host_rates=[
            pb.HostRate(host=name(host, "HostRate.host"), rate=finite(rate, "HostRate.rate"))
            for host, rate in command.host_rates
        ],
        told_at=finite(command.told_at, "ApplySettings.told_at"),
    )


def limits_in(m: pb.ApplySettings) -> ApplySettings:
    return ApplySettings(
        polls_per_second=finite(m.polls_per_second, "ApplySettings.polls_per_second")
        if m.HasField("polls_per_second")
        else None,
        host_rate=finite(m.host_rate, "ApplySettings.host_rate") if m.HasField("host_rate") else None,
        slots=count(m.slots, "ApplySettings.slots") if m.HasField("slots") else None,
        host_rates=tuple(
            [
                (Host(name(r.host, "HostRate.host")), finite(r.rate, "HostRate.rate"))
                for r in bounded(m.host_rates, "ApplySettings.host_rates")
            ]
        ),
        told_at=finite(m.told_at, "ApplySettings.told_at"),
    )


def _sources(told: Sequence[pb.Source], what: str) -> tuple[Source, ...]:
    return tuple([source_in(source) for source in bounded(told, what)])
