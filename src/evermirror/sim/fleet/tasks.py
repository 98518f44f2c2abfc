"""Tasks of the pull strategy, simulated: they ask for a slot, run while it lasts, and give it back.

The promise checked here: never more than the limit run in the whole fleet at once. A task ends with its
worker's process, and when its lease ends; a grant that comes late counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evermirror.core.fleet.decisions import GrantLease
from evermirror.sim.fleet.messages import LeaseWish
from evermirror.sim.fleet.network import UP

if TYPE_CHECKING:
    from evermirror.sim.fleet.world import World

ASK_S = 60.0  # between two requests: while it waits, and, shorter than a lease, while it runs
DONE_CHANCE = 0.15  # each time: many run longer than a lease and must renew it
TIRED_CHANCE = 0.05  # each time while it waits: somebody lost interest


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
