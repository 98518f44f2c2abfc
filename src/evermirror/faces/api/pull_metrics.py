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
from evermirror.model.pull import LoadLevel
from evermirror.model.task import TaskStatus
from evermirror.nodes.coordinator.pull.pull_figures import BUCKETS_S, PullTotals


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
        yield from _by_priority(totals)
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
            (
                "pull_projects_demoted",
                "Projects with at least pull.demote_after failures in a row",
                totals.projects_demoted,
            ),
            (
                "pull_projects_paused",
                "Projects that were given up until a person resets them",
                totals.projects_paused,
            ),
            ("pull_retry_count", "Tasks since the start that tried again", totals.retries),
            ("pull_concurrent_connections", "Syncs that may speak to a source now", totals.running),
            ("pull_bandwidth_bytes", "Bytes received from sources since the start", totals.received_bytes),
            ("pull_target_bytes", "Bytes sent to targets since the start", totals.sent_bytes),
            ("pull_concurrent_limit", "Pulls that may run now", totals.limit),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        load = GaugeMetricFamily(
            "pull_source_load", "1 for the source's load as last seen; all 0: not known", labels=["level"]
        )
        for level in LoadLevel:
            load.add_metric([level.value], totals.load is not None and totals.load.level is level)
        yield load


def _by_priority(totals: PullTotals) -> Iterator[Metric]:
    """Of classes without a project too: a series that comes and goes is hard to watch."""
    classes = totals.classes
    for name, text, values in (
        ("projects_enabled", "Projects that are enabled", {p: c.projects for p, c in classes.items()}),
        (
            "projects_with_targets",
            "Projects with targets that are enabled, or were given up after failures",
            {p: c.with_targets for p, c in classes.items()},
        ),
        (
            "projects_verified_equal",
            "Those of them whose every target has all that the mirror has",
            {p: c.equal for p, c in classes.items()},
        ),
        (
            "verified_equal_ratio",
            "The share of them; 1 where there are none",
            {p: c.equal_share for p, c in classes.items()},
        ),
        (
            "lag_seconds",
            "Time since the last sync of enabled projects, or since one was made; the average",
            {p: c.lag_average_s or 0.0 for p, c in classes.items()},
        ),
        (
            "lag_worst_seconds",
            "The longest of them",
            {p: c.lag_worst_s or 0.0 for p, c in classes.items()},
        ),
    ):
        family = GaugeMetricFamily(f"pull_{name}", text, labels=["priority"])
        for priority, value in values.items():
            family.add_metric([priority.value], value)
        yield family
