"""The clones of a simulated worker: asked for, waiting for a slot, under way; orphans first.

Those of dead upstreams fail, are told as deferred, and are tried again later, for ever.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evermirror.core.fleet.decisions import Assignment
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from evermirror.sim.fleet.catalog import size_mb

if TYPE_CHECKING:
    from evermirror.sim.fleet.worker import SimWorker

UPSTREAM_MB_S = 5.0
RELAY_MB_S = 10.0
CLONE_MIN_S = 0.5
FAIL_S = 10.0  # until a dead upstream is known to be, this time
RETRY_S = 300.0


class Job:
    """A clone asked for and not done."""

    __slots__ = ("key", "running", "source")

    def __init__(self, key: RepoKey, source: WorkerId | None) -> None:
        self.key = key
        self.source = source
        self.running = False


class Clones:
    """``jobs`` is what was asked for and is not done; a job that is no longer in it is void."""

    def __init__(self, worker: SimWorker, slots: int) -> None:
        self.jobs: dict[RepoKey, Job] = {}
        self.running = 0
        self._worker = worker
        self._slots = slots
        self._urgent: deque[Job] = deque()
        self._later: deque[Job] = deque()

    def ask(self, item: Assignment) -> None:
        if item.key not in self.jobs:
            job = self.jobs[item.key] = Job(item.key, item.source)
            (self._urgent if item.orphan else self._later).append(job)

    def stop(self, key: RepoKey) -> None:
        job = self.jobs.pop(key, None)
        if job is not None and job.running:
            self.running -= 1

    def clear(self) -> None:
        self.jobs.clear()
        self._urgent.clear()
        self._later.clear()
        self.running = 0

    def fill_slots(self) -> None:
        """Begin as many as there are slots; on a full disk what waits is handed back."""
        worker = self._worker
        while self.running < self._slots and (self._urgent or self._later):
            if not worker.accepting:
                self._hand_back()
                return
            job = (self._urgent or self._later).popleft()
            if self.jobs.get(job.key) is job:
                job.running = True
                self.running += 1
                seconds, relayed = self._time_of(job)
                worker.world.time.after(seconds, self._done, job, relayed)

    def _time_of(self, job: Job) -> tuple[float, bool]:
        worker = self._worker
        if worker.world.catalog.is_dead(job.key):
            return FAIL_S, False
        source = worker.world.worker(job.source) if job.source is not None else None
        relayed = source is not None and source.serves(job.key)
        rate = RELAY_MB_S if relayed else UPSTREAM_MB_S
        return (CLONE_MIN_S + size_mb(job.key) / rate) * worker.slowness, relayed

    def _done(self, job: Job, relayed: bool) -> None:
        if self.jobs.get(job.key) is not job:
            return
        self.running -= 1
        if self._worker.world.catalog.is_dead(job.key):
            job.running = False
            self._worker.deferred(job.key)
            self._worker.world.time.after(RETRY_S, self._again, job)
            self.fill_slots()
            return
        del self.jobs[job.key]
        self._worker.cloned(job.key, relayed=relayed)
        self.fill_slots()

    def _again(self, job: Job) -> None:
        if self.jobs.get(job.key) is job:
            self._later.append(job)
            self.fill_slots()

    def _hand_back(self) -> None:
        for waiting in (self._urgent, self._later):
            for job in waiting:
                if self.jobs.get(job.key) is job:
                    del self.jobs[job.key]
                    self._worker.hand_back(job.key)
            waiting.clear()
