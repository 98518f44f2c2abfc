"""The coordinator's shell, simulated: messages become events, the machine decides, its actions are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evermirror.core.fleet.decisions import AckReports, Action, Refuse, Send, Welcome
from evermirror.core.fleet.events import (
    CatalogChanged,
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
from evermirror.model.worker import WorkerId
from evermirror.sim.fleet.messages import Beat, Compared, Hello, Report, Told, Took
from evermirror.sim.fleet.network import DOWN, UP, Link

if TYPE_CHECKING:
    from evermirror.sim.fleet.world import FleetWorld

UTC_START = 1_700_000_000.0  # any; persisted times are UTC


class SimCoordinator:
    """One event at a time. Its monotonic clock begins anywhere."""

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
