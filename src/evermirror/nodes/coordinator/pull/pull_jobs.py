"""What pull mirroring does by the clock: progress noted, errors looked through, old history removed.

Each job has a cron expression; one without is not done. A job that the database does not take is left out,
and comes again at its next time.

    scheduler    due projects are started (only where it is set; else as soon as they are due)
    statistics   how far all projects are: a point of the course of the day
    monitoring   what people should know of errors, and of what guards hold back; also once at the start
    cleanup      tasks and points older than the retention go, entries of the audit log older than theirs,
                 and tokens revoked long ago; also once at the start
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import islice

import structlog

from evermirror.core.pull.cron import next_time
from evermirror.core.pull.outcome import is_noted, standing_alerts
from evermirror.core.watch.held import held_alert
from evermirror.core.watch.kinds import MONITORING_KINDS, PROJECT_KINDS, REPO_KINDS
from evermirror.core.watch.monitoring import Facts, Rules, standing
from evermirror.core.watch.progress import is_failed, overall
from evermirror.edge.store.store import Store
from evermirror.model.alert import Alert
from evermirror.model.failure import FailureError
from evermirror.model.figures import PROJECTS_NAMED, ClassProgress, Pressure
from evermirror.model.repo import Priority, RepoKey, RepoRecord, RepoStatus
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.service import RepoFilter

log = structlog.get_logger(__name__)

HELD_PAGE = 500  # repos that a guard holds, asked for at once
HELD_MAX = 10_000  # of those, told of one by one: beyond, no end of any is told
REVOKED_KEPT_S = 90 * 86_400.0  # a revoked token is listed for so long; the audit log names it afterwards
SLEEP_MAX_S = 60.0  # the wall clock may be set: the next time is looked up again this often


@dataclass(frozen=True, slots=True)
class JobSettings:
    """When each job is done; None: never."""

    zone: tzinfo
    retention_s: float
    scheduler: str | None = None
    statistics: str | None = None
    monitoring: str | None = None
    cleanup: str | None = None
    rules: Rules = field(default_factory=Rules)
    audit_retention_s: float | None = None  # None: for ever


class PullJobs:
    """``run`` beside the rest."""

    def __init__(
        self,
        settings: JobSettings,
        *,
        store: Store,
        pulling: Pulling,
        alerts: AlertSink,
        syncing: Callable[[], Collection[RepoKey]],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._store = store
        self._pulling = pulling
        self._alerts = alerts
        self._syncing = syncing
        self._clock = clock
        self._unnoted: Pressure | None = None  # what the database did not take

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        at_start = ((settings.monitoring, self.look_through), (settings.cleanup, self.clean_up))
        jobs = ((settings.scheduler, self._schedule), (settings.statistics, self.note_progress), *at_start)
        for expression, job in at_start:
            if expression is not None:
                await self._done(job)
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
        except Exception:  # such as figures that the database refuses: the other jobs go on
            log.exception("a job of pull mirroring failed and was left out", job=job.__name__)

    # The jobs

    async def _schedule(self) -> None:
        self._pulling.wake()

    async def note_progress(self) -> None:
        now = self._clock()
        counted = await self._classes(now)
        told = self._pulling.totals().classes
        classes = {
            priority: replace(progress, equal=told[priority].equal, compared=told[priority].with_targets)
            for priority, progress in counted.items()
        }
        self._unnoted = self._pulling.pressure().after(self._unnoted)
        await self._store.note_progress(now, overall(classes.values()), classes, self._unnoted)
        self._unnoted = None

    async def look_through(self) -> None:
        """All that stands is told: what stood and does no longer, is over."""
        now, rules = self._clock(), self._settings.rules
        errors = await self._store.error_statistics(now - rules.window_s, now)
        progress = overall((await self._classes(now)).values())
        failing = [p for p in self._pulling.projects() if p.failures >= rules.failures_in_a_row]
        failed = islice((p.name for p in self._pulling.projects() if is_failed(p)), PROJECTS_NAMED)
        affected = {kind: [self._name_of(key) for key in one.projects] for kind, one in errors.items()}
        facts = Facts(failing, errors, progress, list(failed), affected)
        stood = {alert.identity for alert in self._alerts.stands(MONITORING_KINDS)}
        alerts = (*standing(facts, rules, stood), *self._of_states())
        serious_first = sorted(alerts, key=lambda alert: -alert.level.rank)
        self._alerts.stand(MONITORING_KINDS | PROJECT_KINDS, serious_first)
        await self._tell_held()

    def _name_of(self, key: RepoKey) -> str:
        project = self._pulling.project(key)
        return key if project is None else project.name

    def _of_states(self) -> Iterator[Alert]:
        """What follows from how projects and targets are. It was told when it became so; where there was no
        room for it then, it is told now."""
        noted = (p for p in self._pulling.projects() if p.paused or any(map(is_noted, p.targets)))
        for alert in standing_alerts(noted, self._pulling.machine.settings):
            if alert.kind not in MONITORING_KINDS:
                yield alert

    async def _tell_held(self) -> None:
        held, all_of_them = await self._held()
        alerts = {alert.identity: alert for alert in map(held_alert, held)}
        if not all_of_them:  # what stood and was not read may still be held
            alerts = {alert.identity: alert for alert in self._alerts.stands(REPO_KINDS)} | alerts
        self._alerts.stand(REPO_KINDS, alerts.values())

    async def _held(self) -> tuple[list[RepoRecord], bool]:
        """With whether there are no more."""
        held: list[RepoRecord] = []
        while len(held) < HELD_MAX:
            after = held[-1].key if held else None
            which = RepoFilter(status=RepoStatus.HELD, after=after, limit=HELD_PAGE)
            page = await self._store.list_repos(which)
            held += page
            if len(page) < HELD_PAGE:
                return held, True
        return held, False

    async def clean_up(self) -> None:
        removed = await self._store.cleanup_tasks(self._clock() - self._settings.retention_s)
        if removed:
            log.info("old tasks removed", tasks=removed)
        now, audit_kept_s = self._clock(), self._settings.audit_retention_s
        tokens = await self._store.cleanup_tokens(now - REVOKED_KEPT_S)
        entries = await self._store.cleanup_audit(now - audit_kept_s) if audit_kept_s is not None else 0
        if tokens or entries:
            log.info("old records removed", revoked_tokens=tokens, audit_entries=entries)

    async def _classes(self, now: float) -> Mapping[Priority, ClassProgress]:
        return await self._store.pull_progress(now, self._syncing())
