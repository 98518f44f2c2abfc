"""Still: what is placed stays, unless there is a reason that can be seen.

A repo leaves a worker that could keep it only when
- a worker joined (or came back, or had nothing) and takes its share: at most 1.1 times that share in all;
- its worker held more than its bound, or has no room and nothing of the repo, or is stalled;
- it was handed back, was pinned elsewhere, became private, wants fewer copies, or left the catalog.
A coordinator's restart is no reason. Neither is a worker that is suspected.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil, sqrt

from evermirror.core.fleet.copies import Reason
from evermirror.core.fleet.decisions import Welcome
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Liveness, WorkerId
from tests.support.sim.fleet.checks.shadow import Change, CopyStep, Scene, WorkerStep

STILL = "still"
SHARE_MAX = 1.1  # times its share that a join may move
SHARE_SLACK_S = 10.0  # lived: from being ready to having its share, beyond the gaps of two placements
SMALL_FLEET = 5  # copies: shares of a few repos are not even


class Still:
    """See the module."""

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
