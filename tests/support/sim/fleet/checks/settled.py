"""Settled: long after the last fault everything is where it should be, really.

- Every repo has as many copies wanted as it should, on workers that are there; each is really complete there,
  but for dead upstreams, whose copies are deferred and so hold up nobody.
- Nothing waits for room while a worker that could take it has room; no brake, no warm-up.
- What is not wanted and could be deleted is gone, but where people read. So is what left the catalog, from
  workers that are there.
"""

from __future__ import annotations

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import CopyRow
from evermirror.core.fleet.events import CatalogRepo
from evermirror.core.fleet.machine import FleetMachine
from evermirror.model.worker import Duty, WorkerId
from tests.support.sim.fleet.checks.shadow import Scene
from tests.support.sim.fleet.worker import RoughWorker

SETTLED = "settled"


class Settled:
    """See the module."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._replicas = scene.world.plan.settings.replicas

    def at_end(self) -> None:
        machine = self._scene.machine
        if machine is None:
            self._scene.broken(SETTLED, "there is no coordinator")
            return
        totals = machine.totals()
        if totals.braked or totals.warming:
            self._scene.broken(SETTLED, f"braked: {totals.braked}, warming up: {totals.warming}")
        for key, repo in self._scene.world.store.repos.items():
            rows = self._scene.shadow.copies.get(key, {})
            wanted = [row for row in rows.values() if row.rank is not None]
            self._enough(repo, wanted, machine)
            for row in wanted:
                self._is_there(row)
            for row in rows.values():
                if row.rank is None:
                    self._still_needed(row, wanted)
        for key, rows in self._scene.shadow.copies.items():
            if key not in self._scene.world.store.repos:
                for row in rows.values():
                    if (worker := self._there(row.worker)) is not None and worker.lies is None:
                        self._scene.broken(
                            SETTLED, f"{key} left the catalog and is {row.state.name} on {worker.name}"
                        )

    def _there(self, worker: WorkerId) -> RoughWorker | None:
        """One that can be spoken with, and is."""
        known = self._scene.world.worker(worker)
        record = self._scene.shadow.records.get(worker)
        if known is None or record is None or record.duty in (Duty.QUARANTINED, Duty.RETIRED):
            return None
        return known if known.connected else None

    def _enough(self, repo: CatalogRepo, wanted: list[CopyRow], machine: FleetMachine) -> None:
        replicas = self._replicas if repo.replicas is None else repo.replicas
        if len(wanted) == replicas:
            return
        detail = f"{repo.key} is wanted {len(wanted)} times, not {replicas}"
        view = machine.repo(repo.key)
        if len(wanted) > replicas or view is None or not view.no_room:
            self._scene.broken(SETTLED, detail)
        had = {row.worker for row in wanted}
        for other in machine.workers():
            facts = other.record.facts
            full = facts.capacity is not None and other.wanted >= facts.capacity
            takes = (
                self._scene.shadow.keeps(other.record.id) and other.connected and other.accepting and not full
            )
            if takes and other.record.id not in had and (facts.trusted or not repo.trusted_only):
                self._scene.broken(SETTLED, f"{detail}; {facts.name} has room")

    def _is_there(self, row: CopyRow) -> None:
        worker = self._there(row.worker)
        if worker is None:
            self._scene.broken(
                SETTLED, f"{row.key} is wanted of {self._scene.name(row.worker)}, which is not there"
            )
        elif self._scene.world.catalog.is_dead(row.key) and worker.lies is None:
            if row.state is not CopyState.DEFERRED:
                self._scene.broken(SETTLED, f"{row.key} is dead and still {row.state.name} on {worker.name}")
        elif row.state is not CopyState.HELD:
            self._scene.broken(SETTLED, f"{row.key} is still {row.state.name} on {worker.name}")
        elif row.key not in worker.disk and worker.lies is None:
            self._scene.broken(SETTLED, f"{row.key} counts as held by {worker.name}, which does not have it")

    def _still_needed(self, row: CopyRow, wanted: list[CopyRow]) -> None:
        """An unwanted copy stays only where nothing that counts has the same refs."""
        worker = self._there(row.worker)
        if worker is None or worker.lies is not None or row.key not in worker.disk:
            return
        if self._scene.world.serves(worker.index):
            return
        version = worker.disk[row.key]
        for other in wanted:
            holder = self._there(other.worker)
            if holder is not None and holder.facts.trusted and holder.disk.get(row.key) == version:
                detail = (
                    f"{row.key} is {row.state.name} on {worker.name} and not wanted; {holder.name} has it"
                )
                self._scene.broken(SETTLED, detail)
