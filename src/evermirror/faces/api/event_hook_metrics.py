"""Event hooks for Prometheus. Labels are names from the settings: for readers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.nodes.event_service import HookFigures, PostEnd


class EventHookCollector(Collector):
    """Register it once: ``metrics.inside.register(EventHookCollector(desk.figures))``."""

    def __init__(self, figures: Callable[[], Mapping[str, HookFigures]]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        posts = CounterMetricFamily(
            "evermirror_event_hook_posts", "Messages to receivers of events", labels=["hook", "result"]
        )
        events = CounterMetricFamily(
            "evermirror_event_hook_events",
            "Events that receivers have taken, and that were laid aside",
            labels=["hook", "result"],
        )
        letters = GaugeMetricFamily(
            "evermirror_event_hook_letters", "Events that are laid aside now", labels=["hook"]
        )
        failing = GaugeMetricFamily(
            "evermirror_event_hook_failing", "1 while a receiver takes nothing for long", labels=["hook"]
        )
        for name, figures in sorted(self._figures().items()):
            for end in PostEnd:
                posts.add_metric([name, end.value], figures.posts.get(end, 0))
            events.add_metric([name, "delivered"], figures.delivered)
            events.add_metric([name, "laid_aside"], figures.laid_aside)
            letters.add_metric([name], figures.letters)
            failing.add_metric([name], figures.failing)
        yield from (posts, events, letters, failing)
