"""Background parts of the process for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.nodes.supervisor import PartState


class PartCollector(Collector):
    """Register it once. Names of parts hold names from the settings: at a coordinator for readers only."""

    def __init__(self, states: Callable[[], tuple[PartState, ...]]) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        failing = GaugeMetricFamily(
            "evermirror_part_failing",
            "1 from a failure until it ran well for a minute",
            labels=["part"],
        )
        failures = CounterMetricFamily(
            "evermirror_part_failures",
            "Failures of parts, which were started again",
            labels=["part"],
        )
        for state in self._states():
            failing.add_metric([state.name], state.failing)
            failures.add_metric([state.name], state.failures)
        yield from (failing, failures)
