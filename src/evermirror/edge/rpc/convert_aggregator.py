"""What an aggregator and its coordinator say to each other, and passes, to the wire and back."""

from __future__ import annotations

from evermirror.edge.rpc.convert_parts import relay_in, relay_out, spec_in, spec_out
from evermirror.edge.rpc.convert_values import (
    FrameInvalid,
    bounded,
    count,
    digest_in,
    digest_out,
    finite,
    key,
    keys,
    maybe,
    maybe_name,
    name,
    node,
    public_key,
    seal,
    text_in,
    text_out,
)
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.changes import Change, HolderReport, RepoHolders
from evermirror.model.relay import Denial
from evermirror.model.wire import Access, Accused, AskHolders, Changes, Doubted, Holders

ASKED_MAX = 500  # keys of one AskHolders or Doubted


def ask_out(frame: AskHolders) -> pb.AskHolders:
    return pb.AskHolders(
        number=count(frame.number, "AskHolders.number"),
        keys=keys(frame.keys, "AskHolders.keys", items_max=ASKED_MAX),
    )


def ask_in(m: pb.AskHolders) -> AskHolders:
    return AskHolders(
        number=count(m.number, "AskHolders.number"),
        keys=keys(m.keys, "AskHolders.keys", items_max=ASKED_MAX),
    )


def doubted_out(frame: Doubted) -> pb.Doubted:
    return pb.Doubted(keys=keys(frame.keys, "Doubted.keys", items_max=ASKED_MAX))


def doubted_in(m: pb.Doubted) -> Doubted:
    return Doubted(keys(m.keys, "Doubted.keys", items_max=ASKED_MAX))


def accused_out(frame: Accused) -> pb.Accused:
    return pb.Accused(
        node=node(frame.node, "Accused.node"),
        key=name(frame.key, "Accused.key"),
        reason=text_out(frame.reason),
        evidence=text_out(frame.evidence),
    )


def accused_in(m: pb.Accused) -> Accused:
    return Accused(
        node=node(m.node, "Accused.node"),
        key=key(m.key, "Accused.key"),
        reason=text_in(m.reason, "Accused.reason"),
        evidence=text_in(m.evidence, "Accused.evidence"),
    )


def access_out(frame: Access) -> pb.Access:
    return pb.Access(
        node=node(frame.node, "Access.node"),
        pass_=seal(frame.pass_, "Access.pass_"),
        until=finite(frame.until, "Access.until"),
        seal_key=public_key(frame.seal_key, "Access.seal_key"),
        relays=[relay_out(relay) for relay in frame.relays],
        user_tokens=frame.user_tokens,
        denied=[pb.Denial(node=node(d.node, "Denial.node"), until=d.until) for d in frame.denied],
        told_at=finite(frame.told_at, "Access.told_at"),
    )


def access_in(m: pb.Access) -> Access:
    return Access(
        node=node(m.node, "Access.node"),
        pass_=seal(m.pass_, "Access.pass_"),
        until=finite(m.until, "Access.until"),
        seal_key=public_key(m.seal_key, "Access.seal_key"),
        relays=tuple([relay_in(relay) for relay in bounded(m.relays, "Access.relays")]),
        user_tokens=m.user_tokens,
        denied=tuple(
            [
                Denial(node(d.node, "Denial.node"), finite(d.until, "Denial.until"))
                for d in bounded(m.denied, "Access.denied")
            ]
        ),
        told_at=finite(m.told_at, "Access.told_at"),
    )


def changes_out(frame: Changes) -> pb.Changes:
    return pb.Changes(
        items=[_change_out(change) for change in frame.items], upto=count(frame.upto, "Changes.upto")
    )


def changes_in(m: pb.Changes) -> Changes:
    return Changes(
        items=tuple([_change_in(change) for change in bounded(m.items, "Changes.items")]),
        upto=count(m.upto, "Changes.upto"),
    )


def holders_out(frame: Holders) -> pb.Holders:
    return pb.Holders(
        number=count(frame.number, "Holders.number"),
        items=[
            pb.RepoHolders(
                key=name(item.key, "RepoHolders.key"), holders=[_holder_out(h) for h in item.holders]
            )
            for item in frame.items
        ],
    )


def holders_in(m: pb.Holders) -> Holders:
    return Holders(
        number=count(m.number, "Holders.number"),
        items=tuple(
            [
                RepoHolders(
                    key=key(item.key, "RepoHolders.key"),
                    holders=tuple([_holder_in(h) for h in bounded(item.holders, "RepoHolders.holders")]),
                )
                for item in bounded(m.items, "Holders.items")
            ]
        ),
    )


def _change_out(change: Change) -> pb.Change:
    return pb.Change(
        seq=count(change.seq, "Change.seq"),
        spec=spec_out(change.spec),
        alias=maybe(maybe_name, change.alias, "Change.alias"),
        enabled=change.enabled,
        digest=maybe(digest_out, change.digest, "Change.digest"),
        verified_at=maybe(finite, change.verified_at, "Change.verified_at"),
        changed_at=maybe(finite, change.changed_at, "Change.changed_at"),
        size_bytes=count(change.size_bytes, "Change.size_bytes"),
        held_back=change.held_back,
        holders=[_holder_out(holder) for holder in change.holders],
        removed=change.removed,
    )


def _change_in(m: pb.Change) -> Change:
    if not m.HasField("spec"):
        raise FrameInvalid("Change.spec is missing")
    return Change(
        seq=count(m.seq, "Change.seq"),
        spec=spec_in(m.spec),
        alias=maybe_name(m.alias, "Change.alias") if m.HasField("alias") else None,
        enabled=m.enabled,
        digest=digest_in(m.digest, "Change.digest") if m.HasField("digest") else None,
        verified_at=finite(m.verified_at, "Change.verified_at") if m.HasField("verified_at") else None,
        changed_at=finite(m.changed_at, "Change.changed_at") if m.HasField("changed_at") else None,
        size_bytes=count(m.size_bytes, "Change.size_bytes"),
        held_back=m.held_back,
        holders=tuple([_holder_in(h) for h in bounded(m.holders, "Change.holders")]),
        removed=m.removed,
    )


def _holder_out(holder: HolderReport) -> pb.HolderReport:
    return pb.HolderReport(
        node=node(holder.node, "HolderReport.node"),
        name=maybe_name(holder.name, "HolderReport.name"),
        trusted=holder.trusted,
        operator=maybe_name(holder.operator, "HolderReport.operator"),
        primary=holder.primary,
        digest=maybe(digest_out, holder.digest, "HolderReport.digest"),
        verified_at=maybe(finite, holder.verified_at, "HolderReport.verified_at"),
    )


def _holder_in(m: pb.HolderReport) -> HolderReport:
    return HolderReport(
        node=node(m.node, "HolderReport.node"),
        name=maybe_name(m.name, "HolderReport.name"),
        trusted=m.trusted,
        operator=maybe_name(m.operator, "HolderReport.operator"),
        primary=m.primary,
        digest=digest_in(m.digest, "HolderReport.digest") if m.HasField("digest") else None,
        verified_at=finite(m.verified_at, "HolderReport.verified_at") if m.HasField("verified_at") else None,
    )
