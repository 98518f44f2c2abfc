"""What each channel was told of each alert, and what it could not be told.

told, or refused for good ──▶ nothing more is said, until the alert is more serious than that
given up by age, too many ──▶ missed ──the channel takes a message──▶ open: may be told now
taken back ─────────────────────────────────────────────────────────▶ open
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from evermirror.model.alert import AlertId, Level


@dataclass(slots=True)
class _Channel:
    """``past``: nothing is to be told up to this level."""

    told: dict[AlertId, Level] = field(default_factory=dict)  # or may have been
    past: dict[AlertId, Level] = field(default_factory=dict)
    missed: set[AlertId] = field(default_factory=set)
    open: set[AlertId] = field(default_factory=set)


class Known:
    """By channel and alert. Channels that are no more are remembered: they may come back."""

    __slots__ = ("_channels",)

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    def _of(self, channel: str) -> _Channel:
        return self._channels.setdefault(channel, _Channel())

    # What happens

    def told(self, alert: AlertId, channel: str, level: Level) -> None:
        it = self._of(channel)
        it.told[alert] = _worst(level, it.told.get(alert))
        it.missed.discard(alert)
        it.open.discard(alert)

    def refused(self, alert: AlertId, channel: str, level: Level) -> None:
        """For good: of this level nothing more is said."""
        it = self._of(channel)
        it.past[alert] = _worst(level, it.past.get(alert))

    def missed(self, alert: AlertId, channel: str) -> None:
        self._of(channel).missed.add(alert)
        self._of(channel).open.discard(alert)

    def taken_back(self, alert: AlertId, channel: str) -> None:
        self._of(channel).open.add(alert)

    def is_told(self, alert: AlertId, channel: str) -> None:
        """A notice of it waits now."""
        self._of(channel).missed.discard(alert)
        self._of(channel).open.discard(alert)

    def reopen(self, channel: str, alerts: Iterable[AlertId]) -> None:
        """It takes messages: it may be told of these."""
        it, again = self._of(channel), set(alerts)
        it.missed -= again
        it.open |= again

    def ended(self, alert: AlertId) -> None:
        """Nothing but its end is to be told."""
        for it in self._channels.values():
            it.missed.discard(alert)
            it.open.discard(alert)

    def forget(self, alert: AlertId) -> None:
        self.ended(alert)
        for it in self._channels.values():
            it.told.pop(alert, None)
            it.past.pop(alert, None)

    # What is seen

    def knows(self, alert: AlertId, channel: str) -> bool:
        return alert in self._of(channel).told

    def level(self, alert: AlertId, channel: str) -> Level | None:
        """That it was told."""
        return self._of(channel).told.get(alert)

    def missed_by(self, channel: str) -> frozenset[AlertId]:
        return frozenset(self._of(channel).missed)

    def is_more(self, alert: AlertId, channel: str, level: Level) -> bool:
        """Than it was told, or refused for good."""
        it = self._of(channel)
        past = (it.told.get(alert), it.past.get(alert))
        return level.rank > max(-1 if known is None else known.rank for known in past)

    def lacks(self, alert: AlertId, channel: str, level: Level) -> bool:
        """It was told less, or it may be told now what it could not be told before."""
        it = self._of(channel)
        if alert in it.missed or not (alert in it.told or alert in it.open):
            return False
        return self.is_more(alert, channel, level)


def _worst(level: Level, other: Level | None) -> Level:
    return level if other is None or level.rank > other.rank else other
