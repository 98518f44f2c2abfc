"""Rules of others for when to look at a repo, to compare with: in virtual time, never in the product.

A rule says after each poll how long until the next one, from what its program knows. Its times only count
against one another: all are stretched by one common factor so that the budget is spent (`PeerRun`). So a
rule keeps its shape, whatever the budget is.

| name                | next look after                                                                      |
|---------------------|--------------------------------------------------------------------------------------|
| `uniform`           | the same for every repo                                                              |
| `classes`           | 10 min, 30 min, 2 h or 6 h: ranked once, at the start, by the pushes of 90 days      |
| `gitlab`            | 24 to 30 times as long as the last fetch took, at least 30 min (pull mirrors)        |
| `sourcegraph`       | half the age of the last commit, at least 45 s, at most 8 h                          |
| `software-heritage` | 1 to 4,096 days by an offset: a change lowers it by 2, silence raises it by 1; ±10 % |
| `three-counts`      | 1 / sqrt(intensity) as our `adaptive` had it at first: kept to see what became of it |
| `clairvoyant`       | 1 / sqrt(the repo's true average rate), which nobody knows                           |

Where a rule rests on what histories do not tell, it is made: how long fetches take (`gitlab`).

Scaled to the budget: polls are as far apart as the budget has it, and each goes to the repo whose turn is
first on the rule's own clock. That clock runs as fast as the budget allows: at every moment all gaps are
longer or shorter than the rule says by one common factor. So every rule spends the same number of polls, to
the last one, and none saves for better times. The product's own policies are bound in the same way.

All repos are polled once where it begins. Until its second poll each waits for a part of its gap, spread
evenly over all: else those with equal gaps would come all at once each time, as they do not in a program
that repos came to one by one.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heapreplace
from types import MappingProxyType
from typing import NamedTuple, Protocol

from evermirror.core.schedule.intensity import DAY_S, HOUR_S
from evermirror.core.schedule.policies import CLASS_INTERVAL_S
from evermirror.model.repo import Priority
from evermirror.sim.polling_result import Tally

_MINUTE_S = 60.0


class World(NamedTuple):
    """What a rule is made from: all pushes of every repo, and the time simulated. Only `clairvoyant` looks
    at pushes after the start."""

    pushes: Sequence[Sequence[float]]
    start: float
    end: float
    seed: int = 1


class Rule(Protocol):
    """``gap_s`` is asked once after each poll of a repo, by its place in the histories."""

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        """Until the next look, before the common factor; infinity: never again.

        ``news``: pushes that this poll was the first to see; ``last_push_at``: 0 where none is known."""
        ...


class Uniform:
    """Each in turn."""

    def __init__(self, world: World) -> None:
        pass

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        return 1.0


CLASS_SHARES: Mapping[Priority, float] = MappingProxyType(
    {Priority.CRITICAL: 0.05, Priority.HIGH: 0.15, Priority.NORMAL: 0.5, Priority.LOW: 0.3}
)
RANKED_BY_S = 90 * DAY_S


class Classes:
    """Somebody ranks the repos once, busiest first, and gives each class its share and its interval."""

    def __init__(self, world: World) -> None:
        recent = [
            bisect_right(p, world.start) - bisect_right(p, world.start - RANKED_BY_S) for p in world.pushes
        ]
        ranked = sorted(range(len(recent)), key=lambda repo: (-recent[repo], repo))
        self._gaps_s = [0.0] * len(ranked)
        upto, begun = 0.0, 0
        for priority, share in CLASS_SHARES.items():
            upto += share
            ends = round(upto * len(ranked))
            for repo in ranked[begun:ends]:
                self._gaps_s[repo] = CLASS_INTERVAL_S[priority]
            begun = ends

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        return self._gaps_s[repo]


class GitLab:
    """Pull mirrors: 24 to 30 times the last duration by chance, at least 30 minutes.

    A repo's fetches take about as long each time: 5 seconds in the median, sigma of the logarithm 1.5."""

    LEAST_S = 30 * _MINUTE_S
    TIMES, JITTER = 24.0, 6.0
    FETCH_S, FETCH_SPREAD = 5.0, 1.5

    def __init__(self, world: World) -> None:
        self._chance = random.Random(world.seed)  # noqa: S311 - a run that can be played again
        median = math.log(self.FETCH_S)
        self.durations_s = [self._chance.lognormvariate(median, self.FETCH_SPREAD) for _ in world.pushes]

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        times = self.TIMES + self._chance.random() * self.JITTER
        return max(self.LEAST_S, times * self.durations_s[repo])


