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
from enum import Enum
from typing import TYPE_CHECKING, Any

from evermirror.core.fleet.decisions import (
    AckReports,
    Action,
    Alert,
    Refuse,
    Send,
    Undelivered,
    Welcome,
)
from evermirror.core.fleet.events import (
    CatalogChanged,
    CommandsAcked,
    CopiesVerified,
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
from evermirror.model.worker import WorkerId
from evermirror.sim.fleet.messages import Beat, Compared, Hello, Report, Told, Took
from evermirror.sim.fleet.network import DOWN, UP, Link

if TYPE_CHECKING:
    from evermirror.sim.fleet.world import World

BACKLOG = 128  # connections that wait for a stalled process; more are refused


class CrashPoint(Enum):
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"
    ACTIONS = "actions"


class SimCoordinator:
    def __init__(self, world: World) -> None:
        self.world = world
        self.machine: FleetMachine | None = None
        self.epoch = 0
        self.events = 0
        self.alerts: dict[tuple[str, str], Alert] = {}  # raised and not over
        self.stalled = False
        self._armed: CrashPoint | None = None
        self._waiting: deque[tuple[Link | None, Any]] = deque()
        self._greetings = 0  # among them
        self._ids: dict[int, WorkerId] = {}  # by session
        self._mono_base = 0.0

    @property
    def listens(self) -> bool:
        return self.machine is not None and self._greetings < BACKLOG

    @property
    def moment(self) -> Moment:
        return Moment(self.world.time.now + self._mono_base, self.world.utc_s)

    # Its life

    def start(self) -> None:
        if self.machine is not None:
            return
        self.epoch += 1
        self._mono_base = self.world.rng.uniform(-1e6, 1e6)
        store = self.world.store
        restored = store.restored() if self.epoch > 1 else None
        self.machine = FleetMachine(self.world.plan.settings, self.epoch, self.moment, restored)
        self.alerts.clear()
        self.world.tell(f"coordinator started, epoch {self.epoch}")
        self.world.checks.on_restart(self.world.time.now)
        self.take_in_catalog()
        self.world.witness.introduce()
        self._tick(self.epoch)

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
            self._handle(Ticked())
        self._greetings = 0
        while self._waiting and self.machine is not None and not self.stalled:
            link, message = self._waiting.popleft()
            self._understand(link, message)

    def _tick(self, epoch: int) -> None:
        if epoch != self.epoch or self.machine is None:
            return
        if not self.stalled:
            self._handle(Ticked())
        self.world.time.after(self.world.plan.settings.tick_s, self._tick, epoch)

    # In

    def ask(self, event: Event) -> None:
        """From people, the aggregator and others on the same machine; lost while it is down."""
        if self.machine is not None:
            self._take(None, event)

    def take_in_catalog(self) -> None:
        """The commits that were not taken in yet."""
        commits = self.world.catalog.commits
        while self.machine is not None and not self.stalled and self.world.store.catalog_at < len(commits):
            self._handle(commits[self.world.store.catalog_at])

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
            self._handle(message)
            return
        session = link.session
        if isinstance(message, Hello):
            worker = self.world.store.id_of(message.facts.name) if message.worker is None else message.worker
            self._handle(
                WorkerConnected(
                    session,
                    worker,
                    message.facts,
                    message.boot,
                    message.generation,
                    message.epoch,
                    message.seen,
                    message.limits,
                    serves=self.world.serves(link.index),
                )
            )
            return
        worker = self._ids.get(session)
        if worker is None:
            return
        match message:
            case Beat(accepting, progress):
                self._handle(HeartbeatHeard(worker, session, accepting, progress))
            case Took(seq):
                self._handle(CommandsAcked(worker, session, seq))
            case Report():
                self._handle(report := message.event(worker, session))
                if isinstance(report, CopiesVerified):
                    self.world.witness.heard(link.index, report.copies)
            case Told(copies, last):
                self._handle(HeldTold(worker, session, copies, last))
                self.world.witness.heard(link.index, copies)
            case Compared(ranges, copies):
                self._handle(RangesCompared(worker, session, ranges, copies))
            case None:
                del self._ids[session]
                self._handle(WorkerDisconnected(worker, session))
            case _:
                self.world.broken("messages", f"{message!r} from worker {worker}")

    # Decide, commit, act

    def _handle(self, event: Event) -> None:
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
            case Send():
                self._send(action.session, action)
            case AckReports(worker, session, generation, seq):
                self.world.checks.on_report_acked(worker, generation, seq, self.world.time.now)
                self._send(session, action)
            case Welcome(session, worker):
                self._ids[session] = worker
                self._send(session, action)
            case Refuse(session):
                self._send(session, action)
            case Undelivered(worker):
                self.world.tell(f"a command for worker {worker} was not delivered")
            case Alert(kind, about, text, over):
                self.world.tell(f"alert {kind.value} {about}{' over' if over else ''}: {text}")
                if over:
                    self.alerts.pop((kind.value, about), None)
                else:
                    self.alerts[kind.value, about] = action

    def _send(self, session: int, message: Any) -> None:
        link = self.world.network.links.get(session)
        if link is not None and link.open[UP]:
            self.world.network.send(link, DOWN, message)
