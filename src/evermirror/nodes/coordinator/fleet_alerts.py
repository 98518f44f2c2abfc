"""What people should know of the fleet: raised, and standing until it is over."""

from __future__ import annotations

import structlog

from evermirror.core.fleet.decisions import Alert

log = structlog.get_logger(__name__)

ALERTS_MAX = 100  # standing ones that are shown


class FleetAlerts:
    """Those raised since the start and not over."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], Alert] = {}

    def told(self, alert: Alert) -> None:
        about = (alert.kind.value, alert.about)
        if alert.over:
            self._standing.pop(about, None)
            log.info(alert.text, alert_over=alert.kind.value, about=alert.about)
            return
        log.warning(alert.text, alert=True, kind=alert.kind.value, about=alert.about)
        if len(self._standing) < ALERTS_MAX:
            self._standing[about] = alert

    @property
    def standing(self) -> tuple[Alert, ...]:
        return tuple(self._standing.values())
