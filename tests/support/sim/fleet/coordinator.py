"""The coordinator's shell, faked: events in, writes committed, then actions; and crashes between any two.

Rules
- One event at a time: the machine decides, its writes are committed with the event's own rows, actions start.
- A crash loses the machine and every link. What was committed is all that the next process knows.
- A stalled process handles nothing; what comes meanwhile waits, and its timer is simply late.
- Its monotonic clock begins anywhere: nothing of it may be remembered by a later process.

   RUNNING ── stall ──▶ STALLED ── over ──▶ RUNNING
      │ crash: at once, or armed: before the commit, after it, between two actions
      ▼
    DOWN ── start: a machine from the store, the next epoch ──▶ RUNNING
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from evermirror.core.fleet.decisions import AckReports, Action, Alert, Undelivered
from evermirror.core.fleet.events import (
    CatalogChanged,
    CopiesVerified,
    Event,
    Ticked,
    WorkerConnected,
)
from evermirror.core.fleet.machine import FleetMachine
from evermirror.model.worker import WorkerId
from evermirror.sim.fleet.messages import Hello, Report, Told
from evermirror.sim.fleet.network import Link
from evermirror.sim.fleet.world import SimCoordinator

if TYPE_CHECKING:
    from tests.support.sim.fleet.world import World

BACKLOG = 128  # connections that wait for a stalled process; more are refused


class CrashPoint(Enum):
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"
    ACTIONS = "actions"


class RoughCoordinator(SimCoordinator):
    world: World

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.epoch = 0
        self.alerts: dict[tuple[str, str], Alert] = {}  # raised and not over
        self.stalled = False
        self._armed: CrashPoint | None = None
        self._waiting: deque[tuple[Link | None, Any]] = deque()
        self._greetings = 0  # among them

    @property
    def listens(self) -> bool:
        return self.machine is not None and self._greetings < BACKLOG

    # Its life

    def start(self) -> None:
        if self.machine is not None:
            return
        self.epoch += 1
        self._mono_base = self.world.rng.uniform(-1e6, 1e6)
        store = self.world.store
        restored = store.restored() if self.epoch > 1 else None
        self.machine = FleetMachine(self.world.settings, self.epoch, self.moment, restored)
        self.alerts.clear()
        self.world.tell(f"coordinator started, epoch {self.epoch}")
        self.world.checks.on_restart(self.world.time.now)
        self.take_in_catalog()
        self.world.witness.introduce()
        self._tick_on(self.epoch)

    def crash(self, *, told: bool = True) -> None:
        """``told``: its machine lives and resets the links."""
        if self.machine is None:
            return
        self.world.tell(f"coordinator crashed, epoch {self.epoch}")
        self.machine = None
        self._armed = None
        self.stalled = False
        self._waiting.clear()
        self._greetings = 0
        self._ids.clear()
        self.world.network.coordinator_died(told=told)

    def arm(self, point: CrashPoint) -> None:
        """Crash at this point of the next decision that has something to write or do."""
        self._armed = point

    def stall(self) -> None:
        self.stalled = self.machine is not None

    def wake(self) -> None:
        """All that waited is handled now; its timer comes before or after, as chance has it."""
        if not self.stalled:
            return
        self.stalled = False
        if self.world.rng.random() < 0.5:
            self.handle(Ticked())
        self._greetings = 0
        while self._waiting and self.machine is not None and not self.stalled:
            link, message = self._waiting.popleft()
            self._understand(link, message)

    def _tick_on(self, epoch: int) -> None:
        if epoch != self.epoch or self.machine is None:
            return
        if not self.stalled:
            self.handle(Ticked())
        self.world.time.after(self.world.settings.tick_s, self._tick_on, epoch)

    # In

    def ask(self, event: Event) -> None:
        """From people, the aggregator and others on the same machine; lost while it is down."""
        if self.machine is not None:
            self._take(None, event)

    def take_in_catalog(self) -> None:
        """The commits that were not taken in yet."""
        commits = self.world.catalog.commits
        while self.machine is not None and not self.stalled and self.world.store.catalog_at < len(commits):
            self.handle(commits[self.world.store.catalog_at])

    def arrived(self, link: Link, message: Any) -> None:
        if self.stalled and isinstance(message, Hello):
            self._greetings += 1
        self._take(link, message)

    def closed(self, link: Link) -> None:
        self._take(link, None)

    def _take(self, link: Link | None, message: Any) -> None:
        if self.stalled:
            self._waiting.append((link, message))
        elif self.machine is not None:
            self._understand(link, message)

    def _understand(self, link: Link | None, message: Any) -> None:
        if link is None:
            self.handle(message)
        elif message is None:
            super().closed(link)
        else:
            super().arrived(link, message)

    def _connected(self, link: Link, hello: Hello) -> WorkerConnected:
        known = self.world.store.id_of(hello.facts.name) if hello.worker is None else hello.worker
        event = super()._connected(link, hello)
        return replace(event, worker=known, serves=self.world.serves(link.index))

    def _heard(self, link: Link, worker: WorkerId, message: Any) -> None:
        super()._heard(link, worker, message)
        if isinstance(message, Told):
            self.world.witness.heard(link.index, message.copies)
        elif isinstance(message, Report) and message.kind is CopiesVerified:
            self.world.witness.heard(link.index, message.rest[0])

    # Decide, commit, act

    def handle(self, event: Event) -> None:
        machine = self.machine
        if machine is None:
            return
        world = self.world
        now = world.time.now
        self.events += 1
        decision = machine.handle(event, self.moment)
        catalog = event if isinstance(event, CatalogChanged) else None
        writes, actions = decision.writes, decision.actions
        world.trace(event, decision)
        if writes or actions or catalog is not None:
            if self._armed is not None and self._crash_here(CrashPoint.BEFORE_COMMIT):
                return
            world.store.commit(writes, catalog)
            world.checks.on_decision(decision, now)
            if self._armed is not None and self._crash_here(CrashPoint.AFTER_COMMIT):
                return
            cut_at = world.rng.randrange(len(actions)) if self._armed is not None and actions else -1
            for number, action in enumerate(actions):
                if number == cut_at and self._crash_here(CrashPoint.ACTIONS):
                    return
                self._act(action)
        world.checks.on_step(now)

    def _crash_here(self, point: CrashPoint) -> bool:
        if self._armed is not point:
            return False
        self.crash(told=self.world.rng.random() < 0.5)
        self.world.coordinator_died()
        return True

    def _act(self, action: Action) -> None:
        match action:
            case AckReports(worker, _, generation, seq):
                self.world.checks.on_report_acked(worker, generation, seq, self.world.time.now)
            case Undelivered(worker):
                self.world.tell(f"a command for worker {worker} was not delivered")
            case Alert(kind, about, text, over):
                self.world.tell(f"alert {kind.value} {about}{' over' if over else ''}: {text}")
                if over:
                    self.alerts.pop((kind.value, about), None)
                else:
                    self.alerts[kind.value, about] = action
        super()._act(action)
