"""What Prometheus may read: one registry object that the engine and the API feed by methods.

Labels are bounded: kinds, statuses and route templates are closed sets; no repo, host or client is a label.
What has names from the settings as labels is in a registry of its own, ``inside``, for readers only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evermirror import __version__
from evermirror.model.duration import took_s
from evermirror.model.failure import FailureKind
from evermirror.model.messages import Failed, Progress, Report, Synced, Verified, WorkerStatus
from evermirror.nodes.service import Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SYNC_BUCKETS_S = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_600)  # a ref update to a first clone of a giant
_HTTP_BUCKETS_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 300)  # the last: a task waited for

PollOutcome = Literal["unchanged", "changed", "failed"]
SyncOutcome = Literal["changed", "unchanged", "failed"]


class Metrics:
    """Counters count from the start of the process; gauges show the last overview."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.inside = CollectorRegistry(auto_describe=True)
        r = self.registry
        Gauge("evermirror_build", "Constant 1, labelled by version", ["version"], registry=r).labels(
            __version__
        ).set(1)
        self._polls = Counter("evermirror_polls", "Looks at upstream's refs", ["outcome"], registry=r)
        self._syncs = Counter("evermirror_syncs", "Fetches and clones ended", ["outcome"], registry=r)
        self._sync_s = Histogram(
            "evermirror_sync_seconds", "Duration of syncs", registry=r, buckets=_SYNC_BUCKETS_S
        )
        self._failures = Counter(
            "evermirror_failures", "Failed polls and syncs by kind", ["kind"], registry=r
        )
        self._received = Counter(
            "evermirror_received_bytes", "Bytes that fetches and clones received", registry=r
        )
        self._reports = Counter(
            "evermirror_fleet_reports", "Reports of workers that were taken in, each once", registry=r
        )
        self._http = Counter(
            "evermirror_http_requests", "Requests answered", ["method", "route", "status"], registry=r
        )
        self._http_s = Histogram(
            "evermirror_http_seconds",
            "Time to answer requests",
            ["route"],
            registry=r,
            buckets=_HTTP_BUCKETS_S,
        )
        self._make_gauges(r)

    def _make_gauges(self, r: CollectorRegistry) -> None:
        self._repos = Gauge("evermirror_repos", "Repos in the catalog", ["status"], registry=r)
        self._fresh = Gauge(
            "evermirror_repos_fresh",
            "Repos verified within their bound; without those gone, refused or disabled",
            registry=r,
        )
        self._lag = Gauge(
            "evermirror_worst_lag_seconds", "The longest time since a repo was verified", registry=r
        )
        self._queued = Gauge("evermirror_syncs_queued", "Syncs that wait for a slot", registry=r)
        self._running = Gauge("evermirror_syncs_running", "Syncs under way", registry=r)
        self._hosts = Gauge("evermirror_hosts_not_open", "Upstream hosts that wait or storm", registry=r)
        self._disk_free = Gauge("evermirror_disk_free_bytes", "Free space under the data folder", registry=r)
        self._disk_total = Gauge("evermirror_disk_bytes", "Size of the disk of the data folder", registry=r)
        self._accepting = Gauge("evermirror_accepting_clones", "1 while first clones are started", registry=r)
        self._started = Gauge("evermirror_start_time_seconds", "When this process started, UTC", registry=r)

    def observe(self, report: Report) -> None:
        """Counts what a worker reports."""
        if not isinstance(report, Progress | WorkerStatus):  # those pass by and are not kept
            self._reports.inc()
        match report:
            case Verified():
                self.polled("unchanged", len(report.items))
            case Synced() if report.phases_s:  # git ran: the look had seen something
                self.polled("changed")
                self.synced(
                    "changed" if report.changes_total else "unchanged",
                    took_s(report.started_at, report.ended_at),
                )
                self.received(report.received_bytes)
            case Failed():
                self.polled("failed")
                self.failed(report.failure.kind)

    def polled(self, outcome: PollOutcome, count: int = 1) -> None:
        self._polls.labels(outcome).inc(count)

    def synced(self, outcome: SyncOutcome, duration_s: float) -> None:
        self._syncs.labels(outcome).inc()
        self._sync_s.observe(duration_s)

    def failed(self, kind: FailureKind) -> None:
        self._failures.labels(kind.value).inc()

    def received(self, count_bytes: int) -> None:
        self._received.inc(count_bytes)

    def answered(self, method: str, route: str, status: int, duration_s: float) -> None:
        """``duration_s``: up to the end of the answer; of a stream, which has none, up to its beginning."""
        self._http.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._http_s.labels(route).observe(duration_s)

    def show(self, overview: Overview) -> None:
        """Sets every gauge that an overview tells; done before each scrape."""
        self._repos.clear()
        for status, count in overview.by_status.items():
            self._repos.labels(status).set(count)
        self._fresh.set(overview.fresh_repos)
        self._lag.set(overview.worst_lag_s or 0.0)
        self._queued.set(overview.queued_syncs)
        self._running.set(len(overview.running))
        self._hosts.set(len(overview.hosts))
        self._disk_free.set(overview.disk_free_bytes)
        self._disk_total.set(overview.disk_total_bytes)
        self._accepting.set(1 if overview.accepting_clones else 0)
        self._started.set(overview.started_at)

    def render(self, *, inside: bool = False) -> bytes:
        """The exposition text; ``inside``: with what only readers are told."""
        return generate_latest(self.registry) + (generate_latest(self.inside) if inside else b"")


class Observe:
    """Counts every answered request by its route's template."""

    def __init__(self, app: ASGIApp, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0  # stays where the client left before an answer
        began = self._clock()
        streams_since: float | None = None

        async def watched(message: Message) -> None:
            nonlocal status, streams_since
            if message["type"] == "http.response.start":
                status = message["status"]
                streams_since = self._clock() if _is_stream(message) else None
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")
            ended = self._clock() if streams_since is None else streams_since
            self._metrics.answered(scope["method"], route, status, ended - began)


def _is_stream(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message["headers"]
    )
