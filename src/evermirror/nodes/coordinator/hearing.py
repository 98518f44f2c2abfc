"""What workers say, as events of the fleet's machine."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.fleet.events import (
    ClonesDeferred,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    Event,
    HeldCopy,
    OtherReported,
    ReportId,
    ReposHandedBack,
)
from evermirror.core.fleet.machine import FleetMachine
from evermirror.edge.store.writes import Write, writes_of
from evermirror.model.messages import (
    Declined,
    Deferred,
    Failed,
    HandedBack,
    HeldRepo,
    Kept,
    Released,
    Report,
    Synced,
)
from evermirror.model.refs import short_digest
from evermirror.model.worker import WorkerId


def held_copies(items: Iterable[HeldRepo]) -> tuple[HeldCopy, ...]:
    return tuple(HeldCopy(h.key, short_digest(h.digest), h.verified_at or 0.0) for h in items)


def event_of(id_: ReportId, report: Report) -> Event:
    """What a report means for the placement."""
    match report:
        case Synced():
            return CopiesVerified(
                id_, (HeldCopy(report.key, short_digest(report.digest), report.verified_at),)
            )
        case Kept():
            return CopiesVerified(id_, held_copies(report.items))
        case Released():
            return CopiesDropped(id_, report.keys)
        case Declined():
            return DeletionsDeclined(id_, held_copies(report.items))
        case Failed():
            return ClonesDeferred(id_, (report.key,))
        case Deferred():
            return ClonesDeferred(id_, report.keys)
        case HandedBack():
            return ReposHandedBack(id_, report.keys)
        case _:
            return OtherReported(id_)


def written(machine: FleetMachine, worker: WorkerId, report: Report) -> tuple[Write, ...]:
    """What the report leaves in the store. Others are told of it by the primary; of refs also by one who
    follows it and is trusted, for it may see first what moved, and be the only one."""
    who = machine.record(worker)
    name = who.facts.name if who is not None else ""
    primary = machine.primary_of(report.key) if isinstance(report, Synced | Failed) else None
    follows = primary not in (None, worker)
    tells = who is not None and (who.facts.trusted or not follows)
    return writes_of(report, worker=name, teller=name if tells else None, follows=follows)
