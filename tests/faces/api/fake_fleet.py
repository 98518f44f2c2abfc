"""The fleet's own service over its real mind, with workers that exist in memory only."""

from __future__ import annotations

from evermirror.model.messages import WorkerStatus
from evermirror.nodes.coordinator.fleet_admin import FleetAdmin
from tests.support.fleet import QUICK, Fleet

OWN = 0  # the worker of the process itself


class FakeFleet(FleetAdmin):
    """``crew`` turns its clock and its workers; ``notes`` is the audit log."""

    def __init__(self, settings=QUICK):
        self.crew = Fleet(settings)
        self.notes = []
        self.statuses = {}
        super().__init__(
            self,
            self,
            self.statuses,
            alerts=self.crew.alerts,
            utc=lambda: self.crew.now.utc_s,
            mono=self._never,
        )
        self._looks = 0.0
        for name in ("own", "wörker 2", "third"):
            worker = self.crew.join(name, weight=2.0)
            self.statuses[worker.id] = WorkerStatus(4, 7, 1.5, 0, 0, (), 3, (), 40, 100, True, (), 0.0)
        self.crew.catalog("h/a", "h/b", "h/c", "h/d")
        self.crew.run()

    def _never(self):
        """Every look is a fresh one."""
        self._looks += 10.0
        return self._looks

    # What FleetAdmin asks of the shell and the store

    @property
    def machine(self):
        return self.crew.machine

    async def tell(self, event):
        self.crew.handle(event)

    async def settled(self):
        pass

    def version_of(self, worker):
        return "0.1" if worker != OWN else None

    def is_own(self, worker):
        return worker == OWN

    async def audit(self, actor, action, subject, detail=None):
        self.notes.append((actor, action, subject))
