"""A repo's row as the aggregator's file keeps it, and back."""

from __future__ import annotations

import json
from typing import Any

from evermirror.core.collect.rows import Charge, Doubt, Here, How, Row, Suspicion
from evermirror.edge.store.assigned import spec_of, spec_text
from evermirror.model.kept import GuardMemory, GuardReason
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId

# In the order of ``row_in``; ``at`` is where the row stands among those that something is to be done about.
COLUMNS = (
    "key",
    "spec",
    "seq",
    "alias",
    "enabled",
    "held_back",
    "wanted",
    "wanted_at",
    "changed_at",
    "size_bytes",
    "untrusted",
    "here",
    "verified_at",
    "how",
    "source",
    "here_bytes",
    "taken",
    "place",
    "at",
    "failures",
    "retry_at",
    "doubt",
    "guard",
)


def row_in(row: Row) -> tuple[Any, ...]:
    here = row.here
    return (
        row.key,
        spec_text(row.spec),
        row.seq,
        row.alias,
        row.enabled,
        row.held_back,
        _digest_in(row.wanted),
        row.wanted_at,
        row.changed_at,
        row.size_bytes,
        row.untrusted,
        None if here is None else _digest_in(here.digest),
        None if here is None else here.verified_at,
        None if here is None else here.how.value,
        None if here is None else here.source,
        None if here is None else here.size_bytes,
        _digest_in(row.taken),
        row.place,
        row.scan_at,
        row.failures,
        row.retry_at,
        None if row.doubt is None else _doubt_in(row.doubt),
        None if row.guard is None else _guard_in(row.guard),
    )


def row_out(columns: tuple[Any, ...]) -> Row:
    known = dict(zip(COLUMNS, columns, strict=True))
    digest = _digest_out(known["here"])
    here = None
    if digest is not None:
        source = NodeId(known["source"])
        here = Here(digest, known["verified_at"], How(known["how"]), source, known["here_bytes"])
    return Row(
        spec=spec_of(known["spec"]),
        seq=known["seq"],
        alias=known["alias"],
        enabled=bool(known["enabled"]),
        held_back=bool(known["held_back"]),
        wanted=_digest_out(known["wanted"]),
        wanted_at=known["wanted_at"],
        changed_at=known["changed_at"],
        size_bytes=known["size_bytes"],
        untrusted=bool(known["untrusted"]),
        here=here,
        taken=_digest_out(known["taken"]),
        place=known["place"],
        failures=known["failures"],
        retry_at=known["retry_at"],
        doubt=None if known["doubt"] is None else _doubt_out(known["doubt"]),
        guard=None if known["guard"] is None else _guard_out(known["guard"]),
    )


def _digest_in(digest: RefsDigest | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


def _digest_out(raw: bytes | None) -> RefsDigest | None:
    return None if raw is None else RefsDigest(raw.hex())


def _doubt_in(doubt: Doubt) -> str:
    suspicions = [
        [s.node, s.charge.value, s.fact, s.since, s.strikes, s.reported_at] for s in doubt.suspicions
    ]
    return json.dumps([doubt.again_at, doubt.rounds, suspicions])


def _doubt_out(text: str) -> Doubt:
    again_at, rounds, told = json.loads(text)
    suspicions = tuple(
        Suspicion(NodeId(node), Charge(charge), RefsDigest(fact), since, strikes, reported_at)
        for node, charge, fact, since, strikes, reported_at in told
    )
    return Doubt(again_at, rounds, suspicions)


def _guard_in(guard: GuardMemory) -> str:
    return json.dumps([guard.reason.value, guard.since, guard.sightings, guard.digest, guard.lost])


def _guard_out(text: str) -> GuardMemory:
    reason, since, sightings, digest, lost = json.loads(text)
    return GuardMemory(GuardReason(reason), since, sightings, RefsDigest(digest), lost)
