"""The figures of the whole, as clients get them."""

from __future__ import annotations

from pydantic import BaseModel, Field

from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.model.messages import RunningSync
from evermirror.nodes.service import Overview


class RunningView(BaseModel):
    """A sync under way."""

    key: str
    phase: str
    percent: float | None
    received_bytes: int
    started_at: str


class HostStateView(BaseModel):
    """An upstream host that is not simply open."""

    host: str
    repos: int
    state: str
    until: str | None
    reason: str


class OverviewView(BaseModel):
    """Is everything fresh, and if not, what is wrong?"""

    total_repos: int
    by_status: dict[str, int]
    by_priority: dict[str, int]
    fresh_repos: int
    fresh_share: float | None = Field(description="fresh_repos / total_repos; null while there are none")
    worst_lag_s: float | None
    polls_total: int
    polls_per_second: float
    changes_total: int
    received_bytes_total: int
    running: list[RunningView]
    queued_syncs: int
    hosts: list[HostStateView]
    failures_by_kind: dict[str, int]
    disk_free_bytes: int
    disk_total_bytes: int
    accepting_clones: bool
    warnings: list[str]
    started_at: str
    now: str
    version: str


def overview_view(overview: Overview, running: tuple[RunningSync, ...], version: str) -> OverviewView:
    o = overview
    return OverviewView(
        total_repos=o.total_repos,
        by_status=dict(o.by_status),
        by_priority=dict(o.by_priority),
        fresh_repos=o.fresh_repos,
        fresh_share=o.fresh_repos / o.total_repos if o.total_repos else None,
        worst_lag_s=o.worst_lag_s,
        polls_total=o.polls_total,
        polls_per_second=o.polls_per_second,
        changes_total=o.changes_total,
        received_bytes_total=o.received_bytes_total,
        running=[
            RunningView(
                key=printable(r.key),
                phase=printable(r.phase),
                percent=r.percent,
                received_bytes=r.received_bytes,
                started_at=iso(r.started_at),
            )
            for r in running
        ],
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
        disk_free_bytes=o.disk_free_bytes,
        disk_total_bytes=o.disk_total_bytes,
        accepting_clones=o.accepting_clones,
        warnings=[printable(w) for w in o.warnings],
        started_at=iso(o.started_at),
        now=iso(o.now),
        version=version,
    )
