"""Policies side by side on the same histories: ours, those of others, and the oracle, by name.

The oracle tells what could be reached at most: a schedule that knows every push, and a bound below which none
can come.

The `oracle` polls when a push is there, at the moment it comes, as soon as the budget's token bucket lets it:
of several that wait the repo with the most pushes unseen, of equals the one that waits longest. It spends no
poll in vain, so it needs fewer than the budget has. It need not be the very best: to wait a little, so that
one poll sees two pushes, is sometimes better. How far it can be from that, the bound tells.

`least_mean_s` is a bound by prices (Lagrange's, weak duality). Let a poll at time t cost price(t) >= 0. Any
schedule then costs its delays plus what it pays, and

    delays  >=  least that each repo alone could bring delays plus price down to
                - the most that anybody could pay with the polls that the bucket has

whatever the prices are; good ones make it tight. Where pushes wait from a to b in the oracle's schedule, a
poll more at time t would have saved about b - t: that, times a factor, is the price, and 0 where nobody
waits. As a price never falls faster than time goes, waiting for a cheaper poll never pays: a repo's polls are
best at pushes, and which ones is found exactly (its pushes cut into runs, each seen at its last). The best of
a few factors counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from evermirror.core.schedule.bucket import TokenBucket
from evermirror.core.schedule.intensity import DAY_S
from evermirror.core.schedule.policies import POLICIES
from evermirror.errors import UsageError
from evermirror.sim.peers import PEERS, PeerRun, World
from evermirror.sim.polling import Progress, Traces, check, judge, simulate, unheard
from evermirror.sim.polling_result import PollingResult, Tally

ORACLE = "oracle"
NAMES = (*POLICIES, *PEERS, ORACLE)
# `fixed` has intervals and no budget: `classes` is what it comes to within one.
ALL = tuple(name for name in NAMES if name != "fixed")
FACTORS = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.15)


def named(asked: str) -> tuple[str, ...]:
    """The names in ``adaptive,gitlab`` or ``all``; all with others is still all."""
    names = tuple(name.strip() for name in asked.split(","))
    for name in names:
        if name not in (*NAMES, "all"):
            raise UsageError(f"no scheduling policy {name!r}", hint=f"One of: {', '.join(NAMES)}; or all")
    if "all" in names:
        return (*ALL, *(name for name in names if name not in (*ALL, "all")))
    return names


def result_of(
    traces: Traces,
    name: str,
    mean_gap_s: float,
    *,
    days: float = 180.0,
    warm_in_days: float = 14.0,
    tell: Progress = unheard,
) -> PollingResult:
    """As ``simulate``, whoever's rule it is."""
    if name in POLICIES:
        return simulate(traces, name, mean_gap_s, days=days, warm_in_days=warm_in_days, tell=tell)
    if name == ORACLE:
        check(traces, mean_gap_s, days, warm_in_days)
        return foresee([trace.pushes for trace in traces.repos], mean_gap_s, traces.end, days)
    tally = tally_of(traces, name, mean_gap_s, days=days, warm_in_days=warm_in_days, tell=tell)
    return tally.result(name, mean_gap_s, days, len(traces.repos))


def tally_of(
    traces: Traces,
    rule: str,
    mean_gap_s: float,
    *,
    days: float,
    warm_in_days: float,
    tell: Progress = unheard,
) -> Tally:
    """Every delay under a rule of others."""
    check(traces, mean_gap_s, days, warm_in_days)
    pushes = [trace.pushes for trace in traces.repos]
    start = traces.end - (days + warm_in_days) * DAY_S
    run = PeerRun(pushes, PEERS[rule](World(pushes, start, traces.end)), mean_gap_s, start)
    judge(run, traces.end, mean_gap_s, days, warm_in_days, tell)
    return run.tally


# The oracle


class Busy(NamedTuple):
    """A time in which somebody waits all along."""

    begin: float
    end: float


def foresee(pushes: Sequence[Sequence[float]], mean_gap_s: float, end: float, days: float) -> PollingResult:
    """The oracle's result over the last ``days``."""
    begin = end - days * DAY_S
    judged = [p[bisect_right(p, begin) : bisect_right(p, end)] for p in pushes]
    rate = len(pushes) / mean_gap_s
    tally, busy = play(judged, rate, begin)
    count = len(tally.delays)
    least = least_total_s(judged, busy, rate) / count if count else 0.0
    return tally.result("oracle", mean_gap_s, days, len(pushes), least_mean_s=least)


