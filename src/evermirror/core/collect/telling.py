"""What a change that the coordinator tells, or the loss of the mirror here, makes of a repo's row."""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.collect.rows import Charge, Doubt, How, Row, agree
from evermirror.model.changes import Change, HolderReport
from evermirror.model.repo import Mode


def told(row: Row | None, change: Change) -> Row:
    """The row as the change has it; what is here, and what is pending, stays."""
    if row is None:
        row = Row(change.spec, change.seq)
    if not agree(row.wanted, change.digest):  # also where it is what was answered long ago
        row = replace(row, taken=None, retry_at=0.0)
    row = replace(
        row,
        spec=change.spec,
        seq=change.seq,
        alias=change.alias,
        enabled=change.enabled,
        held_back=change.held_back,
        wanted=change.digest,
        wanted_at=change.verified_at,
        changed_at=change.changed_at,
        size_bytes=change.size_bytes,
    )
    return heard(row, change.holders)


def heard(row: Row, holders: tuple[HolderReport, ...]) -> Row:
    """Who holds it, and what they report now."""
    if not holders:
        return row
    untrusted = not any(h.trusted for h in holders)
    if untrusted != row.untrusted:
        row = replace(row, untrusted=untrusted)
    return _vouched(row, holders)


def _vouched(row: Row, holders: tuple[HolderReport, ...]) -> Row:
    """A trusted worker saw upstream later than we did, and it was as it is here."""
    here = row.here
    if here is None or not row.served:
        return row
    seen = [h.verified_at or 0.0 for h in holders if h.trusted and agree(h.digest, here.digest)]
    latest = max(seen, default=0.0)
    return row if latest <= here.verified_at else replace(row, here=replace(here, verified_at=latest))


def lost(row: Row, *, damaged: bool) -> Row:
    """Without the mirror that was here; a damaged one stays on the disk, for the next fetch to replace it
    with all that it kept."""
    here = replace(row.here, how=How.DAMAGED) if damaged and row.here is not None else None
    return replace(row, here=here, taken=None, guard=None)


def cleared(row: Row, holders: tuple[HolderReport, ...]) -> Row:
    """Without suspicions that the holders' reports have answered; without a doubt that has no more reason."""
    if row.doubt is None or row.spec.mode is not Mode.EXACT:
        return row
    reports = {h.node: h.digest for h in holders}
    left = tuple(
        s
        for s in row.doubt.suspicions
        if s.charge is not Charge.STALE or not agree(s.fact, reports.get(s.node))
    )
    settled = row.here is not None and agree(row.here.digest, row.wanted)
    if not left and settled:
        return replace(row, doubt=None)
    if left != row.doubt.suspicions:
        return replace(row, doubt=Doubt(row.doubt.again_at, row.doubt.rounds, left))
    return row
