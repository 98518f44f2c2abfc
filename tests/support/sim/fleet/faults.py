"""What goes wrong in the simulated fleet, how often, and how it heals: all from the one seed.

Rates are per hour: of one worker where the name says so, else of the whole fleet. Each kind of fault comes in
its own stream of chances; what it does and how long it lasts is drawn when it comes. After the calm begins no
new fault comes, and whatever is still broken heals within ``heal_s``; only what is dead for ever stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evermirror.core.fleet.events import BrakeOverruled, DrainAsked, DutyResumed, RetireAsked
from evermirror.model.worker import Duty
from tests.support.sim.fleet.coordinator import CrashPoint
from tests.support.sim.fleet.worker import Lie

if TYPE_CHECKING:
    from tests.support.sim.fleet.world import World

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Faults:
    """Nothing goes wrong by default; durations are the longest, in seconds."""

    # of each worker
    worker_crash: float = 0.0
    worker_death: float = 0.0  # for ever
    worker_wipe: float = 0.0  # a crash that takes the disk, or part of it
    worker_lost_file: float = 0.0
    worker_full: float = 0.0
    worker_slow: float = 0.0
    worker_lie: float = 0.0  # untrusted ones
    worker_cut: float = 0.0
    worker_break: float = 0.0  # its link only
    down_s: float = 1800.0
    cut_s: float = 1800.0
    # of the fleet
    flappers: float = 0.0  # share of the workers that crash all the time
    flap_s: float = 120.0  # mean time up, and down
    partition: float = 0.0  # a share of the fleet at once
    coordinator_crash: float = 0.0
    coordinator_down_s: float = 300.0
    stall: float = 0.0
    stall_s: float = HOUR
    witness_crash: float = 0.0
    evict: float = 0.0  # at the witness
    # of people and upstreams
    join: float = 0.0
    drain: float = 0.0
    retire: float = 0.0
    overrule: float = 0.0  # of the brake
    commit: float = 0.0
    commit_share: float = 0.01  # of the catalog, put or removed by one commit
    mass_removal: float = 0.0
    push: float = 0.0
    heal_s: float = 120.0


def rough(rate: float = 1.0) -> Faults:
    """Everything at once; 1.0 is a bad week pressed into a day."""
    return Faults(
        worker_crash=0.3 * rate,
        worker_death=0.01 * rate,
        worker_wipe=0.02 * rate,
        worker_lost_file=0.03 * rate,
        worker_full=0.03 * rate,
        worker_slow=0.1 * rate,
        worker_lie=0.02 * rate,
        worker_cut=0.3 * rate,
        worker_break=1.0 * rate,
        flappers=0.05 * rate,
        partition=0.3 * rate,
        coordinator_crash=1.0 * rate,
        stall=0.2 * rate,
        witness_crash=0.3 * rate,
        evict=1.0 * rate,
        join=0.5 * rate,
        drain=0.3 * rate,
        retire=0.1 * rate,
        overrule=0.2 * rate,
        commit=4.0 * rate,
        mass_removal=0.05 * rate,
        push=60.0 * rate,
    )


class Mischief:
    """Draws the faults and does them to the world."""

    def __init__(self, world: World, faults: Faults, calm_at: float) -> None:
        self.world = world
        self.faults = faults
        self.calm_at = calm_at
        self._rng = world.rng

    def begin(self) -> None:
        faults = self.faults
        each: list[tuple[float, Callable[[int], None]]] = [
            (faults.worker_crash, self._crash),
            (faults.worker_death, self._die),
            (faults.worker_wipe, self._wipe),
            (faults.worker_lost_file, self._lose_file),
            (faults.worker_full, self._fill),
            (faults.worker_slow, self._slow),
            (faults.worker_lie, self._lie),
            (faults.worker_cut, self._cut),
            (faults.worker_break, self._break),
        ]
        for rate, do in each:
            self._later(rate, self._to_one, do, per_worker=True)
        fleet: list[tuple[float, Callable[[], None]]] = [
            (faults.partition, self._partition),
            (faults.coordinator_crash, self._crash_coordinator),
            (faults.stall, self._stall),
            (faults.witness_crash, self._crash_witness),
            (faults.evict, self._evict),
            (faults.join, self._join),
            (faults.drain, self._drain),
            (faults.retire, self._retire),
            (faults.overrule, self._overrule),
            (faults.commit, self._commit),
            (faults.mass_removal, self._mass_removal),
            (faults.push, self._push),
        ]
        for rate, act in fleet:
            self._later(rate, self._to_all, act, per_worker=False)
        flappers = round(faults.flappers * len(self.world.workers))
        for index in self._rng.sample(range(len(self.world.workers)), flappers):
            self.world.time.after(self._rng.expovariate(1 / faults.flap_s), self._flap, index)
        self.world.time.at(self.calm_at, self.heal)

    # Streams of chances

    def _later(self, rate: float, again: Callable[..., None], do: object, *, per_worker: bool) -> None:
        """The next chance of this kind of fault, if there is any before the calm."""
        if rate <= 0.0:
            return
        often = rate * (len(self.world.workers) if per_worker else 1) / HOUR
        at = self.world.time.now + self._rng.expovariate(often)
        if at < self.calm_at:
            self.world.time.at(at, again, rate, do)

    def _to_one(self, rate: float, do: Callable[[int], None]) -> None:
        do(self._rng.randrange(len(self.world.workers)))
        self._later(rate, self._to_one, do, per_worker=True)

    def _to_all(self, rate: float, do: Callable[[], None]) -> None:
        do()
        self._later(rate, self._to_all, do, per_worker=False)

    def _for(self, longest: float) -> float:
        """Mostly short, at times as long as it gets."""
        return min(self._rng.expovariate(3.0 / longest), longest)

    # Workers

    def _crash(self, index: int) -> None:
        self.world.crash(index)
        self.world.time.after(self._for(self.faults.down_s), self.world.start, index)

    def _flap(self, index: int) -> None:
        """Up, down, up; a crash in the calm is none."""
        if self.world.time.now >= self.calm_at:
            return
        if self.world.workers[index].up:
            self.world.crash(index)
        else:
            self.world.start(index)
        self.world.time.after(self._rng.expovariate(1 / self.faults.flap_s), self._flap, index)

    def _die(self, index: int) -> None:
        """Not more than a few: somebody must be left."""
        if sum(worker.dead for worker in self.world.workers) < len(self.world.workers) // 4:
            self.world.kill(index)

    def _wipe(self, index: int) -> None:
        self.world.crash(index)
        held = sorted(self.world.workers[index].disk)
        some = None if self._rng.random() < 0.5 else self._rng.sample(held, len(held) // 3)
        self.world.wipe(index, some)
        self.world.time.after(self._for(self.faults.down_s), self.world.start, index)

    def _lose_file(self, index: int) -> None:
        self.world.crash(index)
        self.world.lose_file(index)
        self.world.time.after(self._for(self.faults.down_s), self.world.start, index)

    def _fill(self, index: int) -> None:
        self.world.fill(index)
        self.world.time.after(self._for(self.faults.down_s), self.world.empty, index)

    def _slow(self, index: int) -> None:
        self.world.slow(index, self._rng.choice((3.0, 10.0, 30.0)))
        self.world.time.after(self._for(self.faults.down_s), self.world.slow, index, 1.0)

    def _lie(self, index: int) -> None:
        self.world.lie(index, self._rng.choice(list(Lie)))

    def _cut(self, index: int) -> None:
        up, down = self._rng.choice(((True, True), (True, True), (True, False), (False, True)))
        self.world.cut([index], up=up, down=down)
        self.world.time.after(self._for(self.faults.cut_s), self.world.heal, [index])

    def _break(self, index: int) -> None:
        self.world.break_link(index)

    # The fleet

    def _partition(self) -> None:
        count = max(1, round(self._rng.choice((0.2, 0.5, 0.8, 1.0)) * len(self.world.workers)))
        cut_off = self._rng.sample(range(len(self.world.workers)), count)
        self.world.cut(cut_off)
        self.world.time.after(self._for(self.faults.cut_s), self.world.heal, cut_off)

    def _crash_coordinator(self) -> None:
        self.world.crash_coordinator(self._rng.choice((None, *CrashPoint)))

    def _stall(self) -> None:
        self.world.stall(self._for(self.faults.stall_s))

    def _crash_witness(self) -> None:
        self.world.witness.crash()
        self.world.time.after(self._for(self.faults.down_s), self.world.witness.start)

    def _evict(self) -> None:
        self.world.witness.evict(self.world.catalog.some(len(self.world.witness.disk) // 100))

    # People and upstreams

    def _join(self) -> None:
        self.world.join()

    def _drain(self) -> None:
        worker = self._rng.choice(self.world.workers)
        if worker.id is not None:
            self.world.ask(DrainAsked(worker.id))
            self.world.time.after(self._for(self.faults.down_s), self._resume, worker.index)

    def _resume(self, index: int) -> None:
        worker = self.world.workers[index]
        record = None if worker.id is None else self.world.store.workers.get(worker.id)
        if record is not None and record.facts.name == worker.name and record.duty is Duty.DRAINING:
            self.world.ask(DutyResumed(record.id))

    def _retire(self) -> None:
        """Of those who are dead, mostly; as people do."""
        gone = [worker for worker in self.world.workers if worker.dead] or self.world.workers
        worker = self._rng.choice(gone)
        record = None if worker.id is None else self.world.store.workers.get(worker.id)
        if record is not None and record.facts.name == worker.name:
            self.world.kill(worker.index)
            self.world.ask(RetireAsked(record.id))

    def _overrule(self) -> None:
        self.world.ask(BrakeOverruled())

    def _commit(self) -> None:
        count = max(1, round(self.faults.commit_share * len(self.world.catalog.repos)))
        kind = self._rng.random()
        if kind < 0.4:
            self.world.commit(put=self.world.catalog.new(count))
        elif kind < 0.8:
            self.world.commit(removed=self.world.catalog.some(count))
        else:
            self.world.bring_back(count)

    def _mass_removal(self) -> None:
        self.world.commit(removed=self.world.catalog.some(len(self.world.catalog.repos) // 3))

    def _push(self) -> None:
        key = self.world.catalog.any()
        if key is not None:
            self.world.push(key)

    # The calm

    def heal(self) -> None:
        """All that is not dead comes back, at its own time."""
        self.world.tell("the calm begins")
        time, rng = self.world.time, self._rng
        self.world.network.calm()
        time.after(rng.uniform(0, self.faults.heal_s), self.world.start_coordinator)
        time.after(rng.uniform(0, self.faults.heal_s), self.world.wake)
        time.after(rng.uniform(0, self.faults.heal_s), self.world.witness.start)
        for worker in self.world.workers:
            time.after(rng.uniform(0, self.faults.heal_s), self._heal_one, worker.index)

    def _heal_one(self, index: int) -> None:
        worker = self.world.workers[index]
        self.world.heal([index])
        self.world.slow(index, 1.0)
        self.world.empty(index)
        if worker.lies is not None:
            self.world.repent(index)
        self.world.start(index)
        self.world.time.after(self.faults.heal_s, self._resume_duty, index)

    def _resume_duty(self, index: int) -> None:
        worker = self.world.workers[index]
        record = None if worker.id is None else self.world.store.workers.get(worker.id)
        if record is not None and record.facts.name == worker.name and not worker.dead:
            self.world.ask(DutyResumed(record.id))
