"""Checks of where repos are: always somewhere, there to stay, and at the end as they should be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import ceil, sqrt

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import Alert, AlertKind, CopyRow, Welcome
from evermirror.core.fleet.events import CatalogRepo
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.views import Totals
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerId
from tests.support.sim.fleet.checks.shadow import Change, CopyStep, Scene, WorkerStep
from tests.support.sim.fleet.worker import RoughWorker

OWNED, WHOLE = "owned", "whole"
ROUNDS_SLACK = 3  # heartbeats: a silence is told after max_missed + 1 to + 2 rounds, by a tick a little late


class Owned:
    """Owned: every repo of the catalog is wanted on a worker that is there, or waits where people can see it.

    A worker may be gone for as long as it takes to suspect it, its grace, and a moment; after that nothing
    may be wanted of it alone. A repo that is wanted nowhere is either waiting for room, and says so, or the
    fleet is warming up.
    """

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


STILL = "still"
SHARE_MAX = 1.1  # times its share that a join may move
SHARE_SLACK_S = 10.0  # lived: from being ready to having its share, beyond the gaps of two placements
SMALL_FLEET = 5  # copies: shares of a few repos are not even


class Still:
    """Still: what is placed stays, unless there is a reason that can be seen.

    A repo leaves a worker that could keep it only when
    - a worker joined (or came back, or had nothing) and takes its share: at most 1.1 times that share in
      all;
    - its worker held more than its bound, or has no room and nothing of the repo, or is stalled;
    - it was handed back, was pinned elsewhere, became private, wants fewer copies, or left the catalog.
    A coordinator's restart is no reason. Neither is a worker that is suspected.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._settings = scene.world.plan.settings
        self._joined: set[WorkerId] = set()  # and has not taken its share yet
        self._ready: dict[WorkerId, float] = {}  # of these, for a share: since when, lived
        self._claimed: Counter[WorkerId] = Counter()
        self.moves = 0  # copies that were wanted on one worker and then on another

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            if (
                isinstance(action, Welcome)
                and not action.resumed
                and not self._scene.shadow.wanted[action.worker]
            ):
                self._joins(action.worker)
        for worker in change.workers:
            if _joins(worker):
                self._joins(worker.after.id)
        by_key: defaultdict[RepoKey, list[CopyStep]] = defaultdict(list)
        for step in change.copies:
            if step.lost:
                by_key[step.key].append(step)
        if not by_key:
            return
        gained: defaultdict[RepoKey, list[CopyStep]] = defaultdict(list)
        for step in change.copies:
            if step.gained:
                gained[step.key].append(step)
        for key, lost in by_key.items():
            self.moves += len(gained[key])
            for step in lost:
                self._left(step, gained[key], change)
        shares = [step for steps in gained.values() for step in steps]
        self._joined -= {step.worker for step in shares if step.after and step.after.reason is Reason.JOINED}

    def sweep(self) -> None:
        """Who was ready for long enough has had its share, if there was one for it."""
        machine, lived_s = self._scene.machine, self._scene.lived_s
        if machine is None or not self._joined or machine.totals().warming:
            return
        ready = {
            view.record.id
            for view in machine.workers()
            if view.record.id in self._joined
            and view.reconciled
            and view.connected
            and view.accepting
            and view.record.liveness is Liveness.ALIVE
        }
        self._ready = {worker: self._ready.get(worker, lived_s) for worker in ready}
        long_s = 2 * self._settings.rebalance_gap_s + SHARE_SLACK_S
        self._joined -= {worker for worker, since in self._ready.items() if lived_s - since > long_s}

    def _joins(self, worker: WorkerId) -> None:
        self._joined.add(worker)
        self._ready.pop(worker, None)
        self._claimed[worker] = 0

    def _left(self, step: CopyStep, gained: list[CopyStep], change: Change) -> None:
        shadow, repo = self._scene.shadow, self._scene.world.store.repos.get(step.key)
        if repo is None or not shadow.keeps(step.worker):
            return
        if repo.trusted_only and not shadow.records[step.worker].facts.trusted:
            return
        if step.key in change.salts:
            return
        replicas = self._settings.replicas if repo.replicas is None else repo.replicas
        if not gained and shadow.wanted_copies.get(step.key, 0) >= replicas:
            return
        over = self._was_over(step.worker, change)
        if over and any(new.after is not None and new.after.reason is Reason.SHED for new in gained):
            return
        if any(new.worker in self._joined for new in gained):
            self._take_share(next(new.worker for new in gained if new.worker in self._joined))
            return
        if any(self._had_nothing(new.worker, change) for new in gained):
            return
        pinned = {shadow.records[new.worker].facts.name for new in gained} & set(repo.pins)
        if not pinned and not over and not self._has_no_room(step):
            reasons = ", ".join(
                f"{self._scene.name(new.worker)}: {new.after.reason.name}" for new in gained if new.after
            )
            self._scene.broken(
                STILL,
                f"{step.key} leaves {self._scene.name(step.worker)} without need ({reasons or 'for nobody'})",
            )

    def _has_no_room(self, step: CopyStep) -> bool:
        """Its disk is full or it is stalled, and nothing of the repo is there."""
        if self._scene.machine is None or step.after is not None:
            return False
        views = self._scene.machine.workers()
        return any(v.record.id == step.worker and not (v.accepting and not v.stalled) for v in views)

    def _take_share(self, joiner: WorkerId) -> None:
        self._claimed[joiner] += 1
        ideal = self._scene.shadow.fair_share(joiner, of_the_living=True)
        if self._claimed[joiner] > SHARE_MAX * ideal + 3 * sqrt(ideal) + SMALL_FLEET:
            name = self._scene.name(joiner)
            self._scene.broken(
                STILL, f"{self._claimed[joiner]} copies moved to {name}, its share is {ideal:.1f}"
            )

    def _had_nothing(self, worker: WorkerId, change: Change) -> bool:
        """Whatever it once had went to others, as its disk was full: with room again, it joins."""
        gone = sum(step.lost - step.gained for step in change.copies if step.worker == worker)
        return len(self._scene.shadow.wanted[worker]) + gone == 0

    def _was_over(self, worker: WorkerId, change: Change) -> bool:
        """Before this decision it held more than its bound or its capacity allow."""
        shadow = self._scene.shadow
        left = sum(step.lost - step.gained for step in change.copies if step.worker == worker)
        before = len(shadow.wanted[worker]) + left
        capacity = shadow.records[worker].facts.capacity
        bound = self._settings.load_bound * shadow.fair_share(worker)
        return before > ceil(bound) or (capacity is not None and before > capacity)


def _joins(step: WorkerStep) -> bool:
    """It may be given a share: new, back from down, or back on duty, or with another weight."""
    before, after = step
    if before is None or before.facts != after.facts or before.duty is not after.duty:
        return True
    return before.liveness is Liveness.DOWN and after.liveness is not Liveness.DOWN


SETTLED = "settled"


class Settled:
    """Settled: long after the last fault everything is where it should be, really.

    - Every repo has as many copies wanted as it should, on workers that are there; each is really complete
      there, but for dead upstreams, whose copies are deferred and so hold up nobody.
    - Nothing waits for room while a worker that could take it has room; no brake, no warm-up.
    - What is not wanted and could be deleted is gone, but where people read. So is what left the catalog,
      from workers that are there.
    """

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
