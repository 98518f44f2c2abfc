"""A small stage for the fleet's machine: actors that do only what a script says, no network, no chance.

The machine, its writes and its crashes are real; workers are actors. An actor on its own only
- sends heartbeats while it is connected and not silent,
- takes in every command as it comes (unless it is deaf), without doing any of them,
- tells all that it holds when it is welcomed afresh (unless it is to wait).
Everything that the machine tells somebody becomes a ``Line``, which the script expects or does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from evermirror.core.fleet.decisions import (
    AckReports,
    Action,
    Alert,
    Assign,
    Nudge,
    Refuse,
    Release,
    Send,
    Undelivered,
    Welcome,
)
from evermirror.core.fleet.events import (
    CatalogChanged,
    CommandsAcked,
    Event,
    HeartbeatHeard,
    HeldCopy,
    HeldTold,
    Moment,
    ReportId,
    Ticked,
    WorkerConnected,
    WorkerDisconnected,
)
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId
from tests.support.sim.fleet.store import SimStore

UTC_START_S = 1_700_000_000.0  # any time will do; a round number is easy to see in a failure

Report = Callable[[ReportId], Event]


@dataclass(frozen=True, slots=True)
class Line:
    """Something that the machine told somebody. Quiet ones need not be expected."""

    text: str  # "A is asked for github.com/x/one"
    details: frozenset[str] = frozenset()  # "as primary", "from B": expected only where a script names them
    quiet: bool = False

    def __str__(self) -> str:
        return ", ".join((self.text, *sorted(self.details)))


@dataclass(slots=True)
class Actor:
    """A worker as far as the machine can see one."""

    name: str
    facts: WorkerFacts
    id: WorkerId | None = None
    session: int = 0
    boot: int = 1
    generation: int = 1
    epoch: int = 0  # of the coordinator that it last spoke with
    seen: int = 0  # last command taken in
    connected: bool = False
    silent: bool = False
    deaf: bool = False
    waits: bool = False  # does not tell what it holds until it is told to
    accepting: bool = True
    disk: dict[RepoKey, int] = field(default_factory=dict)  # complete ones, and their version
    seq: int = 0  # of its last report
    unknown: dict[int, Report] = field(default_factory=dict)  # reports not yet acknowledged
    sent: dict[int, Report] = field(default_factory=dict)  # all reports of this generation
    late: list[Event] = field(default_factory=list)  # on their way, for a long time

    @property
    def number(self) -> WorkerId:
        if self.id is None:
            raise LookupError(f"{self.name} has not joined")
        return self.id

    def holds(self) -> tuple[HeldCopy, ...]:
        return tuple(HeldCopy(key, version) for key, version in self.disk.items())


class Stage:
    """``do`` an event, ``pass_until`` a time; ``lines`` is what the machine said meanwhile."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        self.now_s = 0.0
        self.epoch = 1
        self.store = SimStore()
        self.actors: dict[str, Actor] = {}
        self.lines: list[Line] = []
        self.crash: str | None = None  # "writes" or "acts": where the coordinator dies during the next event
        self.machine = FleetMachine(settings, self.epoch, self.moment())
        self._sessions = 0
        self._turns: deque[Callable[[], None]] = deque()
        self._busy = False
        self._beat_at = 0.0

    def moment(self) -> Moment:
        return Moment(self.now_s, UTC_START_S + self.now_s)

    def actor(self, name: str) -> Actor:
        if name not in self.actors:
            self.actors[name] = Actor(name, WorkerFacts(name))
        return self.actors[name]

    def known(self, name: str) -> Actor:
        if name not in self.actors:
            raise LookupError(f"{name} has not joined")
        return self.actors[name]

    def by_id(self, worker: WorkerId) -> Actor:
        return next(actor for actor in self.actors.values() if actor.id == worker)

    # What happens

    def do(self, event: Event) -> None:
        """One event, and all that actors answer to it; one that an actor causes waits for its turn."""
        self._turns.append(lambda: self._handle(event))
        self._take_turns()

    def _take_turns(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._turns:
                self._turns.popleft()()
        finally:
            self._busy = False

    def _handle(self, event: Event) -> None:
        """One event, to its end or until the coordinator dies."""
        crash, self.crash = self.crash, None
        decision = self.machine.handle(event, self.moment())
        if crash == "writes":
            self.restart()
            return
        self.store.commit(decision.writes, event if isinstance(event, CatalogChanged) else None)
        if crash == "acts":
            self.restart()
            return
        for action in decision.actions:
            self._act(action)

    def pass_until(self, now_s: float) -> None:
        """Ticks and heartbeats; then it is ``now_s``."""
        tick_s = self.settings.tick_s
        while self.now_s + tick_s <= now_s:
            self.now_s += tick_s
            if self.now_s >= self._beat_at:
                self._beat_at = self.now_s + self.settings.heartbeat_s
                for actor in list(self.actors.values()):
                    self.beat(actor)
            self.do(Ticked())
        self.now_s = now_s

    def sleep(self, seconds: float) -> None:
        """The coordinator is stopped for a while and goes on; what workers sent meanwhile waits for it."""
        self.now_s += seconds
        self.do(Ticked())
        for actor in list(self.actors.values()):
            self.beat(actor)

    def restart(self) -> None:
        """The coordinator's process dies, and a new one starts from what was written."""
        self.epoch += 1
        self._turns.clear()
        for actor in self.actors.values():
            actor.connected = False
        self.machine = FleetMachine(self.settings, self.epoch, self.moment(), self.store.restored())

    def beat(self, actor: Actor) -> None:
        if actor.connected and not actor.silent:
            self.do(HeartbeatHeard(actor.number, actor.session, actor.accepting))

    def connect(self, actor: Actor) -> None:
        self._sessions += 1
        actor.session, actor.connected, actor.silent, actor.deaf = self._sessions, True, False, False
        self.do(
            WorkerConnected(
                actor.session, actor.id, actor.facts, actor.boot, actor.generation, actor.epoch, actor.seen
            )
        )

    def disconnect(self, actor: Actor) -> None:
        actor.connected = False
        self.do(WorkerDisconnected(actor.number, actor.session))

    def report(self, actor: Actor, report: Report, fate: str = "arrives") -> None:
        """``fate``: it arrives, is lost, or is late (and then arrives under the session it was sent in)."""
        actor.seq += 1
        actor.unknown[actor.seq] = actor.sent[actor.seq] = report
        event = report(self._id(actor, actor.seq))
        if fate == "late":
            actor.late.append(event)
        elif fate == "arrives":
            self.do(event)

    def send_again(self, actor: Actor) -> None:
        """All reports that are not known to have arrived, in order."""
        for seq, report in list(actor.unknown.items()):
            self.do(report(self._id(actor, seq)))

    def repeat(self, actor: Actor, seq: int) -> None:
        """An earlier report, whether it is known or not."""
        if seq not in actor.sent:
            raise LookupError(f"{actor.name} has sent no report {seq}")
        self.do(actor.sent[seq](self._id(actor, seq)))

    def tell_all(self, actor: Actor) -> None:
        """What it holds, at the start of a fresh session."""
        self.do(HeldTold(actor.number, actor.session, actor.holds(), last=True))

    def lose_file(self, actor: Actor) -> None:
        """Its local file is gone: its numbers begin anew."""
        actor.generation += 1
        actor.seq = 0
        actor.unknown.clear()
        actor.sent.clear()

    def _id(self, actor: Actor, seq: int) -> ReportId:
        return ReportId(actor.number, actor.session, actor.generation, seq)

    # What the machine says

    def _act(self, action: Action) -> None:
        match action:
            case Welcome():
                self._welcomed(action)
            case AckReports(worker, _, _, seq):
                actor = self.by_id(worker)
                for known in [n for n in actor.unknown if n <= seq]:
                    del actor.unknown[known]
                self._say(f"{actor.name}'s reports are known up to {seq}", quiet=True)
            case Send(worker, session, seq):
                self._sent(self.by_id(worker), session, seq, action)
            case Refuse(session, _):
                refused = next(actor for actor in self.actors.values() if actor.session == session)
                refused.connected = False
                self._say(f"{refused.name} is refused")
            case Alert(kind, _, _, over):
                self._say(f"alert {kind.value} is over" if over else f"alert {kind.value}")
            case Undelivered(worker):
                self._say(f"a command for {self.by_id(worker).name} comes back")

    def _welcomed(self, welcome: Welcome) -> None:
        actor = next(actor for actor in self.actors.values() if actor.session == welcome.session)
        actor.id, actor.epoch = welcome.worker, welcome.epoch
        self._say(f"{actor.name} is welcomed {'back' if welcome.resumed else 'afresh'}", quiet=True)
        if welcome.resumed:
            self._turns.append(lambda: self.send_again(actor))
            return
        actor.seen = 0
        if not actor.waits:
            self._turns.append(lambda: self.send_again(actor))  # once it knows what is known
            self._turns.append(lambda: self.tell_all(actor))

    def _sent(self, actor: Actor, session: int, seq: int, send: Send) -> None:
        for line in self._words(actor, send):
            self._say(line.text, line.details, line.quiet)
        if session != actor.session or not actor.connected:
            raise AssertionError(f"a command was sent to {actor.name} over a connection that is gone")
        if actor.deaf:
            return
        if seq > actor.seen + 1:
            raise AssertionError(f"command {actor.seen + 1} to {actor.name} was left out: {seq} came")
        actor.seen = max(actor.seen, seq)
        self.do(CommandsAcked(actor.number, session, actor.seen))

    def _words(self, actor: Actor, send: Send) -> list[Line]:
        match send.command:
            case Assign(items):
                lines = []
                for item in items:
                    if item.key in actor.disk:
                        lines.append(
                            Line(f"{actor.name} {'leads' if item.primary else 'follows'} {item.key}")
                        )
                        continue
                    source = "upstream" if item.source is None else self.by_id(item.source).name
                    role = "as primary" if item.primary else "as follower"
                    details = {role, f"from {source}", *(("at the front",) if item.orphan else ())}
                    lines.append(Line(f"{actor.name} is asked for {item.key}", frozenset(details)))
                return lines
            case Release(keys, True, digests):
                return [
                    Line(
                        f"{actor.name} is told to delete {key}",
                        frozenset({f"at v{version}"} if version else ()),
                    )
                    for key, version in zip(keys, digests, strict=True)
                ]
            case Release(keys, False):
                return [Line(f"{actor.name} is told to stop {key}") for key in keys]
            case Nudge(keys):
                return [Line(f"{actor.name} is nudged about {key}") for key in keys]
            case _:
                return [Line(f"{actor.name} is asked to compare", quiet=True)]

    def _say(self, text: str, details: frozenset[str] = frozenset(), quiet: bool = False) -> None:
        self.lines.append(Line(text, details, quiet))


def with_facts(actor: Actor, **changes: object) -> None:
    """Its token or its own settings say something else from now on."""
    actor.facts = replace(actor.facts, **changes)  # type: ignore[arg-type]
