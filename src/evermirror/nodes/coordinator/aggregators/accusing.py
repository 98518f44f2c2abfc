"""What an aggregator says of workers that lie or lag: some are told to look again, some are quarantined.

Believed, but not without bounds: an aggregator that is broken itself must not empty the fleet. Accusations
beyond the bounds are held back, and people are told.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.errors import Unavailable
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Accused
from evermirror.model.worker import Duty
from evermirror.nodes.coordinator.fleet_view import FleetView, WorkerInfo

log = structlog.get_logger(__name__)

ACCUSED_MAX = 3  # workers that one aggregator may have quarantined …
WITHIN_S = 3600.0  # … within so long
FLEET_SHARE = 0.25  # of the workers that may be in quarantine on aggregators' words; one always may
REASON_MAX = 300  # characters
EVIDENCE_MAX = 2000  # characters in the audit log
LOOK_GAP_S = 60.0  # a repo that is doubted is looked at at most so often
LOOKED_MAX = 10_000  # repos whose last look is remembered


class Admin(Protocol):
    """Who looks at the fleet, and can have a worker quarantined."""

    def look(self) -> FleetView: ...

    async def quarantine(
        self, name: str, reason: str, *, actor: str, detail: Mapping[str, object] | None = None
    ) -> WorkerInfo: ...


class Looks:
    """Which of the repos that are doubted may be looked at now."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._looked: OrderedDict[RepoKey, float] = OrderedDict()

    def due(self, keys: Sequence[RepoKey]) -> list[RepoKey]:
        now = self._mono()
        return [key for key in dict.fromkeys(keys) if self._begun(key, now)]

    def _begun(self, key: RepoKey, now: float) -> bool:
        """Not where it, or too many others, were looked at lately: it is doubted again."""
        last = self._looked.get(key)
        if last is not None and now - last < LOOK_GAP_S:
            return False
        if key not in self._looked and len(self._looked) >= LOOKED_MAX:
            if now - next(iter(self._looked.values())) < LOOK_GAP_S:
                return False
            self._looked.popitem(last=False)
        self._looked[key] = now
        self._looked.move_to_end(key)
        return True


class Accusations:
    """``heard`` for each; ``tick`` now and then, so that an alert ends."""

    def __init__(
        self, admin: Admin, alert: Callable[[Alert], None], mono: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin
        self._alert = alert
        self._mono = mono
        self._turn = asyncio.Lock()
        self._believed: dict[NodeId, deque[float]] = {}  # when, by who accused
        self._held: dict[str, float] = {}  # when last, by the name of who accused

    async def heard(self, by: NodeId, name: str, accused: Accused) -> None:
        """One after the other: each counts before the next is judged."""
        async with self._turn:
            await self._judge(by, name, accused)

    async def _judge(self, by: NodeId, name: str, accused: Accused) -> None:
        view = self._admin.look()  # no name is older than this moment: it may have come back with another
        worker = _worker_of(view, accused.node)
        if worker is None:
            log.warning("an accusation of nobody known", aggregator=name, node=accused.node)
            return
        if worker.duty is Duty.QUARANTINED:
            return
        held = self._bound(by, view)
        if held is not None:
            self._hold_back(name, worker, *held, accused)
            return
        reason = f"{accused.reason[:REASON_MAX]} ({accused.key})"
        detail: dict[str, object] = {"repo": accused.key, "evidence": accused.evidence[:EVIDENCE_MAX]}
        log.warning("a worker is accused", worker=worker.name, aggregator=name, reason=reason)
        try:
            await self._admin.quarantine(worker.name, reason, actor=f"aggregator {name}", detail=detail)
        except Unavailable:
            log.warning("a quarantine waits for the database", worker=worker.name)
        self._believed.setdefault(by, deque()).append(self._mono())

    def _bound(self, by: NodeId, view: FleetView) -> tuple[str, dict[str, str]] | None:
        """What speaks against one more, and the facts in it; None: nothing."""
        lately = self._believed.setdefault(by, deque())
        while lately and self._mono() - lately[0] >= WITHIN_S:
            lately.popleft()
        if len(lately) >= ACCUSED_MAX:
            why = f"it had {len(lately)} workers quarantined within an hour"
            return why, {"lately": str(len(lately))}
        already = sum(w.duty is Duty.QUARANTINED for w in view.workers)
        if already >= max(1, int(FLEET_SHARE * len(view.workers))):
            why = f"{already} of {len(view.workers)} workers are quarantined already"
            return why, {"already": str(already), "workers": str(len(view.workers))}
        return None

    def _hold_back(
        self, name: str, worker: WorkerInfo, why: str, facts: dict[str, str], accused: Accused
    ) -> None:
        text = (
            f"aggregator {name} accuses worker {worker.name} ({accused.reason[:REASON_MAX]}, {accused.key}), "
            f"which is held back: {why}"
        )
        if name not in self._held:
            told = {**facts, "worker": worker.name, "reason": f"{accused.reason[:REASON_MAX]}, {accused.key}"}
            self._alert(Alert(AlertKind.ACCUSATION, name, text, facts=told))
        self._held[name] = self._mono()
        log.warning("an accusation is held back", aggregator=name, worker=worker.name, why=why)

    def tick(self) -> None:
        for name, at in list(self._held.items()):
            if self._mono() - at >= WITHIN_S:
                del self._held[name]
                text = f"aggregator {name} accuses nobody any more"
                self._alert(Alert(AlertKind.ACCUSATION, name, text, over=True))


def _worker_of(view: FleetView, node: NodeId) -> WorkerInfo | None:
    return next((w for w in view.workers if w.node == node), None)
