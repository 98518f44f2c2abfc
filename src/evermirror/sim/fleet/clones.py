"""The clones of a simulated worker: they wait for a slot, share the worker's link evenly, and are counted.

Rules
- Orphans come first. A clone takes a moment to begin, and then its share of the link: of k at once each gets
  a k-th.
- A link counts at the receiving end: what a worker sends to others through the relay slows nobody down.
- While the rate is infinite bytes take no time and are not counted: so a fleet is filled before a study.

    asked ─▶ slot ── CLONE_MIN_S ──▶ flows ── all its bytes came ──▶ done
                                      ▲ begin or end of another: each share changes at that moment
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from evermirror.core.fleet.decisions import Assignment
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from evermirror.sim.clock import VirtualTime

if TYPE_CHECKING:
    from evermirror.sim.fleet.worker import SimWorker

CLONE_MIN_S = 0.5
SIZES_MEAN_MB = 1.0 + 199.0 / 18.0  # of size_mb: the mean of u**17 is 1/18
DUST_MB = 1e-6  # a byte: less than that is rounding, not data


def size_mb(key: str) -> float:
    """Most are small, a few are large: 1 to 200 MB, 12 MB in the mean."""
    return 1.0 + 199.0 * (xxh3_64_intdigest(key.encode(), 1) / 2.0**64) ** 17


class Job:
    """A clone asked for and not done."""

    __slots__ = ("key", "running", "source")

    def __init__(self, key: RepoKey, source: WorkerId | None) -> None:
        self.key = key
        self.source = source
        self.running = False


class Clones(ABC):
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
        """Begin as many as there are slots."""
        while self.running < self._slots and (job := self._next()) is not None:
            job.running = True
            self.running += 1
            self._begin(job, self._is_relayed(job))

    def _next(self) -> Job | None:
        """The first that is still asked for."""
        while self._urgent or self._later:
            job = (self._urgent or self._later).popleft()
            if self.jobs.get(job.key) is job:
                return job
        return None

    def _is_relayed(self, job: Job) -> bool:
        """Through the relay from another worker, where that one is up and has it; else from upstream."""
        source = self._worker.world.worker(job.source) if job.source is not None else None
        return source is not None and source.serves(job.key)

    @abstractmethod
    def _begin(self, job: Job, relayed: bool) -> None:
        """It has a slot; ``_done`` is to be called when all its bytes came."""

    def _done(self, job: Job, relayed: bool) -> None:
        if self.jobs.get(job.key) is job:
            self.running -= 1
            del self.jobs[job.key]
            self._worker.cloned(job.key, relayed=relayed)
            self.fill_slots()


class Traffic:
    """Of the whole fleet. ``rate_mb_s`` is each worker's link; sizes are scaled to the mean asked for."""

    def __init__(self, time: VirtualTime, mean_mb: float) -> None:
        self.rate_mb_s = math.inf
        self.upstream_mb = self.relay_mb = 0.0
        self.upstream_peak_mb_s = self.relay_peak_mb_s = self.peak_mb_s = 0.0
        self.busy_s = 0.0  # with any byte on its way
        self.flowing = 0  # clones whose bytes come now
        self._time = time
        self._scale = mean_mb / SIZES_MEAN_MB
        self._upstream_mb_s = self._relay_mb_s = 0.0
        self._at = 0.0

    def size_mb(self, key: RepoKey) -> float:
        return size_mb(key) * self._scale

    def catch_up(self) -> None:
        """What flowed until now."""
        gone_s = self._time.now - self._at
        self._at = self._time.now
        if self.flowing:
            self.busy_s += gone_s
            self.upstream_mb += self._upstream_mb_s * gone_s
            self.relay_mb += self._relay_mb_s * gone_s

    def changed(self, upstream_mb_s: float, relay_mb_s: float, flows: int) -> None:
        """A worker takes so much more, or less, from now on."""
        self.catch_up()
        self.flowing += flows
        self._upstream_mb_s = self._upstream_mb_s + upstream_mb_s if self.flowing else 0.0
        self._relay_mb_s = self._relay_mb_s + relay_mb_s if self.flowing else 0.0
        self.upstream_peak_mb_s = max(self.upstream_peak_mb_s, self._upstream_mb_s)
        self.relay_peak_mb_s = max(self.relay_peak_mb_s, self._relay_mb_s)
        self.peak_mb_s = max(self.peak_mb_s, self._upstream_mb_s + self._relay_mb_s)


