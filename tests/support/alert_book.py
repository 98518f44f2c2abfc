"""Alerts without a database and channels: what is told is in the book at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import AlertSettings, RestoredAlerts, Stand, Told
from evermirror.model.alert import Alert


class BookAlerts:
    """An ``AlertSink``. ``standing``: the most serious first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.book = AlertBook(AlertSettings(), RestoredAlerts(), clock())

    def told(self, alert: Alert) -> None:
        self.book.handle(Told(alert), self._clock())

    def stand(self, kinds: frozenset[str], alerts: Iterable[Alert]) -> None:
        self.book.handle(Stand(kinds, tuple(alerts)), self._clock())

    def stands(self, kinds: frozenset[str]) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.standing if alert.kind in kinds)

    @property
    def standing(self) -> tuple[Alert, ...]:
        alerts = (record.alert for record in self.book.standing())
        return tuple(sorted(alerts, key=lambda alert: -alert.level.rank))

    def warnings(self) -> tuple[str, ...]:
        return tuple(alert.text for alert in self.standing)