def play(pushes: Sequence[Sequence[float]], rate: float, begin: float) -> tuple[Tally, list[Busy]]:
    """The schedule that knows them all, and when somebody waited in it."""
    tally, bucket, busy = Tally(), TokenBucket(rate), []
    coming = sorted((at, repo) for repo, mine in enumerate(pushes) for at in mine)
    waiting: dict[int, list[float]] = {}
    best: list[tuple[int, float, int]] = []  # entries whose count is not the repo's any more are dead
    polled_at = [begin] * len(pushes)
    came, since = 0, 0.0
    while came < len(coming) or waiting:
        now = bucket.ready_at()
        if not waiting:
            since = coming[came][0]
            now = max(now, since)
        while came < len(coming) and coming[came][0] <= now:
            at, repo = coming[came]
            mine = waiting.setdefault(repo, [])
            mine.append(at)
            heappush(best, (-len(mine), mine[0], repo))
            came += 1
        repo = _most(best, waiting)
        bucket.take(now)
        seen = waiting.pop(repo)
        tally.delays += [now - at for at in seen]
        tally.whose += [repo] * len(seen)
        tally.polls += 1
        tally.largest_gap_s = max(tally.largest_gap_s, now - polled_at[repo])
        polled_at[repo] = now
        if not waiting and now > since:
            busy.append(Busy(since, now))
    return tally, busy


def _most(best: list[tuple[int, float, int]], waiting: dict[int, list[float]]) -> int:
    """The repo with the most pushes unseen; somebody must wait."""
    while True:
        count, first, repo = heappop(best)
        mine = waiting.get(repo)
        if mine is not None and (-count, first) == (len(mine), mine[0]):
            return repo


def least_total_s(pushes: Sequence[Sequence[float]], busy: Sequence[Busy], rate: float) -> float:
    """The sum of delays that no schedule comes below: see the module's words."""
    marks = [[_remaining(busy, at) for at in mine] for mine in pushes]
    paid = sum(_most_paid(one, rate) for one in busy)
    bounds = (
        sum(_least_alone(mine, prices, factor) for mine, prices in zip(pushes, marks, strict=True))
        - factor * paid
        for factor in FACTORS
    )
    return max(0.0, *bounds)


def _remaining(busy: Sequence[Busy], at: float) -> float:
    """How long somebody waits from then on."""
    place = bisect_right(busy, (at, float("inf"))) - 1
    return max(0.0, busy[place].end - at) if place >= 0 else 0.0


def _most_paid(busy: Busy, rate: float) -> float:
    """Polls as early as the bucket allows, each at the price of a second for every second that is left."""
    step, length = 1.0 / rate, busy.end - busy.begin
    saved_s = (max(1.0, rate) - 1.0) / rate  # what a full bucket is ahead
    at_once = int(saved_s / step) + 1
    last = int((length + saved_s) / step)  # the number of the last poll that costs anything
    later = max(0, last - at_once + 1)
    return at_once * length + later * (length + saved_s) - step * later * (at_once + last) / 2.0


def _least_alone(pushes: Sequence[float], prices: Sequence[float], factor: float) -> float:
    """The least delays plus prices of one repo: its pushes cut into runs, each seen at its last push.

    cost[j] = price[j] + min over i < j of cost[i] + the delays of pushes i+1 to j until push j; the minimum
    is over lines of falling slope at ascending places, so the best line only moves on."""
    if not pushes:
        return 0.0
    zero = pushes[0]
    sums = [0.0, *accumulate(at - zero for at in pushes)]
    lines: deque[tuple[int, float]] = deque([(0, 0.0)])  # count of pushes before, cost + their sum
    cost = 0.0
    for j, (at, price) in enumerate(zip(pushes, prices, strict=True), start=1):
        x = at - zero
        while len(lines) > 1 and lines[1][1] - lines[1][0] * x <= lines[0][1] - lines[0][0] * x:
            lines.popleft()
        i, base = lines[0]
        cost = factor * price + base + (j - i) * x - sums[j]
        new = (j, cost + sums[j])
        while len(lines) > 1 and _useless(lines[-2], lines[-1], new):
            lines.pop()
        lines.append(new)
    return cost


def _useless(left: tuple[int, float], middle: tuple[int, float], right: tuple[int, float]) -> bool:
    """Whether the middle line is nowhere below both others; slopes are minus the counts."""
    (i, a), (j, b), (k, c) = left, middle, right
    return (c - a) * (j - i) <= (b - a) * (k - i)