class Flow:
    """A clone whose bytes come; ``until_mb`` is what each flow of its worker must have got by its end."""

    __slots__ = ("job", "relayed", "until_mb")

    def __init__(self, job: Job, until_mb: float, *, relayed: bool) -> None:
        self.job = job
        self.until_mb = until_mb
        self.relayed = relayed


class SharedClones(Clones):
    """Clones of a worker that share its link."""

    def __init__(self, worker: SimWorker, slots: int, traffic: Traffic) -> None:
        super().__init__(worker, slots)
        self._traffic = traffic
        self._flows: dict[RepoKey, Flow] = {}
        self._ends: list[tuple[float, int, Flow]] = []  # a heap; some may have been stopped
        self._counts = [0, 0]  # from upstream, through the relay
        self._served_mb = 0.0  # to each flow, since the first
        self._at = 0.0
        self._turn = 0  # grows with each change: an end planned before it is void
        self._begun = 0

    def stop(self, key: RepoKey) -> None:
        self._catch_up()
        super().stop(key)
        self._end(key)
        self._plan_next()

    def clear(self) -> None:
        self._catch_up()
        super().clear()
        for key in list(self._flows):
            self._end(key)
        self._plan_next()

    def _begin(self, job: Job, relayed: bool) -> None:
        self._worker.world.time.after(CLONE_MIN_S, self._flow, job, relayed)

    def _flow(self, job: Job, relayed: bool) -> None:
        """It began; nothing is done yet, unless bytes take no time."""
        if self.jobs.get(job.key) is not job:
            return
        if math.isinf(self._traffic.rate_mb_s):
            self._done(job, relayed)
            return
        self._catch_up()
        self._add(Flow(job, self._served_mb + self._traffic.size_mb(job.key), relayed=relayed))
        self._plan_next()

    def _add(self, flow: Flow) -> None:
        self._flows[flow.job.key] = flow
        self._begun += 1
        heappush(self._ends, (flow.until_mb, self._begun, flow))
        self._share(flow.relayed, +1)

    def _end(self, key: RepoKey) -> None:
        flow = self._flows.pop(key, None)
        if flow is not None:
            self._share(flow.relayed, -1)

    def _share(self, relayed: bool, change: int) -> None:
        """Of the link between upstream and relay, with one flow more or less."""
        before = self._rates()
        self._counts[relayed] += change
        after = self._rates()
        self._traffic.changed(after[0] - before[0], after[1] - before[1], change)

    def _rates(self) -> tuple[float, float]:
        flows = sum(self._counts)
        each = self._traffic.rate_mb_s / flows if flows else 0.0
        return each * self._counts[0], each * self._counts[1]

    def _catch_up(self) -> None:
        now = self._worker.world.time.now
        if self._flows:
            self._served_mb += self._traffic.rate_mb_s / len(self._flows) * (now - self._at)
        self._at = now

    def _plan_next(self) -> None:
        self._turn += 1
        while self._ends and self._flows.get(self._ends[0][2].job.key) is not self._ends[0][2]:
            heappop(self._ends)
        if self._ends:
            left_mb = max(self._ends[0][0] - self._served_mb, 0.0)
            wait_s = left_mb * len(self._flows) / self._traffic.rate_mb_s
            self._worker.world.time.after(wait_s, self._came, self._turn)
        else:
            self._served_mb = 0.0  # so that rounding never adds up

    def _came(self, turn: int) -> None:
        """The next in line has all its bytes, and perhaps others with it."""
        if turn != self._turn:
            return
        self._catch_up()
        came = []
        while self._ends and self._ends[0][0] <= self._served_mb + DUST_MB:
            flow = heappop(self._ends)[2]
            if self._flows.get(flow.job.key) is flow:
                came.append(flow)
                self._end(flow.job.key)
        for flow in came:
            self._done(flow.job, flow.relayed)
        self._plan_next()
