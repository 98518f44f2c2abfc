"""Rates: at every step all workers together may ask no more of a host, or of all hosts, than the fleet's.

Counted is what workers really obey, whatever the coordinator thinks: the share that a worker was told and
took in; or, of a host for which it has none, what the repos that it polls can ask for at all. Not counted are
those that are down in the fleet's books, which others replace, and those that were, until they are told anew.
Who found no room has a thousandth of a hundredth of the rate.
"""

from __future__ import annotations

from collections import Counter

from evermirror.model.worker import Duty, Liveness, WorkerId
from tests.support.sim.fleet.checks.shadow import Change, Scene
from tests.support.sim.fleet.worker import RoughWorker

RATES = "rates"
LEAST = 1e-5  # of the rate
ROUNDING = 1e-9


class Rated:
    """See the module."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        settings = scene.world.plan.settings
        self._host_rate, self._whole_rate = settings.host_rate, settings.polls_per_second
        self._min_gap_s = settings.min_gap_s
        self._fell_at: dict[WorkerId, float] = {}  # UTC seconds
        self.on = self._host_rate is not None or self._whole_rate is not None

    def changed(self, change: Change) -> None:
        for step in change.workers:
            if step.after.liveness is Liveness.DOWN:
                self._fell_at[step.after.id] = self._scene.world.utc_s
            elif step.before is None or step.before.duty is Duty.RETIRED:
                self._fell_at.pop(step.after.id, None)  # the id is another's now

    def step(self) -> None:
        if not self.on:
            return
        of_host: Counter[str] = Counter()
        whole, count = 0.0, 0
        for worker in self._scene.world.workers:
            if self._counts(worker):
                count += 1
                whole += self._of_all(worker)
                for host, rate in self._of_hosts(worker).items():
                    of_host[host] += rate  # type: ignore[assignment]
        slack = 1.0 + LEAST * count + ROUNDING
        for host, used in of_host.items():
            if self._host_rate is not None and used > self._host_rate * slack:
                self._scene.broken(RATES, f"{host} may be asked {used:.6f}/s, the rate is {self._host_rate}")
        if self._whole_rate is not None and whole > self._whole_rate * slack:
            self._scene.broken(RATES, f"all may ask {whole:.6f}/s together, the rate is {self._whole_rate}")

    def _counts(self, worker: RoughWorker) -> bool:
        if worker.id is None or not worker.up:
            return False
        record = self._scene.shadow.records.get(worker.id)
        if (
            record is None
            or record.liveness is Liveness.DOWN
            or self._scene.world.worker(record.id) is not worker
        ):
            return False
        fell_at = self._fell_at.get(worker.id)
        return fell_at is None or (worker.limits is not None and worker.limits.told_at > fell_at)

    def _of_hosts(self, worker: RoughWorker) -> dict[str, float]:
        if self._host_rate is None:
            return {}
        repos = Counter(key.partition("/")[0] for key in worker.primaries)
        limits = worker.limits
        usual = self._host_rate if limits is None or limits.host_rate is None else limits.host_rate
        rates = {host: min(self._asks(count), usual) for host, count in repos.items()}
        return rates | dict(() if limits is None else limits.host_rates)

    def _of_all(self, worker: RoughWorker) -> float:
        told = None if worker.limits is None else worker.limits.polls_per_second
        if told is None:
            told = self._whole_rate or 0.0
        return min(told, self._asks(len(worker.primaries))) if told == self._whole_rate else told

    def _asks(self, repos: int) -> float:
        return repos / self._min_gap_s if self._min_gap_s > 0 else float("inf") if repos else 0.0
