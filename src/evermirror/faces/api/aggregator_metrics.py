"""What an aggregator has collected, for Prometheus: read from its own figures at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.core.collect.events import End
from evermirror.edge.relay.server import RelayFigures
from evermirror.nodes.aggregator.collect_figures import CollectingFigures


class AggregatorCollector(Collector):
    """Register it once. ``relay`` gives None where this process runs none."""

    def __init__(
        self,
        figures: Callable[[], CollectingFigures],
        relay: Callable[[], RelayFigures | None],
        connected: Callable[[], bool],
    ) -> None:
        self._figures = figures
        self._relay = relay
        self._connected = connected

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        yield _gauge("coordinator_connected", "1 while the coordinator is there", self._connected())
        yield _gauge("repos", "Repos in the catalog", figures.repos.repos)
        yield _gauge("repos_here", "Repos of which something is here", figures.repos.here)
        yield _gauge("repos_behind", "Repos of which something is to be fetched", figures.repos.pending)
        yield _gauge("collected_bytes", "Size of what is here", figures.repos.here_bytes)
        yield _gauge("fetching", "Fetches under way", len(figures.fetching))
        yield _gauge("waited_for", "Repos that clients wait for", figures.waiting)
        yield _gauge("disk_used_share", "Share of the disk that is used", figures.disk.used_share)
        attempts = CounterMetricFamily(
            "evermirror_aggregator_attempts", "Fetches and looks ended", labels=["end"]
        )
        for end in End:
            attempts.add_metric([end.value], figures.attempts.get(end, 0))
        yield attempts
        yield _counter("changes", "Changes that the coordinator told", figures.changes)
        yield _counter("accused", "Accusations of workers", figures.accused)
        yield from self._of_relay()

    def _of_relay(self) -> Iterator[Metric]:
        relay = self._relay()
        if relay is None:
            return
        yield _gauge("relay_holders", "Workers with a line to the relay", relay.holders)
        yield _gauge("relay_lines", "Lines of workers to the relay", relay.serving_lines)
        yield _gauge("relay_asking_lines", "Lines of readers to the relay", relay.asking_lines)
        yield _gauge("relay_requests_running", "Requests that the relay carries", relay.running)
        yield _gauge("relay_requests_waiting", "Requests in line", relay.waiting)
        yield _counter("relay_requests", "Requests that the relay carried to their end", relay.answered)
        yield _counter("relay_refused", "Requests refused for want of room", relay.refused)
        yield _counter("relay_bytes", "Bytes that the relay passed on", relay.passed_bytes)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"evermirror_aggregator_{name}", text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"evermirror_aggregator_{name}", text, value=float(value))
