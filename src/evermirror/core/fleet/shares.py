"""One rate of the whole fleet, split over its workers: shrink first, then grow.

    told, shrinking        acknowledged
  given 4 ──▶ 3 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ bound 3 ──▶ room for 1 more      bound: the most that it may be using now
  bound 4     4                                  │
                       others  given 1 ──▶ 2 ◀───┘  told, growing: the bound is 2 from the moment it is sent

Rules
- The sum of all bounds is at most the rate; nobody grows beyond that. So it holds for what workers really
  use too, whatever is lost or late on the way: a bound goes down only once the worker said that it obeys.
- Counted are workers that are not down: a suspect one goes on polling. What a lost one used is free when it
  is down, as its repos are. Back from there it counts at once, and may be more than there is room for: what
  it is told first is what the others leave, then they shrink, then it grows.
- The aim is ``rate × (FLOOR / workers + (1 - FLOOR) × own / all)``, of FULL of the rate: a part for
  everybody, so that a newcomer can begin, the rest by the repos that it polls. A single worker has it all.
- A share moves when it is off by more than RATIO; when somebody waits for room also by less.
- Nobody is told 0: who finds no room at all gets the least that there is, a thousandth of what MOST leaves
  over (of 5 a second: one in six hours). Where others have everything, a single one or those from before a
  restart, the sum is above the rate by no more than that for each who waits.
- ``reserve`` is what may be in use by workers that were not heard since a restart: they were given it by a
  process that kept the same rules, so that together with what the others brought it is at most the rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FULL = 0.95  # of the rate is given out; the rest lets a newcomer begin before all others have shrunk
MOST = 0.99  # of the rate may be in use while shares move
FLOOR = 0.1  # of what is given out goes to all alike
RATIO = 0.2  # a share that is off by less stays as it is
TIGHT = 0.01  # the same while somebody waits for room
STEP = 0.1  # a smaller step towards the aim is not worth a message
LEAST_OF = 1000  # so many at the least are as much as MOST leaves over

Rates = NDArray[np.float64]
Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]


class Budget:
    """Columns are workers, by id. ``told``: it has a share of its own; until then ``given`` is a guess."""

    __slots__ = ("bound", "given", "rate", "reserve", "told")

    def __init__(self, rate: float, width: int, reserve: float = 0.0) -> None:
        self.rate = rate
        self.reserve = reserve
        self.bound: Rates = np.zeros(width)
        self.given: Rates = np.zeros(width)
        self.told: Mask = np.zeros(width, np.bool_)

    def widen(self, width: int) -> None:
        """Room for more workers."""
        more = width - len(self.given)
        if more > 0:
            self.bound = np.append(self.bound, np.zeros(more))
            self.given = np.append(self.given, np.zeros(more))
            self.told = np.append(self.told, np.zeros(more, np.bool_))

    # Facts

    def has(self, worker: int, rate: float, *, told: bool) -> None:
        """So much it uses at most, by its own word or because it has no more to ask for."""
        self.bound[worker] = self.given[worker] = rate
        self.told[worker] = told

    def obeyed(self, worker: int) -> None:
        """It took in what it was told last."""
        self.bound[worker] = self.given[worker]

    def unheeded(self, worker: int, most: float) -> None:
        """It was to obey long ago: no more than this counts, whatever it says."""
        self.given[worker] = min(self.given[worker], most)
        self.bound[worker] = self.given[worker]

    def forget(self, worker: int) -> None:
        """It uses nothing: it retired, and its id may be another's."""
        self.bound[worker] = self.given[worker] = 0.0
        self.told[worker] = False

    # Decisions

    def aims(self, own: Counts, sharing: Mask) -> Rates:
        """What each should have, if all could be told at once."""
        size = int(np.count_nonzero(sharing))
        if size <= 1:
            return np.where(sharing, self.rate, 0.0)
        counted = np.where(sharing, own, 0)
        total = int(counted.sum())
        by_repos = counted / total if total else np.full(len(own), 1.0 / size)
        aims = self.rate * FULL * (FLOOR / size + (1.0 - FLOOR) * by_repos)
        return np.where(sharing, aims, 0.0)

    def split(self, own: Counts, sharing: Mask, tellable: Mask, back: Mask) -> Mask:
        """Move shares of those that can be told now towards their aims; who is to be told.

        ``back``: was down, and told nothing since."""
        aims, before = self.aims(own, sharing), self.given
        size = int(np.count_nonzero(sharing))
        room = self._room(sharing, size)
        under = sharing & (before * (1.0 + RATIO) < aims)
        waited_for = float((aims - before)[under].sum()) > room
        over = tellable & (before > aims * (1.0 + (TIGHT if waited_for else RATIO)))
        after = np.where(over | (tellable & ~self.told & (before > aims)), aims, before)
        after = self._grown(after, aims, tellable & (under | ~self.told), room)
        after = self._left_over(after, sharing, tellable & (back | ~self.told), size)
        least = self.rate * (1.0 - MOST) / max(size, LEAST_OF)
        after = np.where(tellable, np.maximum(after, least), before)
        changed: Mask = tellable & ((after != before) | ~self.told)
        self.given = after
        self.bound = np.where(changed, np.maximum(self.bound, after), self.bound)
        self.told = self.told | changed
        return changed

    def _room(self, sharing: Mask, size: int) -> float:
        most = self.rate if size <= 1 else self.rate * MOST
        return most - self.reserve - float(self.bound[sharing].sum())

    def _left_over(self, shares: Rates, sharing: Mask, back: Mask, size: int) -> Rates:
        """Those who are back, or are told for the first time, have no more than the others leave."""
        wanted = float(shares[back].sum())
        left = max(self._room(sharing & ~back, size), 0.0)
        if wanted <= left:
            return shares
        return np.where(back, shares * (left / wanted), shares)

    def _grown(self, shares: Rates, aims: Rates, who: Mask, room: float) -> Rates:
        """As far as there is room, all by the same part of what they lack."""
        lacking = np.where(who, np.maximum(aims - np.maximum(shares, self.bound), 0.0), 0.0)
        wanted = float(lacking.sum())
        if wanted <= 0.0 or room <= 0.0:
            return shares
        grown = np.maximum(shares, self.bound) + lacking * min(1.0, room / wanted)
        worth = (lacking > 0.0) & ((grown >= shares * (1.0 + STEP)) | ~self.told)
        return np.where(worth, grown, shares)
