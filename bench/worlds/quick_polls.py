"""The product's polling simulation, four times as fast: the same polls at the same times.

`simulate polling` asks the very scheduler that runs in production, which looks after hosts, limits, weather
and git slots at every poll. In that simulation there is one host, and only the budget limits it: what is left
of the scheduler is a heap and a sum. Policy, learning, token bucket and the cut of first strides are the
product's own. The tests hold both against each other to the last bit; the benchmark does so once more on the
histories that it is about.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heapreplace

from evermirror.core.schedule.bucket import TokenBucket
from evermirror.core.schedule.intensity import DAY_S, PUSHES_MAX, learn
from evermirror.core.schedule.placement import first_part
from evermirror.core.schedule.policies import POLICIES
from evermirror.model.activity import Activity
from evermirror.model.repo import Priority
from evermirror.sim.polling import Traces, check, judge
from evermirror.sim.polling_result import Tally

_WEIGHT = Priority.NORMAL.weight


def quick_tally(traces: Traces, policy: str, mean_gap_s: float, *, days: float, warm_in_days: float) -> Tally:
    """What the polls of ``simulate`` with the same arguments come to."""
    check(traces, mean_gap_s, days, warm_in_days)
    run = QuickRun(traces, policy, mean_gap_s, traces.end - (days + warm_in_days) * DAY_S)
    judge(run, traces.end, mean_gap_s, days, warm_in_days)
    return run.tally


class QuickRun:
    """One simulation under way; a repo is its place in the histories."""

    def __init__(self, traces: Traces, policy: str, mean_gap_s: float, start: float) -> None:
        self.tally = Tally()
        self._policy = POLICIES[policy]
        self._rate = len(traces.repos) / mean_gap_s
        self._bucket = TokenBucket(self._rate)
        self._now = start
        self._counting_from = math.inf
        self._pushes = [trace.pushes for trace in traces.repos]
        self._seen = [bisect_right(pushes, start) for pushes in self._pushes]
        self._unseen = sum(map(len, self._pushes)) - sum(self._seen)
        self._polled_at = [start] * len(self._pushes)
        self._activities = [
            learn(Activity(), pushes[max(0, known - PUSHES_MAX) : known], after=0.0, now=start)
            for pushes, known in zip(self._pushes, self._seen, strict=True)
        ]
        self._strides = [self._policy.stride(_WEIGHT, 0, known, start) for known in self._activities]
        self._total = 0.0
        for stride in self._strides:
            self._total += 1.0 / stride
        if self._policy.gap_cap is not None:
            cap = self._policy.gap_cap * len(self._strides) / self._total
            for repo, stride in enumerate(self._strides):
                if stride > cap:
                    self._total += 1.0 / cap - 1.0 / stride
                    self._strides[repo] = cap
        self._firsts = 0
        self._tickets = len(self._strides)
        self._queue = [(0.0, repo + 1, repo) for repo in range(len(self._strides))]
        heapify(self._queue)

    def warm(self) -> None:
        """What comes from here on counts."""
        self._counting_from = self._now
        self.tally.warm()

    def until(self, end: float, *, unseen_only: bool = False) -> None:
        """Poll until ``end``; with ``unseen_only`` stop as soon as every push has been seen."""
        queue, bucket, rate, stride_of = self._queue, self._bucket, self._rate, self._policy.stride
        pushes, seen, polled_at = self._pushes, self._seen, self._polled_at
        activities, strides, total = self._activities, self._strides, self._total
        cap = None if self._policy.gap_cap is None else self._policy.gap_cap * len(strides)
        now, tickets, largest = self._now, self._tickets, self.tally.largest_gap_s
        while not (unseen_only and self._unseen == 0):
            wake = max(bucket.ready_at(), now)
            if wake > end:
                break
            now = wake
            bucket.take(now)
            priority, ticket, repo = queue[0]
            gap = now - polled_at[repo]
            if gap > largest:
                largest = gap
            mine, known = pushes[repo], seen[repo]
            if known < len(mine) and mine[known] <= now:
                self._see(repo, mine, known, now)
            polled_at[repo] = now
            stride = stride_of(_WEIGHT, 0, activities[repo], now, total / rate)
            if cap is not None and stride > cap / total:
                stride = cap / total
            total += 1.0 / stride - 1.0 / strides[repo]
            strides[repo] = stride
            if ticket <= len(strides):  # the first that it came with
                priority += stride * first_part(self._firsts)
                self._firsts += 1
            else:
                priority += stride
            tickets += 1
            heapreplace(queue, (priority, tickets, repo))
        self.tally.polls += tickets - self._tickets
        self.tally.largest_gap_s = largest
        self._total, self._tickets = total, tickets
        self._now = now if unseen_only else end

    def _see(self, repo: int, mine: Sequence[float], known: int, now: float) -> None:
        """A poll found pushes that were not known yet."""
        upto = bisect_right(mine, now)
        news, looked_at = mine[known:upto], self._polled_at[repo]
        self.tally.see(repo, news, looked_at, now, counting_from=self._counting_from)
        self._seen[repo] = upto
        self._unseen -= len(news)
        self._activities[repo] = learn(self._activities[repo], news, after=looked_at, now=now)
