"""How often a repo deserves a look: named policies, each a stride (or an interval) from what is known of it.

Two ways to be scheduled, and every policy chooses one per repo:

- by *stride*: the repo with the smallest priority is polled next, then its priority grows by its stride; so
  its share of the polls is 1 / stride, whatever the budget is;
- by *interval*: the repo is due a fixed time after its last poll.

| policy     | stride                                                    | interval                        |
|------------|-----------------------------------------------------------|---------------------------------|
| `adaptive` | (1 + failures) / sqrt(weight * expected), capped          | only where set on the repo      |
| `cbrt-age` | cbrt(age of last commit) / sqrt(weight), not capped       | only where set on the repo      |
| `fixed`    | -                                                         | the repo's, else its class's    |

`expected` is what outlook.py says of the gap that the intensity now would come to. A stride is a place in a
queue, so that takes the pace: how long a stride of 1 lasts. Where nobody knows it, the intensity counts.

A repo whose hooks have proved reliable is told of by them: its stride, capped, is HOOKED_RARER times as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from evermirror.core.schedule.intensity import intensity
from evermirror.core.schedule.outlook import expected
from evermirror.errors import UsageError
from evermirror.model.activity import Activity
from evermirror.model.repo import Priority, RepoSpec

# Under `adaptive` no repo waits longer than this many times the average gap, however silent it is.
GAP_CAP = 10.0
# A repo whose hooks are reliable is polled this many times less: only to notice that they fell silent.
HOOKED_RARER = 8.0
# The seeds' step for a repo without a usable commit time: as if its last commit were 30 days (s) old.
STEP_SECONDS = 2_592_000.0
# What a class is polled at under `fixed` where the repo itself has no interval (s).
CLASS_INTERVAL_S: Mapping[Priority, float] = MappingProxyType(
    {Priority.CRITICAL: 600.0, Priority.HIGH: 1800.0, Priority.NORMAL: 7200.0, Priority.LOW: 21600.0}
)

_sqrt = math.sqrt
_STEP = math.cbrt(STEP_SECONDS)


class Policy(Protocol):
    """What the scheduler needs of a policy; a new one is a class like these and a line in ``POLICIES``."""

    gap_cap: float | None  # largest stride as a multiple of the average one; None: not capped

    def stride(
        self, weight: float, failures: int, activity: Activity, now: float, pace_s: float = 0.0
    ) -> float:
        """How much the priority grows by a poll; positive, before the cap.

        ``pace_s`` is how long a stride of 1 lasts, 0 where that is not known."""
        ...

    def interval_s(self, spec: RepoSpec) -> float | None:
        """The fixed interval of this repo; None where strides decide."""
        ...


class Adaptive:
    """Least mean delay over all pushes: the poll rate goes as the root of the pushes expected, weighted."""

    __slots__ = ()
    gap_cap: float | None = GAP_CAP

    def stride(
        self, weight: float, failures: int, activity: Activity, now: float, pace_s: float = 0.0
    ) -> float:
        stride = 1.0 / _sqrt(weight * intensity(activity, now))
        if pace_s > 0.0:
            stride = 1.0 / _sqrt(weight * expected(activity, now, stride * pace_s))
        return (1 + failures) * stride

    def interval_s(self, spec: RepoSpec) -> float | None:
        return spec.interval_s


class CbrtAge:
    """The seeds' formula to the letter; the class weight divides the step as it does under `adaptive`."""

    __slots__ = ()
    gap_cap: float | None = None

    def stride(
        self, weight: float, failures: int, activity: Activity, now: float, pace_s: float = 0.0
    ) -> float:
        last_commit_time = activity.last_push_at
        if last_commit_time == 0:  # not cloned, or never committed to
            step = (failures + 1) * _STEP
        else:
            interval = now - last_commit_time
            step = math.cbrt(interval) if interval > 0 else (failures + 1) * _STEP
        return step / _sqrt(weight)

    def interval_s(self, spec: RepoSpec) -> float | None:
        return spec.interval_s


class Fixed:
    """A configured interval; strides are only asked for by a repo that has none, which cannot be."""

    __slots__ = ()
    gap_cap: float | None = None

    def stride(
        self, weight: float, failures: int, activity: Activity, now: float, pace_s: float = 0.0
    ) -> float:
        return 1.0 / _sqrt(weight)

    def interval_s(self, spec: RepoSpec) -> float | None:
        return spec.interval_s if spec.interval_s is not None else CLASS_INTERVAL_S[spec.priority]


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {"adaptive": Adaptive(), "cbrt-age": CbrtAge(), "fixed": Fixed()}
)


def policy_named(name: str, policies: Mapping[str, Policy] = POLICIES) -> Policy:
    """The policy of that name."""
    try:
        return policies[name]
    except KeyError:
        raise UsageError(f"no scheduling policy {name!r}", hint=f"One of: {', '.join(policies)}") from None
