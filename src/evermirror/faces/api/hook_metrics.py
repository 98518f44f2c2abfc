"""Hooks of forges for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.model.forge import Forge
from evermirror.model.hook import HookEnd, HookTrust
from evermirror.nodes.hook_service import HookFigures

_ENDS = (*(end.value for end in HookEnd), "refused", "unavailable")


class HookCollector(Collector):
    """Register it once: ``metrics.registry.register(HookCollector(hooks.figures))``."""

    def __init__(self, figures: Callable[[], HookFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        ends = CounterMetricFamily(
            "evermirror_hooks", "Hooks that came, by what became of them", labels=["forge", "result"]
        )
        for forge in Forge:
            for end in _ENDS:  # also those that did not happen yet: a rate needs a beginning
                ends.add_metric([forge.value, end], figures.ends.get((forge, end), 0))
        waiting = GaugeMetricFamily("evermirror_hooks_waiting", "Hooks that are not stored yet")
        waiting.add_metric([], figures.waiting)
        trust = GaugeMetricFamily(
            "evermirror_hooked_repos",
            "Repos that hooks came for, by how far they can be relied on",
            labels=["trust"],
        )
        for one in HookTrust:
            trust.add_metric([one.value], figures.trust.get(one, 0))
        yield from (ends, waiting, trust)
