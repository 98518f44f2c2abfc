"""How many copies each worker may get: the load bound, as water finds its level.

Every worker has a share in proportion to its weight. Some cannot take theirs: a hard capacity is smaller, or
there are fewer repos than that (a worker holds at most one copy of each), or the worker takes nothing more.
The others' level then rises until everything has its place, and the bound is counted from that level:

        │      bound ┄┄┄┄┄┄┄┄┄┄┄   beyond it copies move away
        │    placing ┄┄┄┄┄┄┄┄┄┄┄   nothing is placed beyond it; a little below the bound, so that one join
        │      level ▔▔▔▔▔▔▔▔▔▔▔   or loss does not push dozens of workers over
        │   ███ ███ ▄▄▄ ███ ▂▂▂    load per weight; the low ones are at their ceiling
        └─────────────────────────
Repos for trusted workers only may need a higher level there; then trusted and others have a level each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PLACING_SHARE = 0.75  # of the way from the level to the bound: 1.075 for a bound of 1.1
_ROUNDING = 1e-6  # copies; a product such as 1.1 × 1,000 must not be 1,101


@dataclass(frozen=True, slots=True)
class Sites:
    """The workers, in arrays by id. ``elsewhere``: copies of repos that are not placed now; ``others``: how
    many such repos there are."""

    member: NDArray[np.bool_]  # keeps what it has
    takes: NDArray[np.bool_]  # may be given more
    trusted: NDArray[np.bool_]
    weight: NDArray[np.float64]  # nominal
    capacity: NDArray[np.int64]  # copies at most, whatever the bound; very large if there is no such limit
    elsewhere: NDArray[np.int64] | None = None
    others: int = 0

    @property
    def in_part(self) -> bool:
        """Not all repos are placed now: holes are filled, nobody is relieved."""
        return self.elsewhere is not None and bool(self.elsewhere.any())


@dataclass(frozen=True, slots=True)
class Demand:
    """What is to be placed: repos and wanted copies, and those of them that need trusted workers."""

    repos: int
    copies: int
    trusted_repos: int
    trusted_copies: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Copies by worker id."""

    level: NDArray[np.float64]  # the fair share
    placing: NDArray[np.int64]
    most: NDArray[np.int64]

    def placing_part(self, share: float) -> NDArray[np.int64]:
        """The placing bound for this share of all copies."""
        part: NDArray[np.int64] = np.ceil(self.placing * share - _ROUNDING).astype(np.int64)
        return part


def water_level(copies: float, weight: NDArray[np.float64], ceiling: NDArray[np.int64]) -> float:
    """The L with Σ min(ceiling, L × weight) = copies; where that cannot be, all are at their ceiling."""
    some = weight > 0
    weight, ceiling = weight[some], ceiling[some].astype(np.float64)
    if copies <= 0 or not len(weight):
        return 0.0
    if ceiling.sum() <= copies:
        return float((ceiling / weight).max())
    order = np.argsort(ceiling / weight, kind="stable")
    weight, ceiling = weight[order], ceiling[order]
    drowned = np.cumsum(ceiling) - ceiling  # copies of those with a lower ceiling
    levels = (copies - drowned) / np.cumsum(weight[::-1])[::-1]
    return float(levels[np.argmax(levels <= ceiling / weight)])


def _levels(sites: Sites, load: NDArray[np.int64], demand: Demand, bound: float) -> NDArray[np.float64]:
    elsewhere = np.zeros_like(load) if sites.elsewhere is None else sites.elsewhere
    more_repos = max(sites.others, int(elsewhere.max(initial=0)))

    def of(copies: int, repos: int, who: NDArray[np.bool_]) -> float:
        room = np.where(
            sites.takes, np.minimum(sites.capacity, repos + more_repos), np.minimum(sites.capacity, load)
        )
        return water_level(copies, np.where(who & sites.member, sites.weight, 0.0), room)

    copies = demand.copies + int(elsewhere.sum())
    level = of(copies, demand.repos, sites.member)
    trusted = demand.trusted_copies + int(elsewhere[sites.trusted].sum())
    trusted_level = of(trusted, demand.trusted_repos, sites.trusted)
    # Whether copies elsewhere need trust is not known: then only a clear difference shows that they do.
    apart = trusted_level > (bound * level if sites.in_part else level)
    if not apart:
        return level * sites.weight
    others_level = of(copies - trusted, demand.repos, ~sites.trusted)
    return np.where(sites.trusted, trusted_level, others_level) * sites.weight


def bounds_of(sites: Sites, load: NDArray[np.int64], demand: Demand, bound: float) -> Bounds:
    """``load`` is what each worker has now, with what is elsewhere."""
    if bound < 1.0:
        raise ValueError(f"a load bound of {bound} is below the mean")
    level = _levels(sites, load, demand, bound)

    def capped(factor: float) -> NDArray[np.int64]:
        return np.minimum(np.ceil(factor * level - _ROUNDING), sites.capacity).astype(np.int64)

    return Bounds(level, capped(1.0 + (bound - 1.0) * PLACING_SHARE), capped(bound))
