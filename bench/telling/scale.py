"""Axes: where a value lies, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TICKS_MAX = 7
FEW_DECADES = 3  # ticks; where there would be fewer, 1, 2, 5 are written and not 1, 10, 100 alone


@dataclass(frozen=True, slots=True)
class Scale:
    """From values, ``low`` to ``high``, to places in ``[0, 1]``; ``ticks`` are those that are written."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool

    def place(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def scale_of(values: Sequence[float], log: bool = False) -> Scale:
    """An axis around these values; linear where a logarithmic one cannot show what is not above zero."""
    return _log_scale(values) if log and min(values) > 0 else _linear_scale(values)


def _linear_scale(values: Sequence[float]) -> Scale:
    low, high = min(0.0, *values), max(0.0, *values)
    if high == low:
        high = low + 1.0
    step = _nice_step((high - low) / (TICKS_MAX - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(n * step, 12) for n in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks, log=False)


def _nice_step(least: float) -> float:
    decade = 10.0 ** math.floor(math.log10(least))
    return next(decade * m for m in (1, 2, 5, 10) if decade * m >= least * (1 - 1e-9))


def _log_scale(values: Sequence[float]) -> Scale:
    least, most = min(values), max(values)
    first, last = math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(most) - 1e-9)
    steps = [m * 10.0**e for e in range(first, last + 2) for m in (1, 2, 5)]
    low = max(s for s in steps if s <= least * (1 + 1e-9))
    high = min(s for s in steps if s >= most * (1 - 1e-9) and s > low)
    decades = [10.0**e for e in range(first, last + 1) if low * (1 - 1e-9) <= 10.0**e <= high * (1 + 1e-9)]
    if len(decades) < FEW_DECADES:
        return Scale(low, high, tuple(s for s in steps if low <= s <= high), log=True)
    every = math.ceil((last - first) / (TICKS_MAX - 1))
    return Scale(low, high, tuple(decades[::every]), log=True)


def tick_text(value: float) -> str:
    """Short: 20k, 1.5M, 0.02."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (1 - 1e-9):
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
