"""A small fleet of real processes to look at: a coordinator, two workers, an aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.house import ROLES
from tests.support.aggregator_processes import AggregatedFleet
from tests.support.upstream import UpstreamServer

WORKERS = ("ant", "bee")
REPOS = tuple(f"lang/{name}" for name in ("python", "ruby", "rust", "go", "perl", "lua", "julia", "swift"))


class LookedAtFleet(AggregatedFleet):
    """``tokens_of`` has one of each role; ``lead_url`` and ``agg_url`` are where the page is."""

    def __init__(self, folder: Path, upstream: UpstreamServer) -> None:
        super().__init__(folder, upstream, {"EVERMIRROR_FLEET__WARM_UP": "1s"})
        self.tokens_of: dict[str, str] = {}

    def start(self) -> None:
        self.create(REPOS)
        self.prepare()
        self.lead()
        for name in WORKERS:
            self.join(name)
        self.aggregate()
        self.tokens_of = {role: self.token(f"the {role}", role=role) for role in ROLES}
        self.settle()
        self.until(self.agg.ready)

    @property
    def lead_url(self) -> str:
        return f"http://127.0.0.1:{self.coordinator.port}"

    @property
    def agg_url(self) -> str:
        return f"http://127.0.0.1:{self.agg.port}"


@contextmanager
def fleet_in(folder: Path) -> Iterator[LookedAtFleet]:
    with UpstreamServer(folder / "upstream") as upstream:
        fleet = LookedAtFleet(folder / "fleet", upstream)
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.close()
