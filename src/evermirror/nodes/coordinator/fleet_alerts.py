"""What people should know of the fleet: told when it happens, and, every minute, from the state itself.

What happened while nobody listened, or before a restart, is so told too, and what is over ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.core.watch.fleet_kinds import fleet_alert
from evermirror.core.watch.kinds import FLEET_KINDS
from evermirror.core.watch.stalls import Sample, Stall, StallWatch
from evermirror.model import alert as watch
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.fleet_view import FleetView

STALL_LOOKS = 15  # minutes: three times the longest that a git process may go without moving a byte
LOOK_EVERY_S = 60.0  # also before the first look: workers come back, and tell how they are
RAISED_MAX = 10_000
_TOLD_BY_WORKERS = frozenset({AlertKind.DISK_FULL.value, AlertKind.STRAY.value})


class FleetAlerts:
    """Those raised since the start and not over. ``sink`` hears of each."""

    def __init__(self, sink: AlertSink | None = None) -> None:
        self._sink = sink
        self._standing: dict[tuple[str, str], Alert] = {}

    def told(self, alert: Alert) -> None:
        if self._sink is not None:
            self._sink.told(
                fleet_alert(alert.kind, alert.about, alert.text, over=alert.over, facts=alert.facts)
            )
        about = (alert.kind.value, alert.about)
        if alert.over:
            self._standing.pop(about, None)
        elif len(self._standing) < RAISED_MAX:
            self._standing[about] = alert

    @property
    def standing(self) -> tuple[Alert, ...]:
        return tuple(self._standing.values())


class FleetWatch:
    """``run`` beside the rest. A worker that is away tells nothing: what only it can tell stays as it was. At
    the first look after a start nothing is over yet."""

    def __init__(self, look: Callable[[], FleetView], sink: AlertSink) -> None:
        self._look = look
        self._sink = sink
        self._has_looked = False
        self._stalls = StallWatch(STALL_LOOKS)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        view = self._look()
        found = (
            fleet_alert(alert.kind, alert.about, alert.text, facts=alert.facts)
            for alert in (*view.alerts, *view.more_alerts)
        )
        stalled = map(_stalled, self._stalls.look(pending_work(view)))
        kept = {alert.identity: alert for alert in self._unheard(view)}
        self._has_looked = True
        self._sink.stand(
            FLEET_KINDS, (kept | {alert.identity: alert for alert in (*found, *stalled)}).values()
        )

    def _unheard(self, view: FleetView) -> Iterator[watch.Alert]:
        """What stood, and is not known to be over."""
        silent = {worker.name for worker in view.workers if not worker.is_heard}
        for alert in self._sink.stands(FLEET_KINDS):
            by_worker = alert.kind in _TOLD_BY_WORKERS and alert.about in silent
            by_placing = alert.kind == AlertKind.NO_ROOM.value and view.totals.warming
            if by_worker or by_placing or not self._has_looked:
                yield alert


def pending_work(view: FleetView) -> Iterator[Sample]:
    """What waits in the fleet, and how far it is: first clones over all, and what each worker is to sync."""
    totals = view.totals
    loads = {worker.name: worker.load for worker in view.workers if worker.load is not None}
    if not (totals.braked or totals.warming) and any(load.accepting_clones for load in loads.values()):
        counts = (totals.planned, totals.asked, totals.deferred, totals.held)
        cloning = tuple(sync for load in loads.values() for sync in load.running if sync.first)
        yield Sample("fleet", "first clones", totals.planned + totals.asked, (counts, cloning))
    for name, load in loads.items():
        waiting = load.queued_syncs if load.accepting_clones else 0
        yield Sample(name, "syncs", waiting, (load.changes_total, load.running))


def _stalled(stall: Stall) -> watch.Alert:
    minutes = round(stall.looks * LOOK_EVERY_S / 60)
    facts = {"pending": str(stall.pending), "what": stall.what, "minutes": str(minutes)}
    where = "the fleet" if stall.about == "fleet" else f"worker {stall.about}"
    text = f"{stall.pending} {stall.what} of {where} wait, and nothing has moved for {minutes} min"
    return fleet_alert(AlertKind.STALLED, stall.about, text, facts=facts)
