"""What workers say, as events of the fleet's machine; and which reports could not be taken in."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

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

log = structlog.get_logger(__name__)

REPORT_TRIES = 3  # connections in which a report may fail


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


class FailedReports:
    """Reports that a bug kept from being taken in. Each is sent again in the worker's next connection; after
    REPORT_TRIES it is set aside, for it would hold up all that its worker has to say."""

    def __init__(self) -> None:
        self._tries: dict[WorkerId, tuple[ReportId, int]] = {}  # of each worker the latest
        self._set_aside = 0

    def failed(self, id_: ReportId, report: Report) -> bool:
        """Whether it is to be set aside now. Called where the exception is handled, which is logged."""
        before, tries = self._tries.get(id_.worker, (id_, 0))
        same = (before.generation, before.seq) == (id_.generation, id_.seq)
        tries = tries + 1 if same else 1
        self._tries[id_.worker] = id_, tries
        told = {"worker": id_.worker, "report": type(report).__name__, "tries": tries}
        log.exception("a report could not be taken in", **told)
        if tries < REPORT_TRIES:
            return False
        del self._tries[id_.worker]
        self._set_aside += 1
        log.error("a report was set aside", **told)
        return True

    def warnings(self) -> tuple[str, ...]:
        """For the overview."""
        if not self._set_aside:
            return ()
        return (f"{self._set_aside} reports of workers could not be taken in since the start: see the log",)
