"""A worker at home, behind a masquerading NAT that lets nothing in; coordinator and aggregator outside.

Network namespaces stand for the machines, and the kernel makes the weather.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.aggregator_processes import AggregatedFleet
from tests.support.namespaces import HOME, PUBLIC, UPSTREAM, Internet, lacking
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

SETTINGS = {
    "EVERMIRROR_SCHEDULE__MIN_GAP": "1h",
    "EVERMIRROR_SCHEDULE__MAX_GAP": "1d",
    "EVERMIRROR_FLEET__GRACE": "10m",
    "EVERMIRROR_FLEET__HEARTBEAT": "500ms",
    "EVERMIRROR_FLEET__MIN_WORKERS": "1",
}
PLANNED_BYTES_PER_S = 10_000_000  # what a home is planned with
CUT_S = 3.0


@pytest.fixture(scope="module")
def net() -> Iterator[Internet]:
    if why := lacking():
        if os.environ.get("CI") == "true" and "not installed" in why:
            pytest.fail(why)
        pytest.skip(why)
    with Internet() as internet:
        yield internet


@pytest.fixture(scope="module")
def fleet(net, tmp_path_factory) -> Iterator[AggregatedFleet]:
    """The test's own thread is in the public place meanwhile."""
    folder = tmp_path_factory.mktemp("behind-nat")
    with contextlib.ExitStack() as stack:
        with net.inside("upstream"):
            server = stack.enter_context(UpstreamServer(folder / "upstream", address=UPSTREAM))
        stack.enter_context(net.inside("public"))
        own = {"EVERMIRROR_RELAY__LISTEN": f"{PUBLIC}:0"}
        fleet = AggregatedFleet(folder / "fleet", server, SETTINGS, own)
        stack.enter_context(contextlib.closing(fleet))
        fleet.address = f"{PUBLIC}:{fleet.address.rpartition(':')[2]}"
        fleet.create(["home/small", "home/other"])
        fleet.prepare()
        fleet.lead()
        with net.inside("home"):
            fleet.join("volunteer")
        fleet.aggregate()
        fleet.settle()
        fleet.until(fleet.serves_all)
        yield fleet


@pytest.fixture
def key(fleet) -> str:
    fleet.until(fleet.serves_all)
    return min(fleet.repos)


def test_what_is_mirrored_behind_a_nat_is_served_outside_though_nothing_gets_in(net, fleet, key):
    with net.inside("home"), socket.create_server((HOME, 0)) as door:
        port = door.getsockname()[1]
        socket.create_connection((HOME, port), timeout=2).close()
        with net.inside("public"), pytest.raises(OSError, match=r"timed out|unreachable"):
            socket.create_connection((HOME, port), timeout=0.5)
    tip = fleet.repos[key].commit()
    fleet.sync(key)
    fleet.until(lambda: fleet.served(key) == tip)
    assert fleet.clones()[key] == 1
    fleet.assert_whole()


def test_the_home_is_the_limit_and_not_the_tunnel(net, fleet, key):
    size = 3 * PLANNED_BYTES_PER_S
    tip = fleet.repos[key].big_blob(size)
    with net.slow(PLANNED_BYTES_PER_S):
        began = time.monotonic()
        fleet.sync(key)
        fleet.until(lambda: fleet.served(key) == tip)
        took_s = time.monotonic() - began
    assert took_s >= 0.9 * size / PLANNED_BYTES_PER_S, "it did not come through the narrow way"
    assert took_s <= 4 * size / PLANNED_BYTES_PER_S
    fleet.assert_whole(key)


def test_a_link_that_is_cut_during_a_fetch_and_restored_costs_only_time(net, fleet, key):
    old = fleet.served(key)
    tip = fleet.repos[key].big_blob(40_000_000)
    with net.slow(PLANNED_BYTES_PER_S):
        before = fleet.passed_bytes()
        fleet.sync(key)
        fleet.until_passing(before)
        with net.cut():
            time.sleep(CUT_S)
            assert fleet.served(key) == old, "what is here is served, and nothing half done"
        fleet.until(lambda: fleet.served(key) == tip)
    fleet.settle()
    fleet.assert_whole(key)
    assert fleet.down() == []


def test_a_fifth_of_all_packets_lost_delays_a_push_and_no_more(net, fleet, key):
    tip = fleet.repos[key].commit()
    with net.losing(20):
        fleet.ask_sync(key)
        fleet.until(lambda: fleet.served(key) == tip)
    fleet.settle()
    fleet.assert_whole()
    assert fleet.clones()[key] == 1
