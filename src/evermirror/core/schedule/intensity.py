"""How busy a repo is now: its push intensity from three exponentially fading counts.

Pushes come in bursts, so the chance of a push now depends on the last hours, days and months at once:

    for each push time e:  n_k = n_k * exp(-(e - t) / TAU_k) + 1 ;  t = e
    intensity(now) = MU0 + sum of  C_k * n_k / TAU_k * exp(-(now - t) / TAU_k)

Beside them the hours at which pushes come are learnt; outlook.py says what both come to.

Push times come from commit times, which anyone can forge: they are clamped to (last look, now], sorted,
merged within a minute (a push of many commits is one push), and bounded in number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from evermirror.model.activity import Activity, Rhythm

HOUR_S = 3600.0
DAY_S = 86400.0
YEAR_S = 365.25 * DAY_S

# Time constants (s) of a working session, a working week and a project's life, and their shares of the pushes
# to come: from a study of public histories; `evermirror simulate polling` shows what they come to on yours.
TAU_S = (1.5 * HOUR_S, 3 * DAY_S, 90 * DAY_S)
SHARE = (0.46, 0.21, 0.33)
# What is expected of a repo that was never seen to change: 0.3 pushes a year.
MU0 = 0.3 / YEAR_S
# Pushes this close (s) are one: histories are kept to the minute.
MERGE_S = 60.0
# No more than this many push times are learnt at once: older ones have faded, and a forged log is cut short.
PUSHES_MAX = 10_000

_TAU0, _TAU1, _TAU2 = TAU_S
_GAIN0, _GAIN1, _GAIN2 = (share / tau for share, tau in zip(SHARE, TAU_S, strict=True))
_exp, _sin, _cos = math.exp, math.sin, math.cos
_TURN = 2.0 * math.pi / DAY_S


def learn(activity: Activity, push_times: Iterable[float], *, after: float, now: float) -> Activity:
    """What is known after pushes at ``push_times``, all of which happened in (``after``, ``now``]."""
    floor = max(after, activity.as_of)
    # Where the clock was set back, what was learnt stays, and nothing is learnt from a time that is not.
    found = _plausible(push_times, floor, now) if floor <= now else []
    if not found:
        return activity
    n0, n1, n2 = activity.counts
    as_of, last = activity.as_of, activity.last_push_at
    pushes, day, half_day = activity.rhythm
    for e in found:
        if last and e // MERGE_S <= last // MERGE_S:
            last = max(last, e)
            continue
        age = e - as_of
        n0 = n0 * _exp(-age / _TAU0) + 1.0
        n1 = n1 * _exp(-age / _TAU1) + 1.0
        kept = _exp(-age / _TAU2)
        n2 = n2 * kept + 1.0
        turned = complex(_cos(e * _TURN), -_sin(e * _TURN))
        pushes, day, half_day = pushes * kept + 1.0, day * kept + turned, half_day * kept + turned * turned
        as_of = last = e
    return Activity((n0, n1, n2), as_of, last, Rhythm(pushes, day, half_day))


def intensity(activity: Activity, now: float) -> float:
    """Pushes per second to be expected now."""
    n0, n1, n2 = activity.counts
    if n2 == 0.0:
        return MU0
    age = now - activity.as_of
    if age < 0.0:
        age = 0.0
    return (
        MU0
        + _GAIN0 * n0 * _exp(-age / _TAU0)
        + _GAIN1 * n1 * _exp(-age / _TAU1)
        + _GAIN2 * n2 * _exp(-age / _TAU2)
    )


def _plausible(push_times: Iterable[float], after: float, now: float) -> list[float]:
    """The newest of the times, clamped and ascending; what is no number at all is dropped."""
    clamped = (min(max(e, after), now) for e in push_times if math.isfinite(e))
    return heapq.nlargest(PUSHES_MAX, clamped)[::-1]
