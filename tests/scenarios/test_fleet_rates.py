"""Rates are the fleet's: real processes ask one real host, and the requests that come there are counted."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backend import Request
from tests.support.fleet_processes import FleetProcesses
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

RATE = 6.0  # a second, of the whole fleet; each worker's own settings would allow as much
NAMES = ("ann", "bob")
REPOS = [f"team/r{n}" for n in range(24)]  # at one look a second each they could ask four times as much
MEASURED_S = 6.0
SETTINGS = {
    "EVERMIRROR_LIMITS__HOST_RATE": f"{RATE:g}/s",
    "EVERMIRROR_SCHEDULE__MIN_GAP": "1s",
    "EVERMIRROR_SCHEDULE__MAX_GAP": "1d",
    "EVERMIRROR_FLEET__MIN_WORKERS": str(len(NAMES)),
    "EVERMIRROR_FLEET__GRACE": "10m",
    "EVERMIRROR_FLEET__HEARTBEAT": "1s",
}


class TimedServer(UpstreamServer):
    """Knows when each poll came; what git itself asks in a transfer is not counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.polls: list[tuple[float, str]] = []  # with the key

    def record(self, request: Request) -> None:
        super().record(request)
        if "evermirror" in request.headers.get("user-agent", ""):
            self.polls.append((time.monotonic(), f"{self.host}{request.path.partition('.git/')[0]}"))

    def since(self, start: float) -> list[tuple[float, str]]:
        return [poll for poll in list(self.polls) if poll[0] >= start]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[FleetProcesses]:
    with (
        TimedServer(tmp_path / "upstream") as server,
        contextlib.closing(FleetProcesses(tmp_path / "fleet", server, SETTINGS)) as fleet,
    ):
        fleet.create(REPOS)
        fleet.prepare()
        fleet.lead()
        for name in NAMES:
            fleet.join(name)
        fleet.settle()
        yield fleet


def assert_within(polls: list[tuple[float, str]], rate: float) -> None:
    """In no span of time more than the rate allows, and a second's worth at once."""
    times = sorted(at for at, _ in polls)
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            span_s = times[last] - start
            assert last - first + 1 <= rate * span_s + max(rate, 1.0) + 1, (rate, first, last, span_s)


def measured(fleet: FleetProcesses) -> list[tuple[float, str]]:
    assert isinstance(fleet.upstream, TimedServer)
    start = time.monotonic()
    time.sleep(MEASURED_S)
    return fleet.upstream.since(start)


def shares(fleet: FleetProcesses) -> dict[str, float]:
    """What each worker was told of the one host."""
    workers = fleet.get("/api/fleet")["workers"]
    return {
        w["name"]: {share["host"]: share["rate"] for share in w["limits"]["hosts"]}[fleet.upstream.host]
        for w in workers
        if w["limits"] is not None and w["limits"]["hosts"] and not w["unacknowledged"]
    }


def test_all_workers_together_ask_a_host_no_more_than_the_fleets_rate(fleet):
    server = fleet.upstream
    fleet.until(lambda: sum(shares(fleet).values()) > 0.9 * RATE)
    polls = measured(fleet)
    told, holders = shares(fleet), {key: fleet.holder(key) for key in fleet.repos}
    assert set(told) == set(NAMES)
    assert sum(told.values()) <= RATE
    (rate,) = fleet.get("/api/fleet")["rates"]
    assert (rate["host"], rate["rate"]) == (server.host, RATE)
    assert rate["in_use"] <= RATE

    assert_within(server.since(0.0), RATE)  # from the first poll on
    by_worker = Counter(holders[key] for _, key in polls)
    assert set(by_worker) == set(NAMES), "both poll"
    for name in NAMES:
        assert_within([poll for poll in polls if holders[poll[1]] == name], told[name])
    assert len(polls) > 0.6 * RATE * MEASURED_S, "the rate is used"

    # A worker that starts while its coordinator is away has its share, not the whole fleet's.
    fleet.coordinator.kill()
    bob = fleet.workers["bob"]
    bob.kill()
    bob.start("worker")
    began = time.monotonic()
    fleet.until(lambda: {holders[key] for _, key in server.since(began)} == set(NAMES))
    polls = measured(fleet)
    assert_within(polls, RATE)
    bobs = [poll for poll in polls if holders[poll[1]] == "bob"]
    assert_within(bobs, told["bob"])
    assert len(bobs) > 0.6 * told["bob"] * MEASURED_S, "it goes on alone"
