"""What workers did, added up from the counters they tell: in all, and at which rate lately.

    a worker's polls_total   100 ── 130 ── 20 ── 25      its process began anew: it counts from 0
    counted                    0     30    20     5      the first word is only what the next is compared to

Workers come and go, and one that was away tells later what it did meanwhile. That belongs to the sum, and not
to the rate: it was not done in the last minute.

Counters are a worker's own word, in any order: what counts is never negative, and no more than a machine can
do in the time since its last word.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from evermirror.model.whole import Work
from evermirror.model.worker import WorkerId

WINDOW_S = 60.0  # the rate is of the last minute
SAMPLE_S = 2.0  # between two moments that are remembered of it
SPAN_MIN_S = 10.0  # a rate over less would jump with every change
MOST_PER_S = Work(100_000, 100_000, 100 * 10**9)  # of one worker: far above the fastest machine and network


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second."""

    polls: float = 0.0
    changes: float = 0.0
    received_bytes: float = 0.0


class Lately:
    """``heard`` whenever a worker tells its counters; ``total`` only grows."""

    def __init__(self) -> None:
        self.total = Work()
        self._recent = Work()  # the same, without what was told late
        self._told: dict[WorkerId, tuple[float, Work]] = {}
        self._moments: deque[tuple[float, Work]] = deque()  # of ``_recent``, up to one before the window

    def heard(self, worker: WorkerId, counters: Work, now: float) -> None:
        if self._moments and now < self._moments[-1][0]:  # the clock was set back: the window begins anew
            self._moments.clear()
        before = self._told.get(worker)
        self._told[worker] = now, counters
        if not self._moments:
            self._moments.append((now, self._recent))
        if before is None:
            return
        at, told = before
        done = _at_most(_since(told, counters), max(1.0, now - at))
        self.total += done
        if now - at <= WINDOW_S:
            self._recent += done
        if now - self._moments[-1][0] >= SAMPLE_S:
            self._moments.append((now, self._recent))
            self._forget(now)

    def rates(self, now: float) -> Rates:
        self._forget(now)
        if not self._moments:
            return Rates()
        at, before = self._moments[0]
        span_s = max(SPAN_MIN_S, now - at)
        done = self._recent - before
        return Rates(done.polls / span_s, done.changes / span_s, done.received_bytes / span_s)

    def _forget(self, now: float) -> None:
        while len(self._moments) > 1 and self._moments[1][0] <= now - WINDOW_S:
            self._moments.popleft()


def _since(told: Work, counters: Work) -> Work:
    """Counters that are lower than before began anew, all of them."""
    done = counters - told
    return counters if min(done.polls, done.changes, done.received_bytes) < 0 else done


def _at_most(done: Work, span_s: float) -> Work:
    return Work(
        min(done.polls, int(MOST_PER_S.polls * span_s)),
        min(done.changes, int(MOST_PER_S.changes * span_s)),
        min(done.received_bytes, int(MOST_PER_S.received_bytes * span_s)),
    )
