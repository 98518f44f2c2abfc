"""The whole simulated fleet: one seed, one thread, virtual time, and the real machine in the middle.

    workers ── network ── coordinator (shell) ── FleetMachine

The truth is here: what is really on which disk. The machine knows only what it was told.
"""

from __future__ import annotations

from random import Random
from typing import Any

from evermirror.core.fleet.decisions import AckReports, Action, Decision, Refuse, Send, Welcome
from evermirror.core.fleet.events import (
    CatalogChanged,
    CatalogRepo,
    CommandsAcked,
    Event,
    HeartbeatHeard,
    HeldTold,
    Moment,
    RangesCompared,
    Ticked,
    WorkerConnected,
    WorkerDisconnected,
)
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId
from evermirror.sim.clock import VirtualTime
from evermirror.sim.fleet.clones import SIZES_MEAN_MB, Clones, SharedClones, Traffic
from evermirror.sim.fleet.messages import Beat, Compared, Hello, Report, Told, Took
from evermirror.sim.fleet.network import DOWN, UP, Habits, Link, Network
from evermirror.sim.fleet.worker import SimWorker

UTC_START = 1_700_000_000.0  # any; persisted times are UTC
JOIN_S = 30.0  # within it the first workers start
_HOSTS = 7  # a few; the fleet's mind does not look at hosts


def name(number: int) -> RepoKey:
    return RepoKey(f"host{number % _HOSTS}.example/team/repo{number}")


class SimCoordinator:
    """The coordinator's shell: messages become events, the machine decides, its actions are sent.

    Its monotonic clock begins anywhere."""

    def __init__(self, world: FleetWorld) -> None:
        self.world = world
        self.machine: FleetMachine | None = None
        self.events = 0
        self._ids: dict[int, WorkerId] = {}  # by session
        self._mono_base = 0.0

    @property
    def moment(self) -> Moment:
        now = self.world.time.now
        return Moment(now + self._mono_base, UTC_START + now)

    def start(self, catalog: CatalogChanged) -> None:
        self._mono_base = self.world.rng.uniform(-1e6, 1e6)
        self.machine = FleetMachine(self.world.settings, 1, self.moment)
        self.handle(catalog)
        self._tick()

    def _tick(self) -> None:
        self.handle(Ticked())
        self.world.time.after(self.world.settings.tick_s, self._tick)

    # In

    def arrived(self, link: Link, message: Any) -> None:
        if isinstance(message, Hello):
            self.handle(self._connected(link, message))
        elif (worker := self._ids.get(link.session)) is not None:
            self._heard(link, worker, message)

    def closed(self, link: Link) -> None:
        worker = self._ids.pop(link.session, None)
        if worker is not None:
            self.handle(WorkerDisconnected(worker, link.session))

    def _connected(self, link: Link, hello: Hello) -> WorkerConnected:
        return WorkerConnected(
            link.session,
            hello.worker,
            hello.facts,
            hello.boot,
            hello.generation,
            hello.epoch,
            hello.seen,
            hello.limits,
        )

    def _heard(self, link: Link, worker: WorkerId, message: Any) -> None:
        session = link.session
        match message:
            case Beat(accepting, progress):
                self.handle(HeartbeatHeard(worker, session, accepting, progress))
            case Took(seq):
                self.handle(CommandsAcked(worker, session, seq))
            case Report():
                self.handle(message.event(worker, session))
            case Told(copies, last):
                self.handle(HeldTold(worker, session, copies, last))
            case Compared(ranges, copies):
                self.handle(RangesCompared(worker, session, ranges, copies))
            case _:
                self.world.broken("messages", f"{message!r} from worker {worker}")

    # Decide and act

    def handle(self, event: Event) -> None:
        if self.machine is None:
            return
        self.events += 1
        decision = self.machine.handle(event, self.moment)
        self.world.decided(decision)
        for action in decision.actions:
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Welcome(session, worker):
                self._ids[session] = worker
                self._send(session, action)
            case Send() | AckReports() | Refuse():
                self._send(action.session, action)
            case _:
                pass

    def _send(self, session: int, message: Any) -> None:
        link = self.world.network.links.get(session)
        if link is not None and link.open[UP]:
            self.world.network.send(link, DOWN, message)