class Sourcegraph:
    """Half the age of the last commit; of a repo without one, the longest."""

    LEAST_S, MOST_S = 45.0, 8 * HOUR_S

    def __init__(self, world: World) -> None:
        pass

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        return min(max((now - last_push_at) / 2.0, self.LEAST_S), self.MOST_S)


class SoftwareHeritage:
    """The queue for origins whose last update nobody tells: each has an offset, which is a step of days."""

    FIRST, MOST = 4, 10
    CHANGED, SAME = -2, 1
    JITTER = 0.1

    def __init__(self, world: World) -> None:
        self._chance = random.Random(world.seed)  # noqa: S311 - a run that can be played again
        self.offsets = [self.FIRST] * len(world.pushes)

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        moved = self.offsets[repo] + (self.CHANGED if news else self.SAME)
        self.offsets[repo] = offset = min(max(moved, 0), self.MOST)
        return self.days(offset) * DAY_S * (1.0 + self._chance.uniform(-self.JITTER, self.JITTER))

    @staticmethod
    def days(offset: int) -> int:
        """1, 1, 2, 2, 2, then 4, 16, 64 and so on."""
        if offset < 2:
            return 1
        return 2 if offset < 5 else 4 ** (offset - 4)


class ThreeCounts:
    """The intensity by three fading counts, as the specification of `adaptive` began; it does not change when
    that policy does. No gap is longer than ten times the average."""

    TAU_S = (1.5 * HOUR_S, 3 * DAY_S, 90 * DAY_S)
    SHARES = (0.46, 0.21, 0.33)
    BASE = 0.3 / (365.25 * DAY_S)
    CAP = 10.0

    def __init__(self, world: World) -> None:
        self._gains = [share / tau for share, tau in zip(self.SHARES, self.TAU_S, strict=True)]
        self._counts = [(0.0, 0.0, 0.0)] * len(world.pushes)
        self._as_of = [min(pushes[0], world.start) if pushes else world.start for pushes in world.pushes]
        for repo, pushes in enumerate(world.pushes):
            self._learn(repo, pushes[: bisect_right(pushes, world.start)])
        strides = [1.0 / math.sqrt(self._intensity(repo, world.start)) for repo in range(len(world.pushes))]
        cap = self.CAP * len(strides) / sum(1.0 / stride for stride in strides) if strides else 0.0
        self._strides = [min(stride, cap) for stride in strides]
        self._total = sum(1.0 / stride for stride in self._strides)

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        self._learn(repo, news)
        stride = 1.0 / math.sqrt(self._intensity(repo, now))
        stride = min(stride, self.CAP * len(self._strides) / self._total)
        self._total += 1.0 / stride - 1.0 / self._strides[repo]
        self._strides[repo] = stride
        return stride

    def _learn(self, repo: int, pushes: Sequence[float]) -> None:
        (n0, n1, n2), (tau0, tau1, tau2), as_of = self._counts[repo], self.TAU_S, self._as_of[repo]
        exp = math.exp
        for at in pushes:
            age = at - as_of
            n0 = n0 * exp(-age / tau0) + 1.0
            n1 = n1 * exp(-age / tau1) + 1.0
            n2 = n2 * exp(-age / tau2) + 1.0
            as_of = at
        self._counts[repo], self._as_of[repo] = (n0, n1, n2), as_of

    def _intensity(self, repo: int, now: float) -> float:
        age, exp = now - self._as_of[repo], math.exp
        (n0, n1, n2), (tau0, tau1, tau2), (gain0, gain1, gain2) = self._counts[repo], self.TAU_S, self._gains
        fast, middle = gain0 * n0 * exp(-age / tau0), gain1 * n1 * exp(-age / tau1)
        return self.BASE + (fast + middle + gain2 * n2 * exp(-age / tau2))


