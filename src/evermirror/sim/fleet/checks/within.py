"""Within bounds: load, pace and trust.

- Load: nobody is given more than its bound while somebody else who could take it is below.
- Pace: clones asked for and not done stay within what one worker and the whole fleet may have at once; a
  worker starts with few, and gets one more at most for each one done.
- Private: what is for trusted workers only is asked of no other.
"""

from __future__ import annotations

from collections import Counter

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import Assign, Send, Welcome
from evermirror.core.fleet.flaps import faded, weight_factor
from evermirror.core.fleet.views import WorkerView
from evermirror.model.worker import Liveness, WorkerId, WorkerRecord
from evermirror.sim.fleet.checks.shadow import Change, CopyStep, Scene

LOAD, PACE, PRIVATE = "load", "pace", "private"
ROUNDING = 2.0  # copies: bounds are rounded up, and the mean changes while many are placed
IN_PART = 1.1  # times: where a few are placed it is not known which of the others need trusted workers
BELOW = 0.05  # of the bound: so much below it somebody surely could take one more


class Within:
    """See the module."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._settings = scene.world.plan.settings
        self._done: Counter[WorkerId] = Counter()  # clones done since the session began

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            if isinstance(action, Welcome) and not action.resumed:
                self._done[action.worker] = 0
        asked: set[WorkerId] = set()
        gained: dict[WorkerId, CopyStep] = {}
        for step in change.copies:
            if step.told_held and step.before is not None and step.before.state is CopyState.ASKED:
                self._done[step.worker] += 1
            if step.gained:
                gained[step.worker] = step
        for action in change.decision.actions:
            if isinstance(action, Send) and isinstance(action.command, Assign):
                self._look_at_trust(action.worker, action.command)
                asked.add(action.worker)
        for worker in asked:
            self._look_at_pace(worker)
        for worker, step in gained.items():
            self._look_at_load(worker, step)

    def _look_at_trust(self, worker: WorkerId, command: Assign) -> None:
        scene = self._scene
        if scene.shadow.records[worker].facts.trusted:
            return
        repos = scene.world.store.repos
        for item in command.items:
            repo = repos.get(item.key)
            row = scene.shadow.copies.get(item.key, {}).get(worker)
            held = row is not None and row.state is CopyState.HELD
            if repo is not None and repo.trusted_only and not held:
                scene.broken(PRIVATE, f"{item.key} is private and asked of {scene.name(worker)}")

    def _look_at_pace(self, worker: WorkerId) -> None:
        shadow, settings = self._scene.shadow, self._settings
        asked = shadow.asked[worker]
        window = min(settings.moves_per_worker, settings.moves_first + self._done[worker])
        if asked > window:
            name = self._scene.name(worker)
            detail = f"{asked} clones are asked of {name}, {self._done[worker]} done: {window} may be"
            self._scene.broken(PACE, detail)
        total = self._asked_of_those_there()
        if total > settings.moves_total:
            self._scene.broken(PACE, f"{total} clones are asked for, {settings.moves_total} may be in all")

    def _asked_of_those_there(self) -> int:
        """Of one who is away nothing is under way, whatever it was asked for."""
        if self._scene.shadow.total_asked <= self._settings.moves_total:
            return self._scene.shadow.total_asked
        return sum(
            count
            for worker, count in self._scene.shadow.asked.items()
            if count and (known := self._scene.world.worker(worker)) is not None and known.connected
        )

    def _look_at_load(self, worker: WorkerId, step: CopyStep) -> None:
        """Among workers of equal weight: with others, what private repos need bends the level too much to be
        told apart from a fault here; the placement's twin looks at those."""
        shadow, bound = self._scene.shadow, self._settings.load_bound
        if len({record.facts.weight for record in shadow.records.values()}) > 1:
            return
        load = len(shadow.wanted[worker])
        if load <= bound * shadow.fair_share(worker) + ROUNDING or self._scene.machine is None:
            return
        if step.after is None or step.after.reason in (Reason.OVERFULL, Reason.PINNED, Reason.KEPT):
            return
        taking = [view.record for view in self._scene.machine.workers() if self._takes(view)]
        level = self._level(taking)
        if load <= bound * IN_PART * level * shadow.records[worker].facts.weight + ROUNDING:
            return
        for record in taking:
            below = (bound - BELOW) * shadow.fair_share(record.id) - ROUNDING
            if len(shadow.wanted[record.id]) < below and self._fits(record, step):
                self._scene.broken(
                    LOAD,
                    f"{step.key} is given to {self._scene.name(worker)} with {load} copies, "
                    f"{self._scene.name(record.id)} has {len(shadow.wanted[record.id])}",
                )

    def _level(self, taking: list[WorkerRecord]) -> float:
        """Copies for weight 1, if those that take had everything: less to those that flap, and to nobody more
        than there are repos."""
        world = self._scene.world
        ceiling = len(world.store.repos)
        weights = [
            record.facts.weight * weight_factor(faded(record.flap_score, record.flap_at, world.utc_s))
            for record in taking
        ]
        left = float(self._scene.shadow.total_wanted)
        while weights:
            level = left / sum(weights)
            full = [weight for weight in weights if weight * level > ceiling]
            if not full:
                return level
            left -= ceiling * len(full)
            weights = [weight for weight in weights if weight * level <= ceiling]
        return float("inf")

    def _takes(self, view: WorkerView) -> bool:
        record = view.record
        full = record.facts.capacity is not None and view.wanted >= record.facts.capacity
        alive = self._scene.shadow.keeps(record.id) and record.liveness is Liveness.ALIVE
        return alive and view.accepting and not full

    def _fits(self, record: WorkerRecord, step: CopyStep) -> bool:
        """It could hold that repo, and nothing on the ring speaks against it."""
        repo = self._scene.world.store.repos.get(step.key)
        allowed = repo is not None and (record.facts.trusted or not repo.trusted_only)
        steady = not record.flap_score  # the ring gives less to those that flap
        return allowed and steady and record.id not in self._scene.shadow.copies[step.key]
