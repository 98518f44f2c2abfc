"""Fair use of something limited: how much one client may take, and which client is too slow to keep it.

A client never has more than what is left for all others. So one client alone gets half, a second one a
quarter, and however many are greedy, whoever comes next still finds something. A client that makes us wait
keeps its place while nobody else needs that place; while somebody does, it must move its bytes at a pace that
rises the longer we have waited for it. Whoever has most goes first, and a client with a single unit is asked
for little more than the pace itself: else a few greedy clients could drive it out by standing in line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import TypeVar

WINDOW_S = 20.0  # of waiting, after which older bytes count half: a fast start does not excuse a standstill
KEEPS_UP_S = 0.01  # a client that takes a piece within this does not make us wait
PATIENCE_S = 5.0  # of waiting for one client, before it can be too slow at all
RISE_S = 30.0  # of waiting for one client, after which the required pace grows with the time waited
RISE_MAX = 8.0  # times the pace, for a client that has one unit: a long clone over a common line goes on

_T = TypeVar("_T")


class FairShare:
    """So many units for all clients, and what each of them has; ``fair``: none has more than what is left.

    The client None stands for many, as a proxy does: it is bounded by the total only."""

    def __init__(self, total: int, per_client: int | None = None, *, fair: bool = True) -> None:
        self.total = total
        self._per_client = total if per_client is None else per_client
        self._fair = fair
        self._has: Counter[str | None] = Counter()
        self.used = 0

    def fits(self, client: str | None, amount: int = 1, *, freed: int = 0) -> bool:
        """Whether ``client`` may take ``amount`` more, once others have given ``freed`` back."""
        has, left = self._has[client], self.total - self.used + freed
        if client is None:
            return amount <= left
        return has + amount <= self._per_client and amount + (has if self._fair else 0) <= left

    def take(self, client: str | None, amount: int = 1) -> bool:
        """Take ``amount`` for ``client`` where that is fair; else nothing, and False."""
        if not self.fits(client, amount):
            return False
        self.used += amount
        self._has[client] += amount
        return True

    def give_back(self, client: str | None, amount: int = 1) -> None:
        self.used -= amount
        self._has[client] -= amount
        if not self._has[client]:
            del self._has[client]

    def has(self, client: str) -> int:
        return self._has[client]

    def is_at_own_limit(self, client: str) -> bool:
        """Whether it is the bound for each client that keeps this one out."""
        return self._has[client] >= self._per_client


class Pace:
    """How fast a client moves its bytes, measured only while we wait for that client."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._moving = 0
        self._window_s = 0.0
        self._window_bytes = 0.0
        self._waited_s = 0.0

    def begin(self, now: float, moving: int = 0) -> None:
        """We begin to wait until the client has moved ``moving`` bytes, or some number yet unknown."""
        self._since, self._moving = now, moving

    def end(self, now: float, moved: int) -> None:
        """The client has moved ``moved`` bytes since ``begin``."""
        took_s = now - (now if self._since is None else self._since)
        self._since, self._moving = None, 0
        if took_s <= KEEPS_UP_S:
            return
        self._waited_s += took_s
        self._window_s += took_s
        self._window_bytes += moved
        while self._window_s > WINDOW_S:
            self._window_s /= 2
            self._window_bytes /= 2

    def shortfall(self, now: float, bytes_s: float, rise_max: float = inf) -> float:
        """By what factor the client is slower than it must be while others wait; below 1: fast enough.
        The pace that it must have rises to ``rise_max`` times ``bytes_s``.

        The piece that is under way counts as if it ended now: a slow line is not taken for a standstill."""
        under_way_s = 0.0 if self._since is None else now - self._since
        waited_s = self._waited_s + under_way_s
        if waited_s < PATIENCE_S:
            return 0.0
        required = bytes_s * min(rise_max, max(1.0, waited_s / RISE_S))
        moved = max(1.0, self._window_bytes + self._moving)
        return required * (self._window_s + under_way_s) / moved


def slowest(clients: Iterable[tuple[_T, int, Iterable[Pace]]], now: float, bytes_s: float) -> _T | None:
    """The one that gives way: of those slower than they must be, one whose client has the most units, and of
    these the slowest by its factor. None where all are fast enough. Given: each one, the units of its client
    and its paces.

    For a client with one unit the pace rises a little only, and not at all while others have more."""
    asked = list(clients)
    rise_max = 1.0 if any(units > 1 for _, units, _ in asked) else RISE_MAX
    found: _T | None = None
    worst = (0, 1.0)
    for one, units, paces in asked:
        rises = inf if units > 1 else rise_max
        shortfall = max((pace.shortfall(now, bytes_s, rises) for pace in paces), default=0.0)
        if shortfall > 1.0 and (units, shortfall) > worst:
            found, worst = one, (units, shortfall)
    return found
