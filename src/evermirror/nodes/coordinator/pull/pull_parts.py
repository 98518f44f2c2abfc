"""Pull mirroring made from settings: the machine and its shell, the jobs, and what people may ask."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.config import Config
from evermirror.config.pull_section import ErrorMonitoring, ProgressStatistics, PullScheduler, TaskCleanup
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.core.watch.monitoring import Rules
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.model.pull import MINUTE, RetryPolicy
from evermirror.model.repo import RepoKey
from evermirror.nodes.basics import url_rules
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.pull.pull_admin import PullAdmin, PullAdminSettings
from evermirror.nodes.coordinator.pull.pull_jobs import JobSettings, PullJobs
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.zone import name_of, zone_of

DAY_S = 86_400.0


async def make_pulling(
    config: Config,
    store: Store,
    recorder: Recorder,
    coordinator: Coordinator,
    alerts: AlertSink,
    clock: Callable[[], float],
) -> tuple[Pulling, PullJobs, PullAdmin]:
    """With the projects that the store has, before anything is told to the coordinator."""
    section, jobs_set, retry = config.pull, config.scheduled_jobs, config.retry_policy
    zone = zone_of(section.time_zone)
    settings = PullSettings(
        pause_after=section.pause_after,
        demote_after=section.demote_after,
        stretch=section.stretch,
        slow_s=fresh_bound_s(config),
        by_cron=not jobs_set.pull_scheduler.enabled or jobs_set.pull_scheduler.cron is not None,
        retry=RetryPolicy(retry.max_retries, retry.retry_delay * MINUTE, retry.backoff_multiplier),
    )
    pulling = Pulling(
        PullMachine(settings, zone),
        store=store,
        recorder=recorder,
        tasks=coordinator.tasks,
        alerts=alerts,
        clock=clock,
    )
    await pulling.load()
    coordinator.pull_with(pulling)

    def syncing() -> set[RepoKey]:
        running = (run.key for status in coordinator.statuses.values() for run in status.running)
        return pulling.syncing().union(running)

    jobs = PullJobs(
        JobSettings(
            zone,
            jobs_set.task_cleanup.retention_days * DAY_S,
            scheduler=_cron(jobs_set.pull_scheduler),
            statistics=_cron(jobs_set.progress_statistics),
            monitoring=_cron(jobs_set.error_monitoring),
            cleanup=_cron(jobs_set.task_cleanup),
            rules=Rules(failures_in_a_row=section.demote_after),  # as the machine tells of them
            audit_retention_s=config.auth.audit_retention,
        ),
        store=store,
        pulling=pulling,
        alerts=alerts,
        syncing=syncing,
        clock=clock,
    )
    admin = PullAdmin(
        PullAdminSettings(url_rules(config), frozenset(config.credentials), name_of(zone), zone),
        store=store,
        coordinator=coordinator,
        pulling=pulling,
        syncing=syncing,
        clock=clock,
    )
    return pulling, jobs, admin


def _cron(job: PullScheduler | ProgressStatistics | ErrorMonitoring | TaskCleanup) -> str | None:
    return job.cron if job.enabled else None


def fresh_bound_s(config: Config) -> float:
    """Looked at longer ago is not fresh."""
    return config.schedule.max_gap or DAY_S
