"""What workers say, as events of the fleet's machine."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.fleet.events import (
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    Event,
    HeldCopy,
    OtherReported,
    ReportId,
    ReposHandedBack,
)
from evermirror.model.messages import Declined, HandedBack, HeldRepo, Kept, Released, Report, Synced
from evermirror.model.refs import short_digest


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
        case HandedBack():
            return ReposHandedBack(id_, report.keys)
        case _:
            return OtherReported(id_)
