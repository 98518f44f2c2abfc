"""The clock of one node jumps ahead, and is set right: the fleet goes on by itself, and says what happened.

Worker, aggregator and coordinator are real processes, each with a wall clock of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.aggregator_processes import AggregatedFleet
from tests.support.fake_time import LIBRARIES, WallClock
from tests.support.fleet_processes import Node
from tests.support.upstream import UpstreamServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed: apt-get install libfaketime"),
]

AHEAD_S = 3 * 3600  # longer than a pass is good for
NODES = ("agg", "ann", "coordinator")
WAS_SET = "the clock of this machine was set"
DISAGREE = "the clocks of this node and its coordinator disagree"
AGREE = "the clocks of this node and its coordinator agree again"
SETTINGS = {
    "EVERMIRROR_FLEET__GRACE": "10m",
    "EVERMIRROR_FLEET__HEARTBEAT": "300ms",
    "EVERMIRROR_FLEET__MIN_WORKERS": "1",
}


class SetFleet(AggregatedFleet):
    """A coordinator, one worker and an aggregator, whose clocks can be set."""

    def __init__(self, folder: Path, upstream: UpstreamServer) -> None:
        folder.mkdir(parents=True)
        self.clocks = {name: WallClock(folder / f"{name}.time") for name in NODES}
        super().__init__(folder, upstream, SETTINGS, own=self.clocks["agg"].env)
        self.coordinator = Node(folder, "coordinator", {**self._env, **self.clocks["coordinator"].env})

    def node(self, name: str, data: Path | None = None, **settings: str) -> Node:
        return super().node(name, data, **{**self.clocks[name].env, **settings})

    @property
    def nodes(self) -> dict[str, Node]:
        return {"agg": self.agg, "coordinator": self.coordinator, **self.workers}

    def follows_a_push(self) -> None:
        """What is pushed is polled by the worker, told to the coordinator and fetched by the aggregator."""
        key = min(self.repos)
        tip = self.repos[key].commit()
        self.until(lambda: self.served(key) == tip)

    def warnings(self) -> str:
        return "\n".join(self.get("/api/overview")["warnings"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory) -> Iterator[SetFleet]:
    folder = tmp_path_factory.mktemp("clocks")
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(SetFleet(folder / "fleet", server)) as fleet,
    ):
        fleet.create(["team/a", "team/b"])
        fleet.prepare()
        fleet.lead()
        fleet.join("ann")
        fleet.aggregate()
        fleet.settle()
        yield fleet


@pytest.mark.parametrize("name", NODES)
def test_a_clock_that_was_ahead_and_is_right_again_stops_nothing_and_is_logged(fleet, name):
    fleet.until(fleet.serves_all)
    node = fleet.nodes[name]
    before = {each: len(of.log()) for each, of in fleet.nodes.items()}

    def told(where: str, text: str, times: int = 1) -> bool:
        return fleet.nodes[where].log()[before[where] :].count(text) >= times

    fleet.clocks[name].set_ahead(AHEAD_S)
    fleet.until(lambda: told(name, WAS_SET))
    disagree = [name] if name != "coordinator" else ["agg", "ann"]
    fleet.until(lambda: all(told(each, DISAGREE) for each in disagree))
    fleet.follows_a_push()
    fleet.until(lambda: all(f" {each}: its clock is 10" in fleet.warnings() for each in disagree))

    fleet.clocks[name].set_ahead(0)
    fleet.until(lambda: told(name, WAS_SET, 2) and all(told(each, AGREE) for each in disagree))
    fleet.follows_a_push()
    fleet.follows_a_push()
    assert node.running
    fleet.until(lambda: "its clock is" not in fleet.warnings())
