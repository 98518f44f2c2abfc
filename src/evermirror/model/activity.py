"""What is remembered of a repo's pushes: three exponentially fading counts (see core/schedule/intensity.py),
and at which hours they come (outlook.py there).

The same numbers are kept by the worker, ride on its reports, and start the next holder of a repo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Rhythm(NamedTuple):
    """Two waves, of a day and of half a day, over ``pushes`` that fade with the slow count.

    Each push adds a 1 turned by its time of day: those of the same hour add up, others cancel out."""

    pushes: float
    day: complex
    half_day: complex


NO_RHYTHM = Rhythm(0.0, 0j, 0j)
_ROUNDING = 1.001  # it was kept in short floats in between


def rhythm_of(pushes: float, waves: Sequence[float]) -> Rhythm | None:
    """Of what was written down or told, four numbers for the waves; None for what cannot have been learnt: no
    wave is higher than all its pushes together."""
    highest = pushes * _ROUNDING
    if not math.isfinite(pushes) or not all(abs(wave) <= highest for wave in waves):
        return None
    return Rhythm(pushes, complex(waves[0], waves[1]), complex(waves[2], waves[3]))


def counts_of(fast: float, middle: float, slow: float) -> tuple[float, float, float]:
    """Of what was written down: less than none is none."""
    return (max(0.0, fast), max(0.0, middle), max(0.0, slow))


@dataclass(frozen=True, slots=True)
class Activity:
    """Fading push counts as of ``as_of`` (UTC seconds); ``last_push_at`` is 0 where none is known."""

    counts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    as_of: float = 0.0
    last_push_at: float = 0.0
    rhythm: Rhythm = NO_RHYTHM


NO_ACTIVITY = Activity()
