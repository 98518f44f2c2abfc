"""The fleet in figures, for Prometheus: counted at each scrape. No worker, repo or host is a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evermirror.nodes.coordinator.fleet_view import FleetView

STATUSES = ("alive", "suspect", "down", "draining", "quarantined")


class FleetCollector(Collector):
    """Register it once: ``metrics.registry.register(FleetCollector(admin.view))``."""

    def __init__(self, view: Callable[[], FleetView]) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        totals = view.totals
        counts = Counter(w.seen.record.status for w in view.workers)
        yield _by(
            "workers", "Workers that may come back", "status", {status: counts[status] for status in STATUSES}
        )
        there = sum(a.connected for a in view.aggregators)
        yield _by(
            "aggregators",
            "Aggregators seen since the start",
            "state",
            {"connected": there, "away": len(view.aggregators) - there},
        )
        copies = {
            "planned": totals.planned,
            "asked": totals.asked,
            "deferred": totals.deferred,
            "held": sum(w.seen.held for w in view.workers),
            "stopping": totals.stopping,
            "leaving": totals.leaving,
        }
        yield _by("copies", "Copies of repos on workers", "state", copies)
        yield _by(
            "rate_in_use_share",
            "The most that may be in use of a rate that is split over workers, as a part of it",
            "of",
            {
                "all": max((r.share for r in view.rates if r.host is None), default=0.0),
                "busiest_host": max((r.share for r in view.rates if r.host is not None), default=0.0),
            },
        )
        unacknowledged = sum(w.seen.unacked for w in view.workers)
        for name, text, value in (
            ("repos_owned", "Repos wanted on a worker that is alive", totals.owned),
            ("repos_held", "Repos complete on a worker that is alive, and verified", totals.held),
            ("repos_unverified", "Repos that only untrusted workers say they hold", totals.unverified),
            ("repos_no_room", "Repos that no worker can take", totals.no_room),
            ("repos_moving", "Repos with a copy that comes or goes", totals.moving),
            (
                "hosts_split",
                "Upstream hosts whose rate is split over workers",
                sum(r.host is not None for r in view.rates),
            ),
            ("commands_unacknowledged", "Commands that workers have not taken in yet", unacknowledged),
            (
                "repos_served",
                "Repos that aggregators hold, added up",
                sum(a.serves for a in view.aggregators),
            ),
            ("changes_told", "Changes told to aggregators", sum(a.told for a in view.aggregators)),
            ("brake", "1 while nobody is declared down: too many fell silent at once", int(totals.braked)),
            ("warming_up", "1 while nothing is placed yet", int(totals.warming)),
        ):
            yield GaugeMetricFamily(f"evermirror_fleet_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"evermirror_fleet_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
