"""The source counts as overloaded when it is, and hardly ever when it is not."""

from __future__ import annotations

from evermirror.model.pull import LoadLevel
from evermirror.sim.pull.truth import Broken, Truth

OVERLOADED = 0.8  # others keep so much of it busy
NOTICED_S = 1200.0  # that it may take to notice either
WRONG_SHARE = 0.05  # of all minutes
MISSED_SHARE = 0.5  # of the minutes of an overload, where only our own polls tell


class Alarms:
    """Asked every minute."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._since = 0.0  # the source is as it is now
        self._was = False
        self.minutes = self.wrong = self.overloaded = self.missed = 0

    def tick(self, now: float, excused: bool) -> None:
        """``excused``: time-outs tell nothing about its load."""
        truth = self._truth
        is_so = truth.source.others >= OVERLOADED
        if is_so is not self._was or excused or truth.away or now < truth.booted_at + NOTICED_S:
            self._since, self._was = now, is_so
        if now < self._since + NOTICED_S:
            return
        believed = truth.load is LoadLevel.HIGH
        self.minutes += 1
        self.wrong += believed and not is_so
        self.overloaded += is_so
        self.missed += is_so and truth.load is not None and not believed

    def settled(self) -> None:
        if self.wrong > WRONG_SHARE * self.minutes:
            raise Broken(
                f"in {self.wrong} of {self.minutes} minutes the source seemed overloaded and was not"
            )
        if self.missed > MISSED_SHARE * self.overloaded:
            raise Broken(f"{self.missed} of {self.overloaded} minutes of overload were not noticed")
