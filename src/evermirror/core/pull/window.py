"""Hours of the day in a time zone: whether it is peak or night now, and until when that holds.

          peak 9–18                        night 22–6
    ──┬────────────────┬──────────────┬──────────────────────┬──▶ wall clock
      9                18             22         0           6

Rules
- A window goes from its start (inclusive) to its end (exclusive). It may cross midnight; one with equal
  ends is empty.
- It is the clock on the wall that counts: where clocks change, a window is an hour shorter or longer that
  day.
- Offsets of time zones, and the times at which they change, are whole quarters of an hour. So the answer
  can only change at a quarter of an hour, and each of them is looked at until it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from math import floor, inf

from evermirror.model.pull import Strategy

QUARTER_S = 900.0
AHEAD_S = 3 * 86_400.0  # a window that did not open or close by then never does


@dataclass(frozen=True, slots=True)
class Hours:
    """What holds from ``since`` until ``until`` (exclusive)."""

    in_peak: bool
    at_night: bool
    since: float
    until: float


def is_within(start: int, end: int, hour: int) -> bool:
    """Whether an hour of the day belongs to the window."""
    if start <= end:
        return start <= hour < end
    return hour >= start or hour < end


def hours_of(start: int, end: int) -> int:
    """How many hours of the day belong to the window."""
    return sum(is_within(start, end, hour) for hour in range(24))


class Windows:
    """A strategy's windows in a time zone. Without peak avoidance there are none."""

    __slots__ = ("_known", "_strategy", "_zone")

    def __init__(self, strategy: Strategy, zone: tzinfo) -> None:
        self._strategy = strategy
        self._zone = zone
        self._known: Hours | None = None

    def at(self, now: float) -> Hours:
        known = self._known
        if known is None or not known.since <= now < known.until:
            known = self._known = self.look(now)
        return known

    def look(self, now: float) -> Hours:
        """``at``, and nothing is remembered."""
        if not self._strategy.peak_avoidance:
            return Hours(False, False, -inf, inf)
        held = self._held(now)
        quarter = floor(now / QUARTER_S)
        for ahead in range(1, int(AHEAD_S / QUARTER_S) + 1):
            at = (quarter + ahead) * QUARTER_S
            if self._held(at) != held:
                return Hours(*held, now, at)
        return Hours(*held, now, now + AHEAD_S)

    def _held(self, at: float) -> tuple[bool, bool]:
        strategy, hour = self._strategy, datetime.fromtimestamp(at, self._zone).hour
        in_peak = is_within(strategy.peak_start, strategy.peak_end, hour)
        night = strategy.night_start, strategy.night_end
        at_night = night[0] is not None and night[1] is not None and is_within(night[0], night[1], hour)
        return in_peak, at_night
