"""What pull mirroring does by the clock: progress noted, errors looked through, old history removed.

Each job has a cron expression; one without is not done. A job that the database does not take is left out,
and comes again at its next time.

    scheduler    due projects are started (only where it is set; else as soon as they are due)
    statistics   how far all projects are: a point of the course of the day
    monitoring   what people should know of errors: alerts are raised, and end
    cleanup      tasks and points older than the retention go; also once at the start
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo

import structlog

from evermirror.core.pull.cron import next_time
from evermirror.core.pull.events import PullAlert
from evermirror.core.watch.monitoring import Alert, Facts, Rules, changes, standing
from evermirror.core.watch.progress import overall
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureError
from evermirror.model.figures import ClassProgress
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.pull_alerts import PullAlerts
from evermirror.nodes.coordinator.pulling import Pulling

log = structlog.get_logger(__name__)

SLEEP_MAX_S = 60.0  # the wall clock may be set: the next time is looked up again this often


@dataclass(frozen=True, slots=True)
class JobSettings:
    """When each job is done; None: never."""

    zone: tzinfo
    fresh_bound_s: float
    retention_s: float
    scheduler: str | None = None
    statistics: str | None = None
    monitoring: str | None = None
    cleanup: str | None = None
    rules: Rules = field(default_factory=Rules)


class PullJobs:
    """``run`` beside the rest."""

    def __init__(
        self,
        settings: JobSettings,
        *,
        store: Store,
        pulling: Pulling,
        alerts: PullAlerts,
        syncing: Callable[[], Collection[RepoKey]],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._store = store
        self._pulling = pulling
        self._alerts = alerts
        self._syncing = syncing
        self._clock = clock
        self._stood: tuple[Alert, ...] = ()  # at the last look

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        jobs = (
            (settings.scheduler, self._schedule),
            (settings.statistics, self.note_progress),
            (settings.monitoring, self.look_through),
            (settings.cleanup, self.clean_up),
        )
        if settings.cleanup is not None:
            await self._done(self.clean_up)
        async with asyncio.TaskGroup() as group:
            for expression, job in jobs:
                if expression is not None:
                    group.create_task(self._by_cron(expression, job))

    async def _by_cron(self, expression: str, job: Callable[[], Awaitable[None]]) -> None:
        """A time that was missed, because the machine slept or the job took long, is not made up for."""
        after = self._clock()
        while True:
            if after - self._clock() > SLEEP_MAX_S:
                after = self._clock()  # a clock that was ahead is right again
            at = next_time(expression, after, self._settings.zone)
            if at is None:
                return  # a year that is over
            wait_s = at - self._clock()
            await asyncio.sleep(max(0.0, min(wait_s, SLEEP_MAX_S)))
            if self._clock() >= at:
                await self._done(job)
                after = max(at, self._clock())

    async def _done(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except FailureError as error:
            log.warning(
                "a job of pull mirroring was left out", job=job.__name__, reason=error.failure.message
            )

    # The jobs

    async def _schedule(self) -> None:
        self._pulling.wake()

    async def note_progress(self) -> None:
        now = self._clock()
        await self._store.note_progress(now, await self._overall(now))

    async def look_through(self) -> None:
        """What stands is told once; what stood and does no longer, is over."""
        now, rules = self._clock(), self._settings.rules
        failing = [p for p in self._pulling.projects() if p.failures >= rules.failures_in_a_row]
        errors = await self._store.error_statistics(now - rules.window_s, now)
        stands = standing(Facts(failing, errors, await self._overall(now)), rules)
        for alert in _told(self._stood, stands):
            self._alerts.told(alert)
        self._stood = stands

    async def clean_up(self) -> None:
        removed = await self._store.cleanup_tasks(self._clock() - self._settings.retention_s)
        if removed:
            log.info("old tasks removed", tasks=removed)

    async def _overall(self, now: float) -> ClassProgress:
        classes = await self._store.pull_progress(now, self._settings.fresh_bound_s, self._syncing())
        return overall(classes.values())


def _told(before: tuple[Alert, ...], after: tuple[Alert, ...]) -> Iterator[PullAlert]:
    found = changes(before, after)
    for alert in found.over:
        yield PullAlert(alert.kind, alert.about, f"no longer: {alert.text}", over=True)
    for alert in found.raised:
        yield PullAlert(alert.kind, alert.about, alert.text, level=alert.level)