class Clairvoyant:
    """Knows how often each repo is pushed to in the time simulated, not when: the best of constant rates.

    A repo that is not pushed to is not polled."""

    def __init__(self, world: World) -> None:
        counts = (bisect_right(p, world.end) - bisect_right(p, world.start) for p in world.pushes)
        self._gaps_s = [1.0 / math.sqrt(count) if count else math.inf for count in counts]

    def gap_s(self, repo: int, news: Sequence[float], last_push_at: float, now: float) -> float:
        return self._gaps_s[repo]


PEERS: Mapping[str, Callable[[World], Rule]] = MappingProxyType(
    {
        "uniform": Uniform,
        "classes": Classes,
        "gitlab": GitLab,
        "sourcegraph": Sourcegraph,
        "software-heritage": SoftwareHeritage,
        "three-counts": ThreeCounts,
        "clairvoyant": Clairvoyant,
    }
)


_FIRST = -1.0  # a turn before any other: the repo was not polled yet
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def spread(repo: int) -> float:
    """Parts of 1 that lie evenly between 0 and 1, however many there are; none is 0."""
    return ((repo + 1) * _GOLDEN) % 1.0


class PeerRun:
    """One simulation under way."""

    def __init__(
        self, pushes: Sequence[Sequence[float]], rule: Rule, mean_gap_s: float, start: float
    ) -> None:
        self.tally = Tally()
        self._pushes = pushes
        self._rule = rule
        self._start = start
        self._step_s = mean_gap_s / len(pushes)
        self._tick = 0  # polls so far, from the start
        self._upto = start
        self._counting_from = math.inf
        self._seen = [bisect_right(p, start) for p in pushes]
        self._unseen = sum(map(len, pushes)) - sum(self._seen)
        self._last_push_at = [p[n - 1] if n else 0.0 for p, n in zip(pushes, self._seen, strict=True)]
        self._polled_at = [start] * len(pushes)
        self._turns = [(_FIRST, repo) for repo in range(len(pushes))]
        heapify(self._turns)

    def warm(self) -> None:
        """What comes from here on counts."""
        self._counting_from = self._upto
        self.tally.warm()

    def until(self, end: float, *, unseen_only: bool = False) -> None:
        """Poll until ``end``; with ``unseen_only`` stop as soon as every push has been seen."""
        turns, polled_at, gap_s = self._turns, self._polled_at, self._rule.gap_s
        pushes, seen, last_push_at = self._pushes, self._seen, self._last_push_at
        start, step, tick, largest = self._start, self._step_s, self._tick, self.tally.largest_gap_s
        now, begun = start + tick * step, tick
        while now <= end and not (unseen_only and self._unseen == 0):
            turn, repo = turns[0]
            gap = now - polled_at[repo]
            if gap > largest:
                largest = gap
            known, mine = seen[repo], pushes[repo]
            news = self._see(repo, now) if known < len(mine) and mine[known] <= now else ()
            polled_at[repo] = now
            wait = gap_s(repo, news, last_push_at[repo], now)
            heapreplace(turns, (turn + wait if turn >= 0.0 else wait * spread(repo), repo))
            tick += 1
            now = start + tick * step
        self.tally.polls += tick - begun
        self.tally.largest_gap_s = largest
        self._tick, self._upto = tick, end

    def _see(self, repo: int, now: float) -> Sequence[float]:
        """Pushes that were not known yet."""
        mine, first = self._pushes[repo], self._seen[repo]
        known = bisect_right(mine, now)
        news = mine[first:known]
        self.tally.see(repo, news, self._polled_at[repo], now, counting_from=self._counting_from)
        self._seen[repo] = known
        self._unseen -= known - first
        self._last_push_at[repo] = mine[known - 1]
        return news
