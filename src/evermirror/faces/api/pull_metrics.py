"""Pull mirroring for Prometheus, by the names of the design that it follows. No project is a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from evermirror.model.failure import FailureKind
from evermirror.model.task import TaskStatus
from evermirror.nodes.coordinator.pull_figures import BUCKETS_S, PullTotals


class PullCollector(Collector):
    """Register it once: ``metrics.registry.register(PullCollector(pulling.totals))``."""

    def __init__(self, totals: Callable[[], PullTotals]) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        totals = self._totals()
        ended = totals.ended
        for name, text, count in (
            ("pull_tasks_scheduled", "Tasks of projects that were made", totals.scheduled),
            ("pull_tasks_success", "Tasks that succeeded", ended.get(TaskStatus.SUCCESS, 0)),
            ("pull_tasks_failed", "Tasks that failed", ended.get(TaskStatus.FAILED, 0)),
            ("pull_tasks_skipped", "Tasks that saw no change", ended.get(TaskStatus.SKIPPED, 0)),
            ("pull_commits_synced", "New commits that syncs brought", totals.commits),
        ):
            yield CounterMetricFamily(name, text, value=count)  # exported with _total behind it
        yield from self._gauges(totals)
        errors = GaugeMetricFamily("pull_errors_by_type", "Errors of tasks since the start", labels=["type"])
        for kind in FailureKind:
            errors.add_metric([kind.value], totals.errors.get(kind, 0))
        yield errors
        bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
        yield HistogramMetricFamily(
            "pull_task_duration_seconds",
            "How long tasks took",
            buckets=list(zip(bounds, accumulate(totals.durations), strict=True)),
            sum_value=totals.duration_sum_s,
        )

    def _gauges(self, totals: PullTotals) -> Iterator[Metric]:
        rate = 1.0 - totals.projects_failed / totals.projects if totals.projects else 1.0
        for name, text, value in (
            (
                "pull_tasks_scheduled_per_minute",
                "Tasks made in the last minute",
                totals.scheduled_last_minute,
            ),
            ("pull_tasks_queued", "Projects that are due and wait for room", totals.queued),
            ("pull_tasks_running", "Projects that something runs for", totals.running),
            ("pull_projects_with_changes", "Projects whose latest task changed", totals.projects_changed),
            ("pull_sync_success_rate", "Share of projects that are not failed", rate),
            ("pull_consecutive_failures", "Projects with failures in a row", totals.projects_failing),
            ("pull_retry_count", "Tasks since the start that tried again", totals.retries),
            ("pull_concurrent_connections", "Syncs that may speak to a source now", totals.running),
            (
                "pull_bandwidth_bytes",
                "Bytes received from sources and sent to targets since the start",
                totals.received_bytes + totals.sent_bytes,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
