"""The whole simulated fleet: one seed, one thread, virtual time, and the real machine in the middle.

    plan ─▶ World ── faults.py does things to it, scripts too (crash, cut, stall, commit …)
              │
     workers ─┼─ network ── coordinator (shell) ── FleetMachine
     witness ─┤                   │
     catalog ─┘                 store           checks and story look on

The truth is here: what is really on which disk. The machine knows only what it was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from xxhash import xxh3_64

from evermirror.core.fleet.decisions import Decision
from evermirror.core.fleet.events import CatalogRepo, Event
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts
from evermirror.sim.fleet.clones import size_mb
from evermirror.sim.fleet.world import FleetWorld
from tests.support.sim.fleet.catalog import Catalog
from tests.support.sim.fleet.coordinator import CrashPoint, RoughCoordinator
from tests.support.sim.fleet.faults import Faults, Mischief
from tests.support.sim.fleet.network import CutLink, Habits, RoughNetwork
from tests.support.sim.fleet.store import SimStore
from tests.support.sim.fleet.story import Checks, Teller
from tests.support.sim.fleet.witness import Witness
from tests.support.sim.fleet.worker import Lie, RoughWorker, TimedClones

_GIVE_UP_S = (20.0, 120.0)  # how long a worker waits for a coordinator that does not answer
_SYNC_S = 60.0  # within it a holder sees that upstream moved
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The same plan is the same run. Shares are of 1; times in virtual seconds."""

    seed: int = 1
    workers: int = 10
    repos: int = 200
    trusted: float = 0.7  # share of the workers
    private: float = 0.1  # share of the repos
    dead: float = 0.0  # share of the repos that no clone ever succeeds of
    replicas: tuple[int, ...] = ()  # a repo's own, by chance; empty: the fleet's setting
    weights: tuple[float, ...] = (1.0,)  # of workers, by chance
    room: int | None = None  # copies that a worker's disk takes, of which it does not speak
    serving: bool = False  # people read from the first worker's machine
    slots: int = 10  # clones at once on a worker
    witness: float = 0.0  # share of the repos that the aggregator fetches
    duration_s: float = 4 * HOUR
    calm_s: float = 1 * HOUR  # at the end: no new faults
    join_s: float = 30.0  # within it the first workers start
    trash_s: float = HOUR  # from removal until a repo is forgotten
    sweep_s: float = 60.0
    sample_s: float = 60.0
    settings: FleetSettings = field(default_factory=FleetSettings)
    faults: Faults = field(default_factory=Faults)
    habits: Habits = field(default_factory=Habits)


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one time, as the coordinator sees it; ``load`` is the busiest worker against the mean."""

    now: float
    repos: int
    owned: int
    held: int
    moving: int
    asked: int
    alive: int
    load: float
    braked: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """``trace`` is a digest of every event and decision: equal for equal plans."""

    events: int  # handled by the machine
    steps: int  # of the world
    messages: int
    checks: int
    clones: int
    relayed: int  # of these, through the relay from another worker
    cloned_mb: float
    deleted: int
    owned_at: float | None  # first sample with every repo owned
    held_at: float | None  # and with every repo held
    epochs: int  # lives of the coordinator
    samples: tuple[Sample, ...]
    trace: str


class World(FleetWorld):
    """``run`` does the whole plan; scripts ``begin`` and ``advance``, and do what they like in between."""

    def __init__(
        self, plan: Plan, checkers: Callable[[World], Checks] | None = None, story: Teller | None = None
    ) -> None:
        self.plan = plan
        self.story: Teller = story if story is not None else Teller()
        self.store = SimStore()
        super().__init__(plan.seed, plan.settings, slots=plan.slots)
        self.catalog = Catalog(self.rng, private=plan.private, replicas=plan.replicas, dead=plan.dead)
        self.witness = Witness(self, plan.witness)
        self.cloned_mb = 0.0
        self.samples: list[Sample] = []
        self._holders: dict[RepoKey, set[int]] = {}
        self._stalls = 0
        self._trace = xxh3_64()
        self.checks: Checks = checkers(self) if checkers is not None else Checks()

    def make_coordinator(self) -> RoughCoordinator:
        return RoughCoordinator(self)

    def make_network(self) -> RoughNetwork:
        coordinator = self.coordinator
        return RoughNetwork(self.time, self.rng, self.plan.habits, coordinator, lambda: coordinator.listens)

    def make_worker(self, index: int, facts: WorkerFacts) -> RoughWorker:
        return RoughWorker(self, index, facts, self.plan.room)

    def make_clones(self, worker: RoughWorker) -> TimedClones:
        return TimedClones(worker, self.slots)

    def make_facts(self, index: int) -> WorkerFacts:
        rng, plan = self.rng, self.plan
        return WorkerFacts(
            f"w{index:03}", trusted=rng.random() < plan.trusted, weight=rng.choice(plan.weights)
        )

    # The run

    @property
    def calm_at(self) -> float:
        return max(0.0, self.plan.duration_s - self.plan.calm_s)

    def begin(self) -> None:
        """Coordinator, catalog and first workers start; faults are drawn."""
        plan = self.plan
        self.catalog.commit(put=self.catalog.new(plan.repos))
        self.coordinator.start()
        self.join(plan.workers, within_s=plan.join_s)
        Mischief(self, plan.faults, self.calm_at).begin()
        self.time.after(plan.sweep_s, self._sweep)
        self.time.after(plan.sample_s, self._sample)

    def run(self) -> Outcome:
        self.begin()
        self.time.run(self.plan.duration_s)
        self.checks.at_end()
        return self.outcome()

    def outcome(self) -> Outcome:
        samples = self.samples
        return Outcome(
            events=self.coordinator.events,
            steps=self.time.steps,
            messages=self.network.sent,
            checks=getattr(self.checks, "done", 0),
            clones=self.clones,
            relayed=self.relayed,
            cloned_mb=self.cloned_mb,
            deleted=self.deleted,
            owned_at=next((s.now for s in samples if s.repos and s.owned == s.repos), None),
            held_at=next((s.now for s in samples if s.repos and s.held == s.repos), None),
            epochs=self.coordinator.epoch,
            samples=tuple(samples),
            trace=self._trace.hexdigest(),
        )

    def _sweep(self) -> None:
        self.checks.sweep(self.time.now)
        self.time.after(self.plan.sweep_s, self._sweep)

    def _sample(self) -> None:
        machine = self.coordinator.machine
        if machine is not None:
            totals = machine.totals()
            loads = [view.wanted / view.record.facts.weight for view in machine.workers() if view.wanted]
            load = max(loads) * len(loads) / sum(loads) if loads else 0.0
            self.samples.append(
                Sample(
                    self.time.now,
                    totals.repos,
                    totals.owned,
                    totals.held,
                    totals.moving,
                    totals.asked,
                    totals.alive,
                    load,
                    totals.braked,
                )
            )
        self.time.after(self.plan.sample_s, self._sample)

    # The truth

    def version(self, key: RepoKey) -> int:
        return self.catalog.version(key)

    def holders(self, key: RepoKey) -> set[int]:
        """Indexes of the workers on whose disk it is complete."""
        return self._holders.get(key, set())

    def tell(self, text: str) -> None:
        self.story.tell(self.time.now, text)

    def broken(self, promise: str, detail: str) -> None:
        self.checks.on_broken(promise, detail, self.time.now)

    def trace(self, event: Event, decision: Decision) -> None:
        """Cheap, and yet no two different runs look alike."""
        self._trace.update(
            b"%a %s %d %d"
            % (self.time.now, type(event).__name__.encode(), len(decision.writes), len(decision.actions))
        )

    # Told by workers

    def cloned(self, worker: RoughWorker, key: RepoKey, *, relayed: bool) -> None:
        super().cloned(worker, key, relayed=relayed)
        self.cloned_mb += size_mb(key)
        self._holders.setdefault(key, set()).add(worker.index)

    def deleting(self, worker: RoughWorker, key: RepoKey) -> None:
        super().deleting(worker, key)
        if worker.id is not None:
            self.checks.on_delete(worker.id, key, self.time.now)

    def lost(self, worker: RoughWorker, key: RepoKey) -> None:
        holders = self._holders[key]
        holders.remove(worker.index)
        if not holders:
            del self._holders[key]

    # Done to workers

    def serves(self, index: int) -> bool:
        """People read from this worker's machine."""
        return self.plan.serving and index == 0

    def start(self, index: int) -> None:
        worker = self.workers[index]
        if not worker.up and not worker.dead:
            self.tell(f"{worker.name} starts")
            super().start(index)

    def crash(self, index: int, *, told: bool | None = None) -> None:
        worker = self.workers[index]
        if worker.up:
            self.tell(f"{worker.name} crashed")
            super().crash(index, told=told)

    def kill(self, index: int) -> None:
        """For ever, and its disk with it."""
        worker = self.workers[index]
        if not worker.dead:
            self.crash(index)
            self.tell(f"{worker.name} is dead")
            worker.dead = True
            self.wipe(index)

    def wipe(self, index: int, keys: Iterable[RepoKey] | None = None) -> None:
        """These, or all, are gone from its disk."""
        worker = self.workers[index]
        gone = sorted(worker.disk) if keys is None else [key for key in keys if key in worker.disk]
        self.tell(f"{worker.name} lost {len(gone)} copies by a fault of its disk")
        worker.lose(gone)
        self.checks.on_disk_lost(worker.id, gone, self.time.now)

    def lose_file(self, index: int) -> None:
        worker = self.workers[index]
        if not worker.up:
            self.tell(f"{worker.name} lost its local file")
            worker.lose_file()

    def fill(self, index: int) -> None:
        self.tell(f"{self.workers[index].name}: disk full")
        self.workers[index].full = True

    def empty(self, index: int) -> None:
        if self.workers[index].full:
            self.tell(f"{self.workers[index].name}: room again")
            self.workers[index].make_room()

    def slow(self, index: int, factor: float) -> None:
        self.workers[index].slowness = factor

    def lie(self, index: int, mode: Lie) -> None:
        worker = self.workers[index]
        if not worker.facts.trusted:
            self.tell(f"{worker.name} lies: {mode.value}")
            worker.lies = mode
            if mode is Lie.INVENTS:
                worker.claimed.update({key: self.catalog.version(key) for key in self.catalog.some(10)})

    def repent(self, index: int) -> None:
        """Honest from now on; its process starts again."""
        worker = self.workers[index]
        self.tell(f"{worker.name} is honest again")
        self.crash(index)
        worker.lies = None
        worker.claimed.clear()
        self.start(index)

    # Done to the network

    def cut(self, indexes: Iterable[int], *, up: bool = True, down: bool = True) -> None:
        cut_off = list(indexes)
        self.tell(
            f"cut off: {self._names(cut_off)}{'' if up else ', down only'}{'' if down else ', up only'}"
        )
        for index in cut_off:
            self.network.cut(index, up=up, down=down)

    def heal(self, indexes: Iterable[int]) -> None:
        healed = [index for index in indexes if not self.network.reachable(index)]
        if healed:
            self.tell(f"reachable again: {self._names(healed)}")
        for index in healed:
            self.network.heal(index)

    def break_link(self, index: int) -> None:
        self.network.break_newest(index)

    def _names(self, indexes: list[int]) -> str:
        few = ", ".join(self.workers[index].name for index in indexes[:5])
        return few if len(indexes) <= 5 else f"{few} and {len(indexes) - 5} more"

    # Done to the coordinator

    def start_coordinator(self) -> None:
        self.coordinator.start()

    def crash_coordinator(self, point: CrashPoint | str | None = None) -> None:
        """At once, or armed for the next decision; it is started again after a while."""
        if point is not None:
            self.tell(f"coordinator is about to crash: {CrashPoint(point).value}")
            self.coordinator.arm(CrashPoint(point))
        elif self.coordinator.machine is not None:
            self.coordinator.crash(told=self.rng.random() < 0.5)
            self.coordinator_died()

    def coordinator_died(self) -> None:
        longest = self.plan.faults.coordinator_down_s
        self.time.after(min(self.rng.expovariate(3.0 / longest), longest), self.start_coordinator)

    def stall(self, seconds: float) -> None:
        """It is paused; workers that wait for answers give up after a while."""
        if self.coordinator.machine is None or self.coordinator.stalled:
            return
        self.tell(f"coordinator stalls for {seconds:.0f} s")
        self._stalls += 1
        self.coordinator.stall()
        for link in list(self.network.links.values()):
            self.time.after(self.rng.uniform(*_GIVE_UP_S), self._give_up, self._stalls, link)
        self.time.after(seconds, self._stall_over, self._stalls)

    def _give_up(self, stall: int, link: CutLink) -> None:
        if stall == self._stalls and self.coordinator.stalled:
            self.workers[link.index].give_up(link)

    def _stall_over(self, stall: int) -> None:
        if stall == self._stalls:
            self.wake()

    def wake(self) -> None:
        if self.coordinator.stalled:
            self.tell("coordinator wakes")
            self.coordinator.wake()
            self.coordinator.take_in_catalog()

    def ask(self, event: Event) -> None:
        """What people and the aggregator tell the coordinator."""
        self.coordinator.ask(event)

    # Done to the catalog and the upstreams

    def commit(self, put: Iterable[CatalogRepo] = (), removed: Iterable[RepoKey] = ()) -> None:
        """To the catalog; what was removed is forgotten when its time in the trash is over."""
        put, removed = tuple(put), tuple(removed)
        self.tell(f"the catalog gains {len(put)} and loses {len(removed)}")
        self.catalog.commit(put, removed)
        self.coordinator.take_in_catalog()
        if removed:
            self.time.after(self.plan.trash_s, self._empty_trash, removed, len(self.catalog.commits))

    def _empty_trash(self, keys: tuple[RepoKey, ...], at: int) -> None:
        forgotten = [key for key in keys if self.catalog.removed.get(key) == at]
        if forgotten:
            self.tell(f"the trash is emptied of {len(forgotten)}")
            self.catalog.commit(forgotten=forgotten)
            self.coordinator.take_in_catalog()
            self.witness.evict(forgotten)

    def bring_back(self, count: int) -> None:
        """Some that were removed are in the catalog again."""
        keys = sorted(self.catalog.removed)
        if keys:
            self.commit(put=[CatalogRepo(key) for key in self.rng.sample(keys, min(count, len(keys)))])

    def push(self, key: RepoKey) -> None:
        """Upstream moved; each holder sees it at its next poll."""
        self.catalog.push(key)
        for index in sorted(self.holders(key)):
            self.time.after(self.rng.uniform(1.0, _SYNC_S), self.workers[index].sync, key)
