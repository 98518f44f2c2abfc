"""Settings of pull mirroring: what the strategy, which people change by API, does not hold."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from evermirror.config.section import Section
from evermirror.config.values import Count, Duration, Kind, MaybeCron, MaybeText, Number, TextList

DAY = 86_400.0
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
    retention: Duration = Field(default=30 * DAY, gt=0, description="How long the history of tasks is kept.")
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
    scheduler_cron: MaybeCron = Field(
        default=None, description="When due projects are started; none: as soon as they are due."
    )
    statistics_cron: MaybeCron = Field(
        default="0 */5 * * * ?", description="When progress is noted for the course of the day."
    )
    monitoring_cron: MaybeCron = Field(
        default="0 */10 * * * ?", description="When errors are looked through for what people should know."
    )
    cleanup_cron: MaybeCron = Field(default="0 0 2 * * ?", description="When old history is removed.")
    load_metrics: Annotated[TextList, AfterValidator(_check_load_metrics)] = Field(
        default=(),
        description="The sources' node exporters, by URL: a loaded source is given less to do.",
    )
    load_every: Duration = Field(default=15.0, ge=1, le=120, description="How often they are asked.")
