"""Attended: a worker is suspected, declared down and given an id only by the rules.

- Down only after a whole grace as a suspect, counted in time that a coordinator lived through.
- Brake: nobody is declared down while too many are suspect, unless that was lifted for people to see.
- Suspected only after more than ``max_missed`` rounds since it was welcomed, and never while its link was
  sound all the time: a coordinator that was paused suspects nobody for that.
- An id belongs to one worker until that one retires.
"""

from __future__ import annotations

from collections import Counter

from evermirror.core.fleet.decisions import Alert, AlertKind, Welcome
from evermirror.model.worker import Duty, Liveness, WorkerId
from tests.support.sim.fleet.checks.shadow import Change, Scene, WorkerStep
from tests.support.sim.fleet.worker import RoughWorker

GRACE, BRAKE, SUSPICION, IDS = "grace", "brake", "suspicion", "ids"
EARLY_S = 2.0  # ticks come every second, and timers are as precise


class Attended:
    """See the module."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._settings = scene.world.plan.settings
        self._suspect_at: dict[WorkerId, float] = {}  # lived, at most
        self._welcomed_at: dict[WorkerId, float] = {}
        self._sound: list[dict[WorkerId, tuple[int, int]]] = [
            {},
            {},
        ]  # links at the last sweeps, the older first
        self._standing: Counter[Liveness] = Counter()
        self._lifted = False  # too many are suspect, and the alert was called off all the same

    def restarted(self) -> None:
        """Rounds are counted anew."""
        lived_s = self._scene.lived_most_s
        self._welcomed_at = dict.fromkeys(self._scene.shadow.records, lived_s)

    def sweep(self) -> None:
        self._sound = [self._sound[1], {}]
        for worker in self._scene.world.workers:
            if worker.id is not None and (link := self._sound_link(worker)) is not None:
                self._sound[1][worker.id] = link

    def _sound_link(self, worker: RoughWorker) -> tuple[int, int] | None:
        """What stays the same for as long as nothing happens to its link."""
        link = worker.link
        if (
            not worker.welcomed
            or link is None
            or link.broken
            or not self._scene.world.network.reachable(worker.index)
        ):
            return None
        return link.session, link.cuts

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            if isinstance(action, Welcome):
                self._welcomed_at[action.worker] = self._scene.lived_most_s
        down = 0
        for step in change.workers:
            self._look_at_id(step)
            self._count(step)
            if _became(step, Liveness.SUSPECT):
                self._suspected(step.after.id)
            elif _became(step, Liveness.DOWN):
                down += 1
                self._down(step.after.id)
            if step.after.liveness is not Liveness.SUSPECT:
                self._suspect_at.pop(step.after.id, None)
        self._look_at_brake(change, down)

    def _look_at_id(self, step: WorkerStep) -> None:
        before, after = step
        if before is None or before.duty is Duty.RETIRED or before.facts.name == after.facts.name:
            return
        self._scene.broken(IDS, f"id {after.id} of {before.facts.name} is given to {after.facts.name}")

    def _count(self, step: WorkerStep) -> None:
        if step.before is not None and step.before.duty is not Duty.RETIRED:
            self._standing[step.before.liveness] -= 1
        if step.after.duty is not Duty.RETIRED:
            self._standing[step.after.liveness] += 1

    def _suspected(self, worker: WorkerId) -> None:
        lived_s = self._scene.lived_most_s
        self._suspect_at[worker] = lived_s
        silent_s = lived_s - self._welcomed_at.get(worker, float("-inf"))
        if silent_s < self._settings.max_missed * self._settings.heartbeat_s - EARLY_S:
            detail = f"{self._scene.name(worker)} is suspected {silent_s:.0f} s after it was welcomed"
            self._scene.broken(SUSPICION, detail)
        known = self._scene.world.worker(worker)
        link = None if known is None else self._sound_link(known)
        if link is not None and link == self._sound[0].get(worker):
            self._scene.broken(SUSPICION, f"{self._scene.name(worker)} is suspected, and its link was sound")

    def _down(self, worker: WorkerId) -> None:
        waited_s = self._scene.lived_most_s - self._suspect_at.get(worker, self._scene.lived_most_s)
        if waited_s < self._settings.grace_s - EARLY_S:
            name, grace_s = self._scene.name(worker), self._settings.grace_s
            self._scene.broken(GRACE, f"{name} is down after {waited_s:.0f} s, its grace is {grace_s:.0f} s")

    def _look_at_brake(self, change: Change, down: int) -> None:
        """Those declared down just now were suspects until now."""
        suspects = self._standing[Liveness.SUSPECT] + down
        members = self._standing[Liveness.ALIVE] + suspects
        too_many = suspects > self._settings.brake_share * members
        for action in change.decision.actions:
            if isinstance(action, Alert) and action.kind is AlertKind.BRAKE:
                self._lifted = action.over and too_many
        self._lifted = self._lifted and too_many
        if down and too_many and not self._lifted:
            self._scene.broken(BRAKE, f"{down} declared down while {suspects} of {members} are suspect")


def _became(step: WorkerStep, liveness: Liveness) -> bool:
    before = None if step.before is None else step.before.liveness
    return step.after.liveness is liveness and before is not liveness and step.after.duty is not Duty.RETIRED
