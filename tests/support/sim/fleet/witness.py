"""Who else deals with the coordinator: the aggregator, and the tasks of the pull strategy; both simulated.

The aggregator fetches what workers report, holds it, and tells the coordinator: the witness. It fetches a
share of the repos only (as in pull-through mode). What it gets is what the worker really has: a worker that
reported something else is sooner or later found out and put under quarantine.

Tasks ask for a slot, run while it lasts, and give it back. The promise checked here: never more than the
limit run in the whole fleet at once. A task ends with its worker's process, and when its lease ends; a
grant that comes late counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from evermirror.core.fleet.decisions import GrantLease
from evermirror.core.fleet.events import HeldCopy, QuarantineAsked, WitnessHeld, WitnessLost
from evermirror.model.repo import RepoKey
from evermirror.sim.fleet.messages import CHUNK
from evermirror.sim.fleet.network import UP
from evermirror.sim.fleet.worker import digest

if TYPE_CHECKING:
    from tests.support.sim.fleet.world import World

FETCH_S = 10.0  # mean time from a report to the fetched copy
FOUND_OUT = 0.2  # chance that one look at a liar's report finds it out
ASK_S = 60.0  # between two requests: while it waits, and, shorter than a lease, while it runs
DONE_CHANCE = 0.15  # each time: many run longer than a lease and must renew it
TIRED_CHANCE = 0.05  # each time while it waits: somebody lost interest


class Witness:
    def __init__(self, world: World, share: float) -> None:
        self.world = world
        self.disk: dict[RepoKey, int] = {}  # complete copies and their versions
        self.up = True
        self._limit = int(share * 2.0**64)

    def heard(self, index: int, copies: tuple[HeldCopy, ...]) -> None:
        """A worker reported these."""
        if not self._limit or not self.up:
            return
        keys = [copy.key for copy in copies if xxh3_64_intdigest(copy.key.encode(), 2) < self._limit]
        if keys:
            self.world.time.after(self.world.rng.expovariate(1 / FETCH_S), self._fetch, index, keys)

    def _fetch(self, index: int, keys: list[RepoKey]) -> None:
        worker = self.world.workers[index]
        if not self.up or not worker.up or not self.world.network.reachable(index):
            return
        if worker.lies is not None and worker.id is not None and self.world.rng.random() < FOUND_OUT:
            self.world.tell(f"{worker.name} was found out")
            self.world.ask(QuarantineAsked(worker.id, "what it serves differs from its report"))
            return
        got = []
        for key in keys:
            version = worker.disk.get(key)
            if version is not None and self.disk.get(key, 0) < version:
                self.disk[key] = version
                got.append(self._copy(key))
        if got:
            self.world.ask(WitnessHeld(tuple(got)))

    def introduce(self) -> None:
        """It, or the coordinator, is back: all that it holds."""
        held = list(self.disk) if self.up else []
        for start in range(0, len(held), CHUNK):
            self.world.ask(WitnessHeld(tuple(self._copy(key) for key in held[start : start + CHUNK])))

    def crash(self) -> None:
        if self.up:
            self.up = False
            self.world.ask(WitnessLost())

    def start(self) -> None:
        if not self.up:
            self.up = True
            self.introduce()

    def evict(self, keys: list[RepoKey]) -> None:
        """Its disk guard, or the end of the trash."""
        gone = tuple(key for key in keys if self.disk.pop(key, None) is not None)
        if gone and self.up:
            self.world.ask(WitnessLost(gone))

    def _copy(self, key: RepoKey) -> HeldCopy:
        return HeldCopy(key, digest(key, self.disk[key]), self.world.utc_s)


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """What a task says to the coordinator."""

    task: int
    back: bool = False


class Task:
    """One task on a worker's process; it runs while its lease lasts."""

    __slots__ = ("boot", "index", "number", "until_s")

    def __init__(self, number: int, index: int, boot: int) -> None:
        self.number = number
        self.index = index
        self.boot = boot
        self.until_s = 0.0  # UTC


class Tasks:
    """About twice as many as may run go round, so that some wait."""

    def __init__(self, world: World, limit: int | None) -> None:
        self.world = world
        self.limit = limit
        self.granted_total = 0
        self._tasks: dict[int, Task] = {}
        self._last = 0

    def begin(self) -> None:
        for _ in range(2 * self.limit if self.limit is not None else 0):
            self.world.time.after(self.world.rng.uniform(0, ASK_S), self._new)

    def running(self) -> int:
        return sum(self._runs(task) for task in self._tasks.values())

    def _runs(self, task: Task) -> bool:
        return task.until_s > self.world.utc_s and self._alive(task)

    def _alive(self, task: Task) -> bool:
        worker = self.world.workers[task.index]
        return worker.up and worker.boot == task.boot

    def _new(self) -> None:
        self._last += 1
        index = self.world.rng.randrange(len(self.world.workers))
        task = self._tasks[self._last] = Task(self._last, index, self.world.workers[index].boot)
        self._go_on(task)

    def _go_on(self, task: Task) -> None:
        """Ask, for the first time or again; or end."""
        chance = DONE_CHANCE if self._runs(task) else TIRED_CHANCE
        over = not self._alive(task) or self.world.rng.random() < chance
        worker = self.world.workers[task.index]
        if worker.connected and worker.link is not None and worker.boot == task.boot:
            self.world.network.send(worker.link, UP, LeaseWish(task.number, back=over))
        if over:
            del self._tasks[task.number]
            self.world.time.after(ASK_S, self._new)
        else:
            self.world.time.after(ASK_S, self._go_on, task)

    def granted(self, index: int, lease: GrantLease) -> None:
        task = self._tasks.get(lease.task)
        if task is None or task.index != index or not self._alive(task):
            return
        task.until_s = max(task.until_s, lease.until_s)
        self.granted_total += 1
        if self.limit is not None and self.running() > self.limit:
            self.world.broken("leases", f"{self.running()} tasks run, {self.limit} may")
