"""A rule of others on push histories, in virtual time, with the budget that the product has.

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
from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heapreplace

from evermirror.sim.peers import Rule
from evermirror.sim.polling_result import Tally

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
