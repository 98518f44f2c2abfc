"""How many pushes to expect until the next look: the intensity now, carried forward.

Three things happen in the meantime, and over a long gap they matter more than what holds now:

- **It fades,** each count with its own time constant.
- **It is renewed.** A push draws others after it, which nobody has seen yet. Expected intensities x_k follow
  dx_k/dt = -x_k / TAU_k + SHARE_k / TAU_k * (sum of x), whose solution is again three exponentials: one for
  each root r of  sum of SHARE_k / (1 - r * TAU_k) = 1. As the shares sum to 1, the slowest root is 0: what is
  expected settles at a level, and does not die out.
- **Hours pass.** People sleep: the rhythm is 1 on average over a day, and as much above or below as the hours
  of past pushes say, and as there are pushes to believe.
"""

from __future__ import annotations

import math

from evermirror.core.schedule.intensity import DAY_S, MU0, SHARE, TAU_S, intensity
from evermirror.model.activity import Activity, Rhythm

# So many pushes spread evenly over the day are believed beforehand: about one for every hour.
DOUBT = 20.0
# Nobody sleeps so well that less than this part of the usual pushes is expected.
HOURS_LEAST = 0.2

_exp, _sin, _cos = math.exp, math.sin, math.cos
_TURN = 2.0 * math.pi / DAY_S
_HALF_TURN = math.pi / DAY_S


def expected(activity: Activity, now: float, ahead_s: float) -> float:
    """Pushes per second, on average over the next ``ahead_s``; the intensity now where that is 0."""
    if ahead_s <= 0.0:
        return intensity(activity, now)
    n0, n1, n2 = activity.counts
    if n2 == 0.0:
        return MU0
    age = max(0.0, now - activity.as_of)
    n0 *= _exp(-age / _TAU0)
    n1 *= _exp(-age / _TAU1)
    n2 *= _exp(-age / _TAU2)
    fast, middle = ahead_s * _FAST, ahead_s * _MIDDLE
    rate = (
        MU0
        + (_F0 * n0 + _F1 * n1 + _F2 * n2) * (1.0 - _exp(-fast)) / fast
        + (_M0 * n0 + _M1 * n1 + _M2 * n2) * (1.0 - _exp(-middle)) / middle
        + (_L0 * n0 + _L1 * n1 + _L2 * n2)
    )
    return rate * _hours(activity.rhythm, now, ahead_s)


def _hours(rhythm: Rhythm, now: float, ahead_s: float) -> float:
    """The rhythm's average over the time ahead: its waves in the middle of that, flattened by its length."""
    pushes, day, half_day = rhythm
    if pushes == 0.0:
        return 1.0
    half = ahead_s * _HALF_TURN
    angle = (now + 0.5 * ahead_s) * _TURN
    middle = complex(_cos(angle), _sin(angle))
    waves = (day + half_day * middle * _cos(half)) * middle
    average = 1.0 + 2.0 * waves.real * _sin(half) / (half * (pushes + DOUBT))
    return average if average > HOURS_LEAST else HOURS_LEAST


def _root(low: float, high: float) -> float:
    """Where the sum in the module's text is 1, between two of its poles, over which it rises."""
    for _ in range(200):
        between = 0.5 * (low + high)
        if sum(c / (1.0 - between * tau) for c, tau in zip(SHARE, TAU_S, strict=True)) < 1.0:
            low = between
        else:
            high = between
    return 0.5 * (low + high)


def _parts(root: float) -> tuple[float, ...]:
    """What a push of each count adds to the exponential of this root."""
    slope = sum(c * tau / (1.0 - root * tau) ** 2 for c, tau in zip(SHARE, TAU_S, strict=True))
    return tuple(c / (1.0 - root * tau) / slope for c, tau in zip(SHARE, TAU_S, strict=True))


_TAU0, _TAU1, _TAU2 = TAU_S
_FAST, _MIDDLE = _root(1.0 / _TAU1, 1.0 / _TAU0), _root(1.0 / _TAU2, 1.0 / _TAU1)
_F0, _F1, _F2 = _parts(_FAST)
_M0, _M1, _M2 = _parts(_MIDDLE)
_L0, _L1, _L2 = _parts(0.0)
