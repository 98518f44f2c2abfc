"""Within bounds: load, pace and trust.

- Load: nobody is given more than its bound while somebody else who could take it is below.
- Pace: clones asked for and not done stay within what one worker and the whole fleet may have at once; a
  worker starts with few, and gets one more at most for each one done or deferred.
- Private: what is for trusted workers only is asked of no other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import Assign, CopyRow, Send, Welcome
from evermirror.core.fleet.flaps import faded, weight_factor
from evermirror.core.fleet.views import WorkerView
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Liveness, WorkerId, WorkerRecord
from tests.support.sim.fleet.checks.shadow import Change, CopyStep, Scene

LOAD, PACE, PRIVATE = "load", "pace", "private"
ROUNDING = 2.0  # copies: bounds are rounded up, and the mean changes while many are placed
BELOW = 0.05  # of the bound: so much below it somebody surely could take one more


class Within:
    """See the module."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._settings = scene.world.plan.settings
        self._done: Counter[WorkerId] = Counter()  # clones done since the session began
        self._barred: set[tuple[RepoKey, WorkerId]] = set()  # taken from it, as it could not clone it

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            if isinstance(action, Welcome) and not action.resumed:
                self._done[action.worker] = 0
        asked: set[WorkerId] = set()
        gained: defaultdict[WorkerId, list[CopyStep]] = defaultdict(list)
        for step in change.copies:
            if _is(step.before, CopyState.ASKED) and (step.told_held or _is(step.after, CopyState.DEFERRED)):
                self._done[step.worker] += 1
            if step.lost and step.key in change.salts:
                self._barred.add((step.key, step.worker))
            if step.gained:
                gained[step.worker].append(step)
        for action in change.decision.actions:
            if isinstance(action, Send) and isinstance(action.command, Assign):
                self._look_at_trust(action.worker, action.command)
                asked.add(action.worker)
        for worker in asked:
            self._look_at_pace(worker)
        crowd = _Crowd(self._scene)
        for worker, steps in gained.items():
            self._look_at_load(worker, steps, crowd)

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

    def _look_at_load(self, worker: WorkerId, gained: list[CopyStep], crowd: _Crowd) -> None:
        """Copies said to be OVERFULL come last, as nobody else could take them: they are looked at with all
        that the worker has, the others with what it had before those came. Where three copies need the only
        three workers, the lightest must go beyond its bound, and what it had before was no wrong."""
        shadow = self._scene.shadow
        load, own = len(shadow.wanted[worker]), shadow.records[worker]
        bound = self._settings.load_bound
        if load <= bound * shadow.fair_share(worker) + ROUNDING or self._scene.machine is None:
            return
        taking = crowd.taking
        most = bound * self._level(own, crowd) * own.facts.weight + ROUNDING
        forced = sum(_reason(step) is Reason.OVERFULL for step in gained)
        low = [record for record in taking if self._is_low(record)]
        for step in gained:
            reason = _reason(step)
            beyond = (load if reason is Reason.OVERFULL else load - forced) > most
            if not beyond or reason in (Reason.PINNED, Reason.KEPT, Reason.SLOW):
                continue
            for record in low:
                if self._fits(record, step):
                    self._scene.broken(
                        LOAD,
                        f"{step.key} is given to {self._scene.name(worker)} with {load} copies, "
                        f"{self._scene.name(record.id)} has {len(shadow.wanted[record.id])}",
                    )

    def _is_low(self, record: WorkerRecord) -> bool:
        shadow = self._scene.shadow
        below = (self._settings.load_bound - BELOW) * shadow.fair_share(record.id) - ROUNDING
        return len(shadow.wanted[record.id]) < below

    def _level(self, own: WorkerRecord, crowd: _Crowd) -> float:
        """Copies for weight 1, if those that take had everything; for a trusted one perhaps more, if it and
        its like had everything that is private. Also where only a few repos were placed: what the others
        have is known here, and a worker's share does not depend on how many move."""
        level = self._water_level(
            self._scene.shadow.total_wanted, len(self._scene.world.store.repos), crowd.taking
        )
        if own.facts.trusted:
            repos, copies = crowd.private
            trusted = [record for record in crowd.taking if record.facts.trusted]
            level = max(level, self._water_level(copies, repos, trusted))
        return level

    def _water_level(self, copies: float, repos: int, among: list[WorkerRecord]) -> float:
        """Less goes to those that flap, and to nobody more than there are repos."""
        now_s = self._scene.world.utc_s
        weights = [
            record.facts.weight * weight_factor(faded(record.flap_score, record.flap_at, now_s))
            for record in among
        ]
        while weights and copies:
            level = copies / sum(weights)
            full = [weight for weight in weights if weight * level > repos]
            if not full:
                return level
            copies -= repos * len(full)
            weights = [weight for weight in weights if weight * level <= repos]
        return float("inf") if copies > 0 else 0.0

    def _fits(self, record: WorkerRecord, step: CopyStep) -> bool:
        """It could hold that repo, and nothing on the ring speaks against it."""
        repo = self._scene.world.store.repos.get(step.key)
        allowed = repo is not None and (record.facts.trusted or not repo.trusted_only)
        steady = not record.flap_score  # the ring gives less to those that flap
        barred = (step.key, record.id) in self._barred
        return allowed and steady and not barred and record.id not in self._scene.shadow.copies[step.key]


class _Crowd:
    """Who could take repos after one decision, and what is private: looked up once for all that gained."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @cached_property
    def taking(self) -> list[WorkerRecord]:
        machine = self._scene.machine
        views = machine.workers() if machine is not None else ()
        return [view.record for view in views if self._takes(view)]

    def _takes(self, view: WorkerView) -> bool:
        record = view.record
        full = record.facts.capacity is not None and view.wanted >= record.facts.capacity
        alive = self._scene.shadow.keeps(record.id) and record.liveness is Liveness.ALIVE
        return alive and view.accepting and not view.stalled and not full

    @cached_property
    def private(self) -> tuple[int, int]:
        """Repos, and copies of them that are wanted."""
        keys = [key for key, repo in self._scene.world.store.repos.items() if repo.trusted_only]
        return len(keys), sum(self._scene.shadow.wanted_copies.get(key, 0) for key in keys)


def _reason(step: CopyStep) -> Reason | None:
    return None if step.after is None else step.after.reason


def _is(row: CopyRow | None, state: CopyState) -> bool:
    return row is not None and row.state is state
