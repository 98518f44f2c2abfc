"""How many may run now, and how far intervals stretch: window, strategy and load put together.

strategy, time zone ──▶ window ──▶ figure ──┐
what is told of the load ──▶ load ──▶ level ─┴─▶ adaptive ──▶ allowance; every change is a line of the log
"""

from __future__ import annotations

from datetime import datetime, tzinfo

from evermirror.core.pull.adaptive import Adaptive
from evermirror.core.pull.load import LoadSignal, PollLoad, ToldLoad
from evermirror.core.pull.settings import PullSettings
from evermirror.core.pull.strategy import Allowance, by_window, text_of, under_load
from evermirror.core.pull.window import AHEAD_S, Hours, Windows
from evermirror.model.pull import Load, LoadLevel, Strategy

_UNKNOWN = Load(LoadLevel.NORMAL, "")


class Pace:
    """``step`` moves it on; ``allowance`` is what came of that."""

    def __init__(self, strategy: Strategy, zone: tzinfo, settings: PullSettings) -> None:
        self._zone = zone
        self._stretch = settings.stretch
        self._adaptive = Adaptive(settings.step_s)
        self._told: Allowance | None = None  # as people know it
        self.outside = ToldLoad()
        self.polls = PollLoad()
        self._signals: tuple[LoadSignal, ...] = (self.outside, self.polls)
        self.set_strategy(strategy)

    def set_strategy(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._windows = Windows(strategy, self._zone)
        if not strategy.adaptive:
            self._adaptive.reset()

    # Views

    def hours(self, now: float) -> Hours:
        return self._windows.at(now)

    def peak_ends(self, now: float) -> float | None:
        """Of the peak that is now, in which the night may begin or end; None: it never ends."""
        hours = self._windows.at(now)
        while hours.in_peak and hours.until < now + AHEAD_S:
            hours = self._windows.look(hours.until)
        return None if hours.in_peak else hours.since

    def clock(self, at: float) -> str:
        """``18:00`` on the strategy's clock."""
        return datetime.fromtimestamp(at, self._zone).strftime("%H:%M")

    def load(self, now: float) -> Load | None:
        """Whoever knows something first is believed."""
        return next((load for signal in self._signals if (load := signal.at(now)) is not None), None)

    def allowance(self, now: float) -> Allowance:
        allowed = by_window(self.strategy, self._windows.at(now))
        if not self.strategy.adaptive:
            return allowed
        load = self.load(now) or _UNKNOWN
        return under_load(allowed, self._adaptive.limit(allowed.limit), load.level, load.reason)

    def stretched(self, interval_s: float, now: float) -> float:
        """An interval as it is while the load is as it is."""
        return interval_s * self._stretch if self.stretches(now) else interval_s

    def stretches(self, now: float) -> bool:
        load = self.load(now) if self.strategy.adaptive else None
        return load is not None and load.level is LoadLevel.HIGH

    def next_at(self, now: float) -> float | None:
        """When time alone may change something."""
        hours = self._windows.at(now)
        times = [hours.until] if self.strategy.peak_avoidance else []
        if self.strategy.adaptive:
            figure = by_window(self.strategy, hours).limit
            step_at = self._adaptive.next_step_at((self.load(now) or _UNKNOWN).level, figure, now)
            times += [] if step_at is None else [step_at]
        return min(times, default=None)

    # Time

    def step(self, now: float) -> str | None:
        """One step of the adaptive limit, where it is time for one; returns what is to be logged."""
        if self.strategy.adaptive:
            figure = by_window(self.strategy, self._windows.at(now)).limit
            by_polls = self.outside.at(now) is None
            self._adaptive.step((self.load(now) or _UNKNOWN).level, figure, now, halve=by_polls)
        allowed, told = self.allowance(now), self._told
        if told is not None and (told.limit, told.classes) == (allowed.limit, allowed.classes):
            return None
        self._told = allowed
        return None if told is None else f"{text_of(allowed)} (before: up to {told.limit})"
