"""What serving git costs and saves, for Prometheus: read from the server's own figures at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from evermirror.edge.git.serve import ServeFigures


class GitCollector(Collector):
    """Register it once: ``metrics.registry.register(GitCollector(server.figures))``."""

    def __init__(self, figures: Callable[[], ServeFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        requests = CounterMetricFamily(
            "evermirror_git_requests", "Answers to git clients", labels=["service", "cached"]
        )
        for service in ("refs", "pack"):
            for cached in (True, False):
                count = figures.requests.get((service, cached), 0)
                requests.add_metric([service, "yes" if cached else "no"], count)
        yield requests
        yield CounterMetricFamily(
            "evermirror_git_sent_bytes", "Bytes sent to git clients", value=figures.sent_bytes
        )
        yield CounterMetricFamily(
            "evermirror_git_refused", "Clients sent away for want of room", value=figures.refused
        )
        yield CounterMetricFamily(
            "evermirror_git_cut", "Clients cut for their slowness while others waited", value=figures.cut
        )
        for name, text, value in (
            ("running", "Git processes that answer clients", figures.running),
            ("waiting", "Clients in line", figures.waiting),
            ("cache_packs", "Packs in the cache", figures.cache_packs),
            ("cache_bytes", "Size of the cache", figures.cache_bytes),
        ):
            yield GaugeMetricFamily(f"evermirror_git_{name}", text, value=value)
