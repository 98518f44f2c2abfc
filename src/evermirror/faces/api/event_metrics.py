"""Events for Prometheus: what was told, and to how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.model.event import EventType


class EventCollector(Collector):
    """``told``: events by type since the start of the process; ``followers``: streams that are open."""

    def __init__(self, told: Callable[[], Mapping[str, int]], followers: Callable[[], int]) -> None:
        self._told = told
        self._followers = followers

    def collect(self) -> Iterator[Metric]:
        told = self._told()
        written = CounterMetricFamily("evermirror_events", "Events written", labels=["type"])
        for type_ in EventType:
            written.add_metric([type_.value], told.get(type_.value, 0))
        yield written
        yield GaugeMetricFamily(
            "evermirror_event_followers", "Streams of events that are open", value=self._followers()
        )
