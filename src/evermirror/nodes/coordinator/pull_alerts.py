"""What people should know of projects, targets and sources: raised once, and standing until it is over."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from evermirror.core.pull.events import PullAlert
from evermirror.core.pull.outcome import alerts_between, unremarkable
from evermirror.core.pull.settings import PullSettings
from evermirror.model.pull import Level, Project

log = structlog.get_logger(__name__)

STANDING_MAX = 1_000  # kept at most: with more, their number is what matters
SHOWN = 20  # in the overview


class PullAlerts:
    """Those raised since the start and not over, the most serious first, then oldest first."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], PullAlert] = {}

    def told(self, alert: PullAlert) -> None:
        """One is raised, tells more of what stands, or is over. What becomes more serious is told again."""
        about = (alert.kind, alert.about)
        if alert.over:
            if self._standing.pop(about, None) is not None:
                log.info(alert.text, alert_over=alert.kind, about=alert.about)
            return
        stood = self._standing.get(about)
        if stood is None or alert.level.rank > stood.level.rank:
            tell = getattr(log, alert.level.value)
            tell(alert.text, alert=True, kind=alert.kind, about=alert.about)
        if stood is not None or len(self._standing) < STANDING_MAX:
            self._standing[about] = alert

    def raise_again(self, projects: Iterable[Project], settings: PullSettings) -> None:
        """What people were told of these before a stop, and still holds."""
        for project in projects:
            for alert in alerts_between(unremarkable(project), project, settings):
                self.told(alert)

    @property
    def standing(self) -> tuple[PullAlert, ...]:
        return tuple(sorted(self._standing.values(), key=lambda alert: -alert.level.rank))

    def warnings(self) -> tuple[str, ...]:
        """As the overview tells them: with the level, where it is more than a warning."""
        texts = [_shown(alert) for alert in self.standing]
        more = len(texts) - SHOWN
        rest = (f"{more} more alerts of pull mirroring",) if more > 0 else ()
        return (*texts[:SHOWN], *rest)


def _shown(alert: PullAlert) -> str:
    return alert.text if alert.level is Level.WARNING else f"{alert.level.value}: {alert.text}"