class FleetWorld:
    """``begin``, ``advance``, and do to the fleet what you like in between."""

    def __init__(
        self, seed: int, settings: FleetSettings, *, slots: int, mean_mb: float = SIZES_MEAN_MB
    ) -> None:
        self.settings = settings
        self.slots = slots  # clones at once on a worker
        self.time = VirtualTime()
        self.rng = Random(seed)  # noqa: S311 (a simulation: the same chances again)
        self.traffic = Traffic(self.time, mean_mb)
        self.workers: list[SimWorker] = []
        self.clones = self.relayed = self.deleted = 0
        self.coordinator = self.make_coordinator()
        self.network = self.make_network()
        self._by_id: dict[WorkerId, SimWorker] = {}
        self._numbers = 0

    # What it is made of

    def make_coordinator(self) -> SimCoordinator:
        return SimCoordinator(self)

    def make_network(self) -> Network:
        return Network(self.time, self.rng, Habits(), self.coordinator)

    def make_worker(self, index: int, facts: WorkerFacts) -> SimWorker:
        return SimWorker(self, index, facts)

    def make_clones(self, worker: SimWorker) -> Clones:
        return SharedClones(worker, self.slots, self.traffic)

    def make_facts(self, index: int) -> WorkerFacts:
        return WorkerFacts(f"w{index:03}")

    # What is done to it

    def begin(self, workers: int, repos: int, private: float) -> None:
        """Coordinator, catalog and first workers start."""
        made = tuple(CatalogRepo(name(n), self.rng.random() < private) for n in range(repos))
        self.coordinator.start(CatalogChanged(put=made))
        self.join(workers, within_s=JOIN_S)

    def advance(self, seconds: float) -> None:
        self.time.run(self.time.now + seconds)

    def join(self, count: int = 1, *, facts: WorkerFacts | None = None, within_s: float = 0.0) -> list[int]:
        """New workers; their indexes."""
        made = list(range(len(self.workers), len(self.workers) + count))
        for index in made:
            self.workers.append(self.make_worker(index, facts or self.make_facts(index)))
            self.time.after(self.rng.uniform(0, within_s), self.start, index)
        return made

    def start(self, index: int) -> None:
        self.workers[index].start()

    def crash(self, index: int, *, told: bool | None = None) -> None:
        """``told``: its machine lives and closes the link; None: as chance has it."""
        worker = self.workers[index]
        if worker.up:
            worker.crash(told=self.rng.random() < 0.5 if told is None else told)

    def kill(self, index: int) -> None:
        """For ever, and its disk with it."""
        self.crash(index)
        self.workers[index].dead = True
        self.workers[index].lose(list(self.workers[index].disk))

    # The truth

    @property
    def utc_s(self) -> float:
        return UTC_START + self.time.now

    def number(self) -> int:
        """Of a process or a local file: never used twice."""
        self._numbers += 1
        return self._numbers

    def worker(self, id: WorkerId) -> SimWorker | None:
        """Who was last welcomed with this id."""
        return self._by_id.get(id)

    def version(self, key: RepoKey) -> int:
        """Upstream's, now."""
        return 1

    # Told by workers and the coordinator

    def knows(self, worker: SimWorker) -> None:
        if worker.id is not None:
            self._by_id[worker.id] = worker

    def cloned(self, worker: SimWorker, key: RepoKey, *, relayed: bool) -> None:
        self.clones += 1
        self.relayed += relayed

    def deleting(self, worker: SimWorker, key: RepoKey) -> None:
        """It is still on its disk."""
        self.deleted += 1

    def lost(self, worker: SimWorker, key: RepoKey) -> None:
        """It is no longer on its disk."""

    def decided(self, decision: Decision) -> None:
        """None of its actions has started."""

    def broken(self, promise: str, detail: str) -> None:
        """Something that must never be: raise."""
        raise AssertionError(f"t={self.time.now:.3f} {promise}: {detail}")
