"""The figures of the whole, as clients get them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, Field

from evermirror.core.watch.texts import text_of, title_of
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.model.whole import ClassFreshness, CoursePoint
from evermirror.nodes.alert_service import AlertPage, AlertView
from evermirror.nodes.service import Overview, Running

_SAME_MOMENT_DIGITS = 1  # of seconds: a lag and a time make the same moment again, but for the last bits


@dataclass(frozen=True, slots=True)
class ShownOverview:
    """What one kind of caller is shown. ``alerts``: those that stand; None: not for this caller."""

    overview: Overview
    running: tuple[Running, ...]
    alerts: AlertPage | None

    @property
    def timeless(self) -> ShownOverview:
        """Equal to another's where nothing is different but the time: a lag grows by itself."""
        now = self.overview.now

        def since(lag_s: float | None) -> float | None:
            return None if lag_s is None else round(now - lag_s, _SAME_MOMENT_DIGITS)

        freshness = {
            priority: replace(one, worst_lag_s=since(one.worst_lag_s))
            for priority, one in self.overview.freshness.items()
        }
        lag_s = since(self.overview.worst_lag_s)
        return replace(self, overview=replace(self.overview, now=0.0, worst_lag_s=lag_s, freshness=freshness))


class RunningView(BaseModel):
    """A sync under way."""

    key: str
    phase: str
    percent: float | None
    received_bytes: int
    started_at: str
    worker: str | None = Field(description="Who does it, by name")


class HostStateView(BaseModel):
    """An upstream host that is not simply open."""

    host: str
    repos: int
    state: str
    until: str | None
    reason: str


class ClassFreshnessView(BaseModel):
    """Repos of one priority that are not gone, refused or disabled."""

    live: int
    fresh: int
    worst_lag_s: float | None


class FailureView(BaseModel):
    """Repos whose last attempt failed, by its cause."""

    kind: str = Field(examples=["NOT_FOUND"])
    repos: int
    sample: list[str] = Field(description="Some of them, at most three; for token holders")


class StandingAlertView(BaseModel):
    """An alert that stands; GET /api/alerts tells more."""

    id: int
    kind: str = Field(examples=["project-failing"])
    level: Literal["warning", "error", "critical"]
    about: str
    title: str
    text: str
    title_zh: str
    text_zh: str
    since: str
    silenced: bool = Field(description="People are not told of it now")


class StandingAlertsView(BaseModel):
    """The most serious first, then the oldest."""

    total: int
    items: list[StandingAlertView] = Field(description="At most ten")


class OverviewView(BaseModel):
    """Is everything fresh, and if not, what is wrong?"""

    total_repos: int
    by_status: dict[str, int]
    by_priority: dict[str, int]
    fresh_repos: int = Field(
        description="Verified within their bound; without those gone, refused or disabled"
    )
    fresh_share: float | None = Field(
        description="fresh_repos / all that are not gone, refused or disabled; null while there are none"
    )
    fresh_bound_s: float = Field(description="A repo is fresh that was verified within so many seconds")
    freshness: dict[str, ClassFreshnessView] = Field(description="By priority")
    never_verified: int = Field(description="Of those that are not gone, refused or disabled")
    worst_lag_s: float | None
    polls_total: int
    polls_per_second: float
    changes_total: int
    changes_per_minute: float = Field(description="Of about the last minute")
    received_bytes_total: int
    received_bytes_per_second: float = Field(description="Of about the last minute")
    running: list[RunningView]
    queued_syncs: int
    hosts: list[HostStateView]
    failures_by_kind: dict[str, int]
    failures: list[FailureView] = Field(description="The same, most first")
    disk_free_bytes: int
    disk_total_bytes: int
    accepting_clones: bool
    warnings: list[str]
    alerts_standing: StandingAlertsView | None = Field(description="null without a token")
    started_at: str
    now: str
    version: str


