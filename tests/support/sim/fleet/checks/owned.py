"""Owned: every repo of the catalog is wanted on a worker that is there, or waits where people can see it.

A worker may be gone for as long as it takes to suspect it, its grace, and a moment; after that nothing may be
wanted of it alone. A repo that is wanted nowhere is either waiting for room, and says so, or the fleet is
warming up.
"""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.fleet.decisions import Alert, AlertKind, Welcome
from evermirror.core.fleet.views import Totals
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from tests.support.sim.fleet.checks.shadow import Change, Scene

OWNED, WHOLE = "owned", "whole"
ROUNDS_SLACK = 3  # heartbeats: a silence is told after max_missed + 1 to + 2 rounds, by a tick a little late


class Owned:
    """See the module."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        settings = scene.world.plan.settings
        self._slack_s = ROUNDS_SLACK * settings.heartbeat_s + 2 * settings.tick_s + settings.rebalance_gap_s
        self._gone_max_s = settings.max_missed * settings.heartbeat_s + settings.grace_s + self._slack_s
        self._since = 0.0  # lived: the last restart, or the last that was heard of the brake
        self._gone: dict[WorkerId, float] = {}  # since when, lived
        self._heard: dict[WorkerId, float] = {}  # UTC, as the coordinator had it at the last look
        self._looked = 0.0  # lived: the last look
        self._nowhere: dict[RepoKey, float] = {}

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            match action:
                case Welcome(_, worker):
                    self._gone.pop(worker, None)
                case Alert(AlertKind.BRAKE):
                    self._since = self._scene.lived_s  # on: nobody goes; off: graces begin anew

    def restarted(self) -> None:
        """Everybody counts as just heard."""
        self._since = self._scene.lived_s

    def sweep(self) -> None:
        machine = self._scene.machine
        if machine is None:
            return
        totals = machine.totals()
        if totals.braked:
            self._since = self._scene.lived_s
        self._look_at_workers()
        self._look_at_repos(totals)
        self._looked = self._scene.lived_s

    def _look_at_workers(self) -> None:
        lived_s, machine = self._scene.lived_s, self._scene.machine
        views = machine.workers() if machine is not None else ()
        heard = {view.record.id: view.heard_at for view in views}
        for worker in self._scene.world.workers:
            if worker.id is None:
                continue
            if worker.connected:
                self._gone.pop(worker.id, None)
                continue
            gone_s = lived_s - max(self._gone_since(worker.id, heard.get(worker.id, 0.0)), self._since)
            if gone_s > self._gone_max_s:
                self._none_alone(worker.id, gone_s)

    def _gone_since(self, worker: WorkerId, heard_at: float) -> float:
        """Lived: since it was first missed here, or since its last heartbeat came, which the network may have
        kept for a while; that is known to within the time since the last look."""
        lived_s, world = self._scene.lived_s, self._scene.world
        since = self._gone.setdefault(worker, lived_s)
        if heard_at > self._heard.get(worker, 0.0):
            self._heard[worker] = heard_at
            since = max(since, lived_s - min(world.utc_s - heard_at, lived_s - self._looked))
            self._gone[worker] = since
        return since

    def _none_alone(self, gone: WorkerId, gone_s: float) -> None:
        shadow = self._scene.shadow
        for key in shadow.wanted[gone]:
            rows = shadow.copies[key].values()
            if key in self._scene.world.store.repos and not self._any_there(
                row.worker for row in rows if row.rank is not None
            ):
                name = self._scene.name(gone)
                self._scene.broken(
                    OWNED, f"{key} is wanted of {name} alone, which is gone for {gone_s:.0f} s"
                )

    def _any_there(self, workers: Iterable[WorkerId]) -> bool:
        found = (self._scene.world.worker(worker) for worker in workers)
        return any(worker is not None and worker.connected for worker in found)

    def _look_at_repos(self, totals: Totals) -> None:
        machine, lived_s = self._scene.machine, self._scene.lived_s
        repos = self._scene.world.store.repos
        if totals.repos != len(repos):
            self._scene.broken(WHOLE, f"the catalog has {len(repos)} repos, the fleet knows {totals.repos}")
        nowhere = repos.keys() - self._scene.shadow.wanted_copies.keys()
        self._nowhere = {key: self._nowhere.get(key, lived_s) for key in nowhere}
        if totals.warming or machine is None:
            return
        for key, since in sorted(self._nowhere.items()):
            if lived_s - max(since, self._since) <= self._slack_s:
                continue
            view = machine.repo(key)
            if view is None or not view.no_room:
                self._scene.broken(OWNED, f"{key} is wanted nowhere, and does not wait for room")
