"""The fleet as people look at it and change it: what is there, what is wrong, and orders to single workers.

An order is noted in the audit log, told to the fleet, and answered once what follows from it is on the disk.
One that changes nothing (a worker that drains is to be drained) is answered at once, and not noted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Protocol

from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.core.fleet.events import (
    BrakeOverruled,
    DrainAsked,
    DutyResumed,
    Event,
    QuarantineAsked,
    RetireAsked,
)
from evermirror.core.fleet.explain import STATES, WHY
from evermirror.core.fleet.flaps import faded, weight_factor
from evermirror.core.fleet.moves import Move
from evermirror.core.fleet.views import Losing, Totals, WorkerView
from evermirror.core.schedule.disk import SETTING, percent_full
from evermirror.errors import Conflict, NotFound, Unavailable
from evermirror.model.messages import WorkerStatus
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import Host, RepoKey
from evermirror.model.worker import AggregatorRecord, Duty, Liveness, WorkerId
from evermirror.nodes.coordinator.aggregators.registry import AWAY, away_alert
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.fleet_view import (
    ALERTS_MAX,
    AggregatorInfo,
    FleetMoves,
    FleetView,
    MoveInfo,
    RateInUse,
    StandingAlert,
    WorkerInfo,
)

VIEW_FRESH_S = 0.5  # a look counts over all copies: tens of milliseconds for a million, and anybody may look
MOVES_MAX = 1_000  # repos on the move that are named; all are counted
PERSIST_S = 30.0  # an answer waits at most so long for the database


Collected = Callable[[NodeId, RepoKey, RefsDigest, float], Awaitable[bool]]
"""Whether an aggregator has a repo with these refs, within so many seconds."""


async def _by_nobody(node: NodeId, key: RepoKey, digest: RefsDigest, within_s: float) -> bool:
    return False


class AuditLog(Protocol):
    """Where it is noted who changed what: a ``Store``."""

    async def audit(self, actor: str, action: str, subject: str, detail: object = None) -> None: ...


class FleetAdmin:
    """Implements ``FleetService``."""

    def __init__(
        self,
        fleet: Fleet,
        store: AuditLog,
        statuses: Mapping[WorkerId, WorkerStatus],
        *,
        alerts: Callable[[], Iterable[Alert]] = tuple,
        utc: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._statuses = statuses
        self._alerts = alerts  # as they were raised since the start
        self._utc = utc
        self._mono = mono
        self.aggregators: Callable[[], tuple[AggregatorInfo, ...]] = tuple
        self.registered: Callable[[], Iterable[AggregatorRecord]] = tuple  # all, also those not shown
        self.collected: Collected = _by_nobody
        self._looked: tuple[float, FleetView] | None = None
        self._moves: dict[bool, tuple[float, FleetMoves]] = {}  # for the public, and for others

    # Looking

    async def serves(self, node: NodeId, key: RepoKey, digest: RefsDigest, within_s: float) -> bool:
        return await self.collected(node, key, digest, within_s)

    def view(self) -> FleetView:
        """Half a second old at most; never older than the last order."""
        now = self._mono()
        if self._looked is None or not 0 <= now - self._looked[0] < VIEW_FRESH_S:
            self._looked = now, self._look()
        return self._looked[1]

    def look(self) -> FleetView:
        """As it is at this moment."""
        self._looked = None
        return self.view()

    def _look(self) -> FleetView:
        machine, now = self._fleet.machine, self._utc()
        seen, totals = machine.workers(), machine.totals()
        raised = {(alert.kind, alert.about): alert for alert in self._alerts()}
        workers = tuple(self._info(w, now) for w in seen)
        alerts = tuple(
            chain(
                _standing(seen, totals, raised),
                _away(self.registered()),
                _full(workers),
                _accusations(self._alerts()),
            )
        )
        return FleetView(
            workers=workers,
            totals=totals,
            alerts=alerts[:ALERTS_MAX],
            now=now,
            aggregators=self.aggregators(),
            rates=_rates(machine.rates_in_use()),
            more_alerts=alerts[ALERTS_MAX:],
        )

    def _info(self, seen: WorkerView, now: float) -> WorkerInfo:
        record = seen.record
        score = faded(record.flap_score, record.flap_at, now)
        return WorkerInfo(
            seen=seen,
            flap_score=score,
            weight_now=record.facts.weight * weight_factor(score),
            version=self._fleet.version_of(record.id),
            load=self._statuses.get(record.id) if seen.connected else None,
            own=self._fleet.is_own(record.id),
        )

    def warnings(self) -> tuple[str, ...]:
        """What is wrong now, in words."""
        return tuple(alert.text for alert in self.view().alerts)

    def worker(self, name: str) -> WorkerInfo:
        """By name; by id where no worker has such a name (a name may hold anything)."""
        workers = self.view().workers
        found = [w for w in workers if w.name == name] or [w for w in workers if str(w.id) == name]
        if not found:
            raise NotFound(f"no worker {name!r}", hint="GET /api/fleet lists them")
        return found[0]

    def losing(self, name: str) -> Losing:
        """What would follow if this worker were gone."""
        return self._fleet.machine.losing(self.worker(name).id)

    def moves(self, limit: int, *, public: bool) -> FleetMoves:
        """Half a second old at most, as the view is."""
        now, known = self._mono(), self._moves.get(public)
        if known is None or not 0 <= now - known[0] < VIEW_FRESH_S:
            known = self._moves[public] = now, self._find_moves(public)
        return replace(known[1], items=known[1].items[:limit])

    def _find_moves(self, public: bool) -> FleetMoves:
        found = self._fleet.machine.moves(MOVES_MAX, public=public)
        return FleetMoves(tuple(self._move(move) for move in found.items), found.total)

    def _move(self, move: Move) -> MoveInfo:
        going, coming = (tuple(map(self._name, them)) for them in (move.going, move.coming))
        reason = WHY[move.reason] if move.reason is not None else STATES[move.state]
        return MoveInfo(move.key, going, coming, move.state, reason)

    def _name(self, worker: WorkerId) -> str:
        record = self._fleet.machine.record(worker)
        return record.facts.name if record is not None else f"worker {worker}"

    # Orders

    def _now(self, name: str) -> WorkerInfo:
        """As it is at this moment."""
        self._looked = None
        return self.worker(name)

    async def drain(self, name: str, *, actor: str) -> WorkerInfo:
        worker = self._now(name)
        if worker.duty is Duty.QUARANTINED:
            raise Conflict(
                f"worker {worker.name} is quarantined: nothing is read from it",
                hint="Resume it first, or retire it",
            )
        return await self._order(worker, Duty.DRAINING, DrainAsked(worker.id), "worker.drained", actor)

    async def resume(self, name: str, *, actor: str) -> WorkerInfo:
        worker = self._now(name)
        return await self._order(worker, Duty.ACTIVE, DutyResumed(worker.id), "worker.resumed", actor)

    async def quarantine(
        self, name: str, reason: str, *, actor: str, detail: Mapping[str, object] | None = None
    ) -> WorkerInfo:
        """``detail``: what else is noted of it."""
        worker = self._now(name)
        event = QuarantineAsked(worker.id, reason)
        noted = {"reason": reason, **(detail or {})}
        return await self._order(worker, Duty.QUARANTINED, event, "worker.quarantined", actor, noted)

    async def retire(self, name: str, *, actor: str) -> WorkerInfo:
        worker = self._now(name)
        if self._fleet.is_own(worker.id):
            raise Conflict(
                f"worker {worker.name} is part of this very process",
                hint="Drain it, so that others hold everything",
            )
        losing = self._fleet.machine.losing(worker.id)
        detail = {"copies": losing.copies, "alone": losing.alone}
        await self._tell(RetireAsked(worker.id), "worker.retired", worker, actor, detail)
        return worker.retired()

    async def overrule_brake(self, *, actor: str) -> FleetView:
        """Those suspects are really gone. ``Conflict`` while the brake is off."""
        totals = self._fleet.machine.totals()
        if not totals.braked:
            raise Conflict("the brake is not on", hint="There is nothing to overrule")
        detail = {"suspect": totals.suspect, "workers": totals.workers}
        await self._store.audit(actor, "fleet.brake-overruled", "fleet", detail)
        await self._persisted(BrakeOverruled())
        return self.view()

    async def _order(
        self,
        worker: WorkerInfo,
        duty: Duty,
        event: Event,
        action: str,
        actor: str,
        detail: Mapping[str, object] | None = None,
    ) -> WorkerInfo:
        if worker.duty is not duty:
            await self._tell(event, action, worker, actor, detail or {})
        return next((w for w in self.view().workers if w.id == worker.id), worker)

    async def _tell(
        self, event: Event, action: str, worker: WorkerInfo, actor: str, detail: Mapping[str, object]
    ) -> None:
        """The note comes first: what nobody could note is not done."""
        await self._store.audit(actor, action, worker.name, {"id": worker.id, **detail})
        await self._persisted(event)

    async def _persisted(self, event: Event) -> None:
        try:
            async with asyncio.timeout(PERSIST_S):
                await self._fleet.tell(event)
                await self._fleet.settled()
        except TimeoutError:
            raise Unavailable(
                f"the database has not taken it in for {PERSIST_S:g} s",
                hint="It is done once the database answers again; then look at the worker",
            ) from None
        finally:
            self._looked = None


def _rates(in_use: Mapping[str, tuple[float, float]]) -> tuple[RateInUse, ...]:
    rates = (RateInUse(Host(host) if host else None, rate, used) for host, (used, rate) in in_use.items())
    return tuple(sorted(rates, key=lambda rate: (-rate.share, rate.host or "")))


def _full(workers: Iterable[WorkerInfo]) -> Iterator[StandingAlert]:
    for worker in workers:
        if worker.load is not None and not worker.load.accepting_clones:
            name = worker.seen.record.facts.name
            free, total = worker.load.disk_free_bytes, worker.load.disk_total_bytes
            used = percent_full(1.0 - free / total if total else 1.0)
            text = (
                f"worker {name} takes no new clones: its disk is {used} full, above {SETTING} there, or takes"
                " no writes"
            )
            yield StandingAlert(AlertKind.DISK_FULL, name, text, {"used": used})


def _away(aggregators: Iterable[AggregatorRecord]) -> Iterator[StandingAlert]:
    for record in aggregators:
        if record.liveness is Liveness.DOWN and not record.retired:
            alert = away_alert(record, AWAY)
            yield StandingAlert(alert.kind, alert.about, alert.text, alert.facts)


def _accusations(raised: Iterable[Alert]) -> Iterator[StandingAlert]:
    for alert in raised:
        if alert.kind is AlertKind.ACCUSATION:
            yield StandingAlert(alert.kind, alert.about, alert.text, alert.facts)


def _unverified(totals: Totals) -> Iterator[StandingAlert]:
    """Where nobody can check what untrusted workers say they hold, or nobody did for long."""
    if totals.unverified and not totals.checkable:
        count, why = totals.unverified, "there is no aggregator, and no trusted worker with room"
    elif totals.unchecked:
        count, why = totals.unchecked, "nobody has fetched them from there for a day"
    else:
        return
    text = f"repos that only untrusted workers say they hold, not verified: {count}; {why}"
    yield StandingAlert(AlertKind.UNVERIFIED, "fleet", text, {"count": str(count), "why": why})


def _standing(
    workers: Iterable[WorkerView], totals: Totals, raised: Mapping[tuple[AlertKind, str], Alert]
) -> Iterator[StandingAlert]:
    """From the state itself, so that it holds after a restart too; only the reason of a quarantine does not
    outlast it (the audit log has it)."""
    if totals.braked:
        text = "too many workers fell silent at once: taken for our own network, nobody is declared down"
        yield StandingAlert(AlertKind.BRAKE, "fleet", text)
    if totals.no_room:
        text = f"repos that wait because no worker can take them: {totals.no_room}"
        yield StandingAlert(AlertKind.NO_ROOM, "fleet", text, {"count": str(totals.no_room)})
    yield from _unverified(totals)
    for worker in workers:
        name = worker.record.facts.name
        if worker.record.duty is Duty.QUARANTINED:
            known = raised.get((AlertKind.QUARANTINE, name))
            text = known.text if known is not None else f"worker {name} is quarantined"
            yield StandingAlert(AlertKind.QUARANTINE, name, text, known.facts if known is not None else {})
        elif worker.record.liveness is Liveness.DOWN:
            text = f"worker {name} is down; its repos go to others"
            yield StandingAlert(AlertKind.WORKER_DOWN, name, text)
        if worker.unreachable:
            text = f"worker {name} is reached by no relay; its repos go to others"
            yield StandingAlert(AlertKind.UNREACHABLE, name, text)
        if worker.stalled:
            known = raised.get((AlertKind.SLOW, name))
            text = known.text if known is not None else f"worker {name} completes no first clones"
            yield StandingAlert(AlertKind.SLOW, name, text, known.facts if known is not None else {})
        if worker.strays:
            text = (
                f"worker {name} holds repos that the catalog never had: {worker.strays}; they are left alone"
            )
            yield StandingAlert(AlertKind.STRAY, name, text, {"count": str(worker.strays)})