class CoursePointView(BaseModel):
    """How everything was at a time."""

    at: str
    fresh_share: float | None
    worst_lag_s: float | None
    polls: int | None = Field(description="These three: since the point before; null: not known")
    changes: int | None
    received_bytes: int | None
    failing: int
    by_priority: dict[str, ClassFreshnessView]


class CourseView(BaseModel):
    """Oldest first."""

    items: list[CoursePointView]
    step_s: float = Field(description="Between two points, but for the first after a start and the last")


def overview_view(shown: ShownOverview, version: str) -> OverviewView:
    o = shown.overview
    return OverviewView(
        total_repos=o.total_repos,
        by_status=dict(o.by_status),
        by_priority=dict(o.by_priority),
        fresh_repos=o.fresh_repos,
        fresh_share=o.fresh_share,
        fresh_bound_s=o.fresh_bound_s,
        freshness={priority.value: _freshness_view(one) for priority, one in o.freshness.items()},
        never_verified=o.never_verified,
        worst_lag_s=o.worst_lag_s,
        polls_total=o.polls_total,
        polls_per_second=o.polls_per_second,
        changes_total=o.changes_total,
        changes_per_minute=o.changes_per_minute,
        received_bytes_total=o.received_bytes_total,
        received_bytes_per_second=o.received_bytes_per_second,
        running=[_running_view(one) for one in shown.running],
        queued_syncs=o.queued_syncs,
        hosts=[
            HostStateView(
                host=printable(h.host),
                repos=h.repos,
                state=h.state,
                until=iso_or_none(h.until),
                reason=printable(h.reason),
            )
            for h in o.hosts
        ],
        failures_by_kind=dict(o.failures_by_kind),
        failures=[
            FailureView(kind=one.kind, repos=one.repos, sample=[printable(key) for key in one.sample])
            for one in o.failures
        ],
        disk_free_bytes=o.disk_free_bytes,
        disk_total_bytes=o.disk_total_bytes,
        accepting_clones=o.accepting_clones,
        warnings=[printable(w) for w in o.warnings],
        alerts_standing=None if shown.alerts is None else _alerts_view(shown.alerts),
        started_at=iso(o.started_at),
        now=iso(o.now),
        version=version,
    )


def course_point_view(point: CoursePoint) -> CoursePointView:
    work = point.work
    return CoursePointView(
        at=iso(point.at),
        fresh_share=point.fresh_share,
        worst_lag_s=point.worst_lag_s,
        polls=None if work is None else work.polls,
        changes=None if work is None else work.changes,
        received_bytes=None if work is None else work.received_bytes,
        failing=point.failing,
        by_priority={priority.value: _freshness_view(one) for priority, one in point.classes.items()},
    )


def _freshness_view(one: ClassFreshness) -> ClassFreshnessView:
    return ClassFreshnessView(live=one.live, fresh=one.fresh, worst_lag_s=one.worst_lag_s)


def _running_view(running: Running) -> RunningView:
    sync = running.sync
    return RunningView(
        key=printable(sync.key),
        phase=printable(sync.phase),
        percent=sync.percent,
        received_bytes=sync.received_bytes,
        started_at=iso(sync.started_at),
        worker=None if running.worker is None else printable(running.worker),
    )


def _alerts_view(standing: AlertPage) -> StandingAlertsView:
    return StandingAlertsView(total=standing.total, items=[_alert_view(one) for one in standing.items])


def _alert_view(view: AlertView) -> StandingAlertView:
    record, alert = view.record, view.record.alert
    return StandingAlertView(
        id=record.id,
        kind=printable(alert.kind),
        level=alert.level.value,
        about=printable(alert.about),
        title=printable(title_of(alert.kind, "en")),
        text=printable(text_of(alert, "en")),
        title_zh=printable(title_of(alert.kind, "zh")),
        text_zh=printable(text_of(alert, "zh")),
        since=iso(record.raised_at),
        silenced=view.silenced_by is not None,
    )
