"""Settings of pull mirroring: what the strategy, which people change by API, does not hold."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from evermirror.config.section import Section
from evermirror.config.values import (
    Count,
    Cron,
    Duration,
    Flag,
    Kind,
    MaybeCron,
    MaybeText,
    Number,
    TextList,
)
from evermirror.model.pull import RETRIES_MAX, RETRY_DELAY_MAX_S

LOAD_METRICS_MAX = 32


def _check_zone(name: str | None) -> str | None:
    if name is not None:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f'{name!r} is not a time zone such as "Asia/Shanghai"') from None
    return name


Zone = Annotated[MaybeText, AfterValidator(_check_zone)]


def _check_load_metrics(urls: tuple[str, ...]) -> tuple[str, ...]:
    if len(urls) > LOAD_METRICS_MAX:
        raise ValueError(f"has more than {LOAD_METRICS_MAX} URLs")
    for url in urls:
        try:
            parts = urlsplit(url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fine = False
        if fine and (parts.username is not None or parts.password is not None):
            raise ValueError("has a URL with a user name or password: such URLs are shown to people")
        if not fine or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError(f'{url!r} is not a URL such as "http://gitlab.example.org:9100/metrics"')
    return urls


class Pull(Section):
    """Pull mirroring: projects with fixed intervals, and targets that they are pushed on to."""

    time_zone: Zone = Field(default=None, description="Of peak hours and crons; none: the process's own.")
    pause_after: Count = Field(
        default=5, ge=1, le=1000, description="Failures in a row after which a project is disabled."
    )
    demote_after: Count = Field(
        default=3, ge=1, le=1000, description="Failures in a row after which it counts as one class lower."
    )
    stretch: Number = Field(
        default=2.0,
        ge=1,
        le=100,
        description="What intervals are multiplied by while the source is overloaded.",
    )
    pushes_silence: Duration = Field(
        default=300.0, gt=0, description="A push that shows no progress for so long is ended."
    )
    visibility: Annotated[Literal["hold", "follow", "ignore"], Kind.CHOICE] = Field(
        default="hold",
        description="Where more people can see a target than its source: hold its pushes, make it follow the "
        "source (its credential needs forge), or ignore that.",
    )
    public_targets: TextList = Field(
        default=(),
        description="Targets that may be more public than their sources, as host/path with * and ?.",
    )
    load_metrics: Annotated[TextList, AfterValidator(_check_load_metrics)] = Field(
        default=(),
        description="The sources' node exporters, by URL: a loaded source is given less to do.",
    )
    load_every: Duration = Field(default=15.0, ge=1, le=120, description="How often they are asked.")


class PullScheduler(Section):
    """Starts projects that are due."""

    cron: MaybeCron = Field(default=None, description="When; none: as soon as they are due.")
    enabled: Flag = Field(default=True, description="false: nothing is started but what people trigger.")


class ProgressStatistics(Section):
    """Notes progress for the course of the day."""

    cron: Cron = Field(default="0 */5 * * * ?", description="When.")
    enabled: Flag = Field(default=True, description="false: never.")


class ErrorMonitoring(Section):
    """Looks through errors for what people should know."""

    cron: Cron = Field(default="0 */10 * * * ?", description="When.")
    enabled: Flag = Field(default=True, description="false: never.")


class TaskCleanup(Section):
    """Removes old tasks, and the course of progress."""

    cron: Cron = Field(default="0 0 2 * * ?", description="When.")
    enabled: Flag = Field(default=True, description="false: never.")
    retention_days: Number = Field(default=30, gt=0, le=36_500, description="How long they are kept.")


class ScheduledJobs(Section):
    """What pull mirroring does by the clock, by Quartz cron expressions in `pull.time_zone`."""

    pull_scheduler: PullScheduler = PullScheduler()
    progress_statistics: ProgressStatistics = ProgressStatistics()
    error_monitoring: ErrorMonitoring = ErrorMonitoring()
    task_cleanup: TaskCleanup = TaskCleanup()


class Retries(Section):
    """How failed syncs of projects are tried again, where a project says nothing else."""

    max_retries: Count = Field(
        default=3, ge=0, le=RETRIES_MAX, description="Early attempts; after them the normal interval."
    )
    retry_delay: Number = Field(
        default=5, gt=0, le=RETRY_DELAY_MAX_S / 60, description="Minutes before the first of them."
    )
    backoff_multiplier: Number = Field(
        default=2, ge=1, le=100, description="What the delay is multiplied by for each further one."
    )
