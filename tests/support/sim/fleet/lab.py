"""Laboratories: one simulated worker whose coordinator is the test, and one link between two ends."""

from __future__ import annotations

from random import Random

from evermirror.core.fleet.decisions import AckReports, Assign, Assignment, Send, Welcome
from evermirror.model.worker import WorkerFacts, WorkerId
from evermirror.sim.clock import VirtualTime
from evermirror.sim.fleet.clones import size_mb
from evermirror.sim.fleet.messages import Hello, Report
from evermirror.sim.fleet.network import DOWN, UP, Habits, Network
from evermirror.sim.fleet.world import FleetWorld, name
from tests.support.sim.fleet.network import Habits as RoughHabits
from tests.support.sim.fleet.network import RoughNetwork

ME = WorkerId(7)
A, B, C = name(0), name(1), name(2)
BIG = max(map(name, range(50)), key=size_mb)  # takes half a minute


class Boss:
    """A coordinator by hand: keeps what it hears, says what the test says."""

    listens = True

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.link = None
        self.closings = 0

    def arrived(self, link, message) -> None:
        if isinstance(message, Hello):
            self.link = link
        self.heard.append(message)

    def closed(self, link) -> None:
        self.closings += 1

    def take(self, kind):
        """What was heard of this kind, once."""
        found = [message for message in self.heard if isinstance(message, kind)]
        self.heard = [message for message in self.heard if not isinstance(message, kind)]
        return found


class WorkerLab:
    """The first worker of a world whose coordinator is a ``Boss``."""

    def __init__(self, world: FleetWorld, *, trusted: bool = True) -> None:
        self.world = world
        self.boss = world.coordinator
        world.join(facts=WorkerFacts("me", trusted=trusted))
        self.worker = world.workers[0]
        self.seq = 0
        self.wait(5)

    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    def hello(self) -> Hello:
        """The next, as soon as it comes."""
        self.boss.take(Hello)
        for _ in range(120):
            self.wait(1)
            if heard := self.boss.take(Hello):
                return heard[-1]
        raise AssertionError("the worker did not come back")

    def say(self, message) -> None:
        self.world.network.send(self.boss.link, DOWN, message)

    def welcome(self, *, resumed: bool = False, epoch: int = 1, acked: int = 0) -> None:
        session, generation = self.boss.link.session, self.worker.log.generation
        self.say(Welcome(session, ME, epoch, resumed))
        self.say(AckReports(ME, session, generation, acked))
        if not resumed:
            self.seq = 0
        self.wait(1)

    def order(self, command, wait: float = 120) -> None:
        self.seq += 1
        self.say(Send(ME, self.boss.link.session, self.seq, command))
        self.wait(wait)

    def assign(self, *keys, wait: float = 120, **details) -> None:
        self.order(Assign(tuple(Assignment(key, False, **details) for key in keys)), wait)

    def reports(self):
        return [(r.seq, r.kind, r.rest[0] if r.rest else ()) for r in self.boss.take(Report)]

    def ack(self, seq: int) -> None:
        self.say(AckReports(ME, self.boss.link.session, self.worker.log.generation, seq))
        self.wait(1)


def told(reports, kind):
    return sorted(
        item if isinstance(item, str) else item.key for _, k, items in reports if k is kind for item in items
    )


class End:
    """Writes down what it gets and when."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.got: list[tuple[int, object]] = []
        self.times: list[float] = []
        self.ended: list[int] = []

    def arrived(self, link, message) -> None:
        self.got.append((link.session, message))
        self.times.append(self.time.now)

    def closed(self, link) -> None:
        self.ended.append(link.session)


class LinkLab:
    """One link of a network, with both its ends; ``rough``: one that can be cut."""

    def __init__(self, seed: int = 1, *, rough: bool = False, **habits) -> None:
        self.time = VirtualTime()
        self.coordinator, self.worker = End(self.time), End(self.time)
        self.listens = True
        chance = Random(seed)
        if rough:
            self.network = RoughNetwork(
                self.time, chance, RoughHabits(**habits), self.coordinator, lambda: self.listens
            )
        else:
            self.network = Network(self.time, chance, Habits(**habits), self.coordinator)
        self.link = self.network.connect(0, self.worker)

    def up(self, *messages) -> None:
        for message in messages:
            self.network.send(self.link, UP, message)
