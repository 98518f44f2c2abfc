"""Bytes on their way: a worker's clones share its link evenly, and a meter adds up the whole fleet.

Rules
- A clone takes a moment to begin, and then its share of the link: of k at once each gets a k-th.
- A link counts at the receiving end: what a worker sends to others through the relay slows nobody down.
- While the rate is infinite bytes take no time and are not counted: so a fleet is filled before a study.

    asked ─▶ slot ── CLONE_MIN_S ──▶ flows ── all its bytes came ──▶ done
                                      ▲ begin or end of another: each share changes at that moment
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from evermirror.model.repo import RepoKey
from evermirror.sim.fleet.catalog import size_mb
from evermirror.sim.fleet.clock import VirtualTime
from evermirror.sim.fleet.clones import CLONE_MIN_S, Clones, Job

if TYPE_CHECKING:
    from evermirror.sim.fleet.worker import SimWorker

SIZES_MEAN_MB = 1.0 + 199.0 / 18.0  # of catalog.size_mb: the mean of u**17 is 1/18
DUST_MB = 1e-6  # a byte: less than that is rounding, not data


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

    def _time_of(self, job: Job) -> tuple[float, bool]:
        """Only what it takes to begin; the bytes follow."""
        relayed = super()._time_of(job)[1]
        return CLONE_MIN_S * self._worker.slowness, relayed

    def _done(self, job: Job, relayed: bool) -> None:
        """It began; nothing is done yet, unless bytes take no time."""
        if self.jobs.get(job.key) is not job:
            return
        if math.isinf(self._traffic.rate_mb_s):
            super()._done(job, relayed)
            return
        self._catch_up()
        self._begin(Flow(job, self._served_mb + self._traffic.size_mb(job.key), relayed=relayed))
        self._plan_next()

    def _begin(self, flow: Flow) -> None:
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
            super()._done(flow.job, flow.relayed)
        self._plan_next()
