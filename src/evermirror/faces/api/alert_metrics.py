"""Alerts and credentials for Prometheus. Labels are names from the settings: for readers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.model.alert import Level
from evermirror.nodes.alert_service import AlertFigures, NoticeEnd


class AlertCollector(Collector):
    """Register it once: ``metrics.inside.register(AlertCollector(alerting.figures))``."""

    def __init__(self, figures: Callable[[], AlertFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        standing = GaugeMetricFamily("evermirror_alerts_standing", "Alerts that stand", labels=["level"])
        for level in Level:
            standing.add_metric([level.value], figures.standing.get(level, 0))
        yield standing
        notices = CounterMetricFamily(
            "evermirror_alert_notices",
            "Tries to tell a channel of an alert, and notices that were given up",
            labels=["channel", "result"],
        )
        waiting = GaugeMetricFamily(
            "evermirror_alert_notices_waiting", "Notices that are still to be sent", labels=["channel"]
        )
        failing = GaugeMetricFamily(
            "evermirror_alert_channel_failing", "1 while a channel takes nothing", labels=["channel"]
        )
        for channel in figures.channels:
            for end in NoticeEnd:
                count = figures.notices.get((channel.name, end), 0)
                notices.add_metric([channel.name, end.value], count)
            waiting.add_metric([channel.name], channel.waiting)
            failing.add_metric([channel.name], channel.failing_since is not None)
        yield from (notices, waiting, failing)


class CredentialCollector(Collector):
    """``expiries`` has the UTC seconds of those credentials whose end is known."""

    def __init__(self, expiries: Callable[[], Mapping[str, float]]) -> None:
        self._expiries = expiries

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "evermirror_credential_expires_timestamp_seconds",
            "When a credential expires, UTC; only those whose end is known",
            labels=["credential"],
        )
        for name, at in sorted(self._expiries().items()):
            family.add_metric([name], at)
        yield family
