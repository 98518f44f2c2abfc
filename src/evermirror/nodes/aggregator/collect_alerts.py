"""What people must know of an aggregator now. What nobody calls over is over by itself, in the end."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from evermirror.core.collect.decisions import Alert, AlertKind

log = structlog.get_logger(__name__)

AGED = frozenset({AlertKind.ACCUSED, AlertKind.SPLIT})  # told once each time, and never called over
AGED_S = 24 * 3600.0  # so long are they shown after they were last told
ALERTS_MAX = 100  # the one told the longest ago goes


class Alerts:
    """Fed with what is decided; ``texts`` are those that stand."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._standing: dict[tuple[AlertKind, str], tuple[str, float]] = {}  # the longest ago first

    def take(self, alert: Alert) -> None:
        self._forget_old()
        kind, about = alert.kind, alert.about
        before = self._standing.pop((kind, about), None)
        if alert.over:
            if before is not None:
                log.info("an alert is over", kind=kind.value, about=about)
            return
        if before is None or before[0] != alert.text:
            log.warning(alert.text, kind=kind.value, about=about, alert=True)
        self._standing[kind, about] = alert.text, self._clock()
        if len(self._standing) > ALERTS_MAX:
            aged = (each for each in self._standing if each[0] in AGED)
            del self._standing[next(aged, (kind, about))]

    def texts(self) -> tuple[str, ...]:
        self._forget_old()
        return tuple(text for text, _ in self._standing.values())

    def _forget_old(self) -> None:
        now = self._clock()
        for (kind, about), (_, told_at) in tuple(self._standing.items()):
            if kind in AGED and now - told_at >= AGED_S:
                del self._standing[kind, about]
