"""The fleet's mind in a process: workers' connections in, commands out.

Peer ──frames──▶ _listen ──events──▶ Enactor: decided, persisted ──▶ _act ──▶ the peers' senders
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from evermirror.core.fleet.decisions import (
    AckReports,
    Action,
    Alert,
    CompareRanges,
    DutyChanged,
    EventFailed,
    Refuse,
    Send,
    Undelivered,
    Welcome,
)
from evermirror.core.fleet.events import (
    CommandGiven,
    CommandsAcked,
    Event,
    HeartbeatHeard,
    HeldTold,
    Moment,
    OtherReported,
    RangesCompared,
    ReportId,
    WorkerConnected,
    WorkerDisconnected,
)
from evermirror.core.fleet.letters import LettersLost
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.worker_texts import VERSION_CHARS_MAX, bounded_status
from evermirror.edge.rpc.bounds import BoundedPeer
from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.writes import WorkerBound, Write
from evermirror.model.access import Role
from evermirror.model.messages import Report
from evermirror.model.printable import short_line
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    Access,
    Answer,
    AskSource,
    Beat,
    Compare,
    Compared,
    Down,
    Hello,
    Holding,
    Numbered,
    Obeyed,
    Passing,
    Question,
    Rejected,
    Taken,
    Up,
    Welcomed,
)
from evermirror.model.worker import Duty, WorkerId, WorkerRecord, worker_facts
from evermirror.nodes.coordinator.believing import believed
from evermirror.nodes.coordinator.enacting import Enactor
from evermirror.nodes.coordinator.greeting import hello_of, refusal
from evermirror.nodes.coordinator.hearing import FailedReports, event_of, held_copies, written
from evermirror.nodes.coordinator.listener import Listener
from evermirror.nodes.coordinator.orders import Orders
from evermirror.nodes.coordinator.session import Connected, Make, Session
from evermirror.nodes.coordinator.turns import Turns

log = structlog.get_logger(__name__)

OWN_TOKEN = 0  # in place of a token's id: the worker in the coordinator's own process needs none
PROTOCOL_OF_PASSES = 2  # the first whose workers know them


class Fleet:
    """``serve`` each connection, ``run`` beside it; ``tell`` what happens elsewhere."""

    def __init__(
        self,
        machine: FleetMachine,
        *,
        recorder: Recorder,
        orders: Orders,
        bound: dict[int, WorkerId],
        listener: Listener,
        utc: Callable[[], float],
        http_url: str = "",
        access: Callable[[WorkerId], Access | None] | None = None,
        heard: Callable[[WorkerId, Report], None] = lambda worker, report: None,
        refs_extra: tuple[str, ...] = (),
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine = machine
        self._utc = utc
        self._enactor = Enactor(
            machine,
            recorder,
            act=self._act,
            reported=listener.reported,
            behind=listener.behind,
            now=lambda: Moment(mono(), utc()),
        )
        self._orders = orders
        self._bound = bound  # token → worker
        self._listener = listener
        self._mono = mono
        self._http_url = http_url
        self._refs_extra = refs_extra
        self._access = access  # what lets a worker read from others, and be read
        self._heard_of = heard  # every report that is believed
        self._numbers = 0
        self._sessions: dict[int, Session] = {}
        self._by_worker: dict[WorkerId, Session] = {}
        self._asked = 0
        self._questions: dict[tuple[int, int], asyncio.Future[Answer]] = {}  # by session and number
        self._turns = Turns()
        self._accepting: dict[WorkerId, bool] = {}  # as each last said
        self.on_duty: Callable[[WorkerRecord], None] = lambda record: None  # a worker's duty is another
        self.failed_reports = FailedReports()

    # What happens elsewhere

    async def run(self) -> None:
        """Ticks, and carries out what is decided, until cancelled."""
        await self._enactor.run()

    async def tell(self, event: Event, *writes: Write) -> None:
        """Handle an event; ``writes`` go into its transaction."""
        await self._enactor.tell(event, *writes)

    async def settled(self) -> None:
        """Until everything told so far is persisted and acted on, or nothing is any more."""
        await self._enactor.settled()

    def connected(self) -> frozenset[WorkerId]:
        return frozenset(self._by_worker)

    def worker_of(self, token: int) -> WorkerId | None:
        """That joined with this token."""
        return self._bound.get(token)

    def version_of(self, worker: WorkerId) -> str | None:
        """Of its program; None while it is not connected."""
        session = self._by_worker.get(worker)
        return session.version if session is not None else None

    def about(self, worker: WorkerId) -> Connected | None:
        """Who it is; None while it is not connected."""
        session = self._by_worker.get(worker)
        return session.about if session is not None else None

    def renew_access(self) -> None:
        """A new pass for everybody who has one: the old ones end, or the relays are others."""
        for session in list(self._by_worker.values()):
            if session.has_pass:
                self._give_access(session)

    def is_own(self, worker: WorkerId) -> bool:
        """Whether it is connected from within this process."""
        session = self._by_worker.get(worker)
        return session is not None and session.peer.identity.token_id == OWN_TOKEN

    # What is decided

    def _act(self, action: Action) -> None:
        match action:
            case Send():
                self._order(action)
            case AckReports(session=session, generation=generation, seq=seq):
                self._send(session, Taken(generation, seq))
                self._give_first_access(session)
            case Welcome():
                self._welcome(action)
            case Refuse(session=session, reason=reason):
                self._send(session, Rejected(reason, final=True))
            case Alert():
                self._listener.alert(action)
            case Undelivered(command=command):
                self._listener.undelivered(command)
            case DutyChanged(record=record):
                self._duty_changed(record)

    def _duty_changed(self, record: WorkerRecord) -> None:
        self.on_duty(record)
        session = self._by_worker.get(record.id)
        if record.duty is Duty.ACTIVE and session is not None and session.has_pass:
            self._give_access(session)  # it may have had none in quarantine

    def _order(self, send: Send) -> None:
        if isinstance(send.command, CompareRanges):
            self._send(send.session, Compare(send.seq, send.command.digests.values))
        else:
            self._queue(send.session, lambda: self._orders.ordered(send.worker, send.seq, send.command))

    def _welcome(self, action: Welcome) -> None:
        settings = self.machine.settings
        told = (settings.heartbeat_s, self._http_url, settings.redial_s, settings.grace_s)
        session = self._sessions.get(action.session)
        name = "" if session is None else session.name
        frame = Welcomed(action.worker, action.epoch, action.resumed, *told, name)
        if action.resumed:
            self._send(action.session, frame)
        else:
            self._queue(action.session, lambda: self._in_turn(action, frame))
            self._listener.began_anew(action.worker)

    async def _in_turn(self, action: Welcome, frame: Welcomed) -> Down:
        """Whoever waits to be welcomed is there all the same."""
        there = HeartbeatHeard(action.worker, action.session, self._accepting.get(action.worker, True))
        await self._turns.begin(action.session, lambda: self._enactor.handle(there), frame.heartbeat_s)
        return frame

    def _give_first_access(self, number: int) -> None:
        """Behind the first words, which everybody knows."""
        session = self._sessions.get(number)
        if session is not None and not session.has_pass and session.protocol >= PROTOCOL_OF_PASSES:
            session.has_pass = True
            self._give_access(session)

    def _give_access(self, session: Session) -> None:
        async def ready() -> Down | None:
            worker = session.worker
            if self._access is None or worker is None or self._by_worker.get(worker) is not session:
                return None  # by now the number may be another's
            return self._access(worker)

        self._queue(session.number, ready)

    def _send(self, session: int, frame: Down) -> None:
        async def ready() -> Down:
            return frame

        self._queue(session, ready)

    def _queue(self, number: int, make: Make) -> None:
        session = self._sessions.get(number)
        if session is None:
            return  # it is gone; what was meant for it follows again
        if not session.put(make):
            log.warning("worker does not read; its connection ends", peer=session.peer.address)
            self._sessions.pop(number, None)

    # One connection

    async def serve(self, peer: Peer) -> None:
        """A worker's connection from its first word to its end."""
        self._numbers += 1
        peer = BoundedPeer(peer, self._utc)
        session = Session(self._numbers, peer, heard_at=self._mono())
        try:
            hello = await hello_of(peer)
            refused = refusal(hello, peer.identity, Role.WORKER, self._refs_extra)
            refused = refused or self._twice(hello, peer.identity)
            if refused is None and hello.trial:
                await self._try(session, hello)
            elif refused is None:
                await self._converse(session, hello)
            else:
                await peer.send(refused)
                await peer.close(refused.reason)
        except (PeerGone, TimeoutError) as error:
            log.debug("connection ended", peer=peer.address, reason=str(error))
            await peer.close(str(error))
        finally:
            await self._end(session)

    def _twice(self, hello: Hello, identity: Identity) -> Rejected | None:
        worker = self._bound.get(identity.token_id)
        other = self._by_worker.get(worker) if worker is not None else None
        if other is not None and other.boot != hello.boot and self._lately_heard(other):
            reason = "another process with this token is connected; every worker needs a token of its own"
            return Rejected(reason, final=False)
        return None

    def _lately_heard(self, session: Session) -> bool:
        return self._mono() - session.heard_at < 2 * self.machine.settings.heartbeat_s

    async def _try(self, session: Session, hello: Hello) -> None:
        """It only asks whether it would be let in."""
        reason = self.machine.refusal(self._connected(session, hello))
        heartbeat_s = self.machine.settings.heartbeat_s
        answer = Welcomed(0, 0, resumed=False, heartbeat_s=heartbeat_s, name=hello.name)
        await session.peer.send(Rejected(reason, final=True) if reason else answer)
        await session.peer.close(reason or "it was a trial")

    def _connected(self, session: Session, hello: Hello) -> WorkerConnected:
        identity = session.peer.identity
        return WorkerConnected(
            session.number,
            self._bound.get(identity.token_id),
            worker_facts(hello.name, identity.trusted, identity.limits, hello.weight, hello.capacity),
            hello.boot,
            hello.generation,
            hello.epoch,
            hello.seen,
            hello.limits,
            serves=identity.token_id == OWN_TOKEN,
        )

    async def _converse(self, session: Session, hello: Hello) -> None:
        self._sessions[session.number] = session
        session.boot, session.name = hello.boot, hello.name
        session.version = short_line(hello.version, VERSION_CHARS_MAX)
        session.protocol = hello.protocol
        worker = self._enrol(self._connected(session, hello), session.peer.identity)
        if worker is not None:
            before = self._by_worker.get(worker)
            if before is not None:
                self._sessions.pop(before.number, None)
            session.worker = worker
            self._by_worker[worker] = session
        try:
            if worker is None:
                await self.settled()  # the reason is on its way by then
                await session.sent()
                await session.peer.close("refused")
            else:
                await self._listen(session, worker)
        finally:
            await session.stop()

    def _enrol(self, event: WorkerConnected, identity: Identity) -> WorkerId | None:
        """The worker's id, which is bound to the token in the same transaction that registers it."""
        decision = self._enactor.decide(event)
        welcome = next((a for a in decision.actions if isinstance(a, Welcome)), None)
        writes: tuple[Write, ...] = ()
        if welcome is not None and event.worker is None:
            for token in [t for t, w in self._bound.items() if w == welcome.worker]:
                del self._bound[token]  # of one that retired, whose id this was
            self._bound[identity.token_id] = welcome.worker
            writes = (WorkerBound(welcome.worker, identity.token_id),)
        self._enactor.enact(decision, *writes)
        return welcome.worker if welcome is not None else None

    async def _listen(self, session: Session, worker: WorkerId) -> None:
        while session.number in self._sessions:
            frame = await session.peer.receive()
            session.heard_at = self._mono()
            await self._enactor.room()
            try:
                self._heard(session, worker, frame)
            except (PeerGone, LettersLost):
                raise
            except Exception:
                kind = type(frame).__name__
                log.exception("a frame of a worker could not be handled", worker=session.name, frame=kind)
                raise PeerGone(f"the coordinator could not handle {kind}") from None

    def _heard(self, session: Session, worker: WorkerId, frame: Up) -> None:
        match frame:
            case Beat(status=status):
                status = bounded_status(status)
                accepting = status.accepting_clones or self._alone(session)
                self._accepting[worker] = accepting
                progress = hash(status.running) if status.running else 0
                self._enactor.handle(HeartbeatHeard(worker, session.number, accepting, progress))
                self._listener.beat(worker, status)
            case Numbered():
                for n, report in enumerate(frame.reports):
                    self._take(ReportId(worker, session.number, frame.generation, frame.first + n), report)
            case Passing(progress=progress):
                for one in progress:
                    self._listener.passing(worker, one)
            case Obeyed(seq=seq):
                self._enactor.handle(CommandsAcked(worker, session.number, seq))
                if not session.waiting:
                    self._turns.end(session.number)
            case Holding(items=items, last=last):
                with collector_paused():  # a thousand repos, and as many to be told in turn
                    self._enactor.handle(HeldTold(worker, session.number, held_copies(items), last))
                if last and not items:  # no command follows
                    self._turns.end(session.number)
            case Compared(ranges=ranges, items=items):
                self._enactor.handle(RangesCompared(worker, session.number, ranges, held_copies(items)))
            case AskSource(key=key):
                if self.machine.speaks_for(key, worker):  # else nothing follows, whether it exists or not
                    self._enactor.handle(CommandGiven(worker, frame))
            case Answer(number=number):
                waiting = self._questions.pop((session.number, number), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
            case Hello():
                raise PeerGone("a second hello")
            case _:
                raise PeerGone(f"{type(frame).__name__} is not for a worker to say")

    def _alone(self, session: Session) -> bool:
        """Our own worker, and no other: clones that it has no room for wait there."""
        return session.peer.identity.token_id == OWN_TOKEN and len(self._bound) == 1

    def _take(self, id_: ReportId, report: Report) -> None:
        try:
            self._take_in(id_, report)
        except LettersLost:
            raise
        except Exception:
            if not self.failed_reports.failed(id_, report):
                reason = f"the coordinator could not handle {type(report).__name__}: it is to be sent again"
                raise PeerGone(reason) from None
            self._enactor.handle(OtherReported(id_))
            self._listener.disbelieved(id_.worker, report)

    def _take_in(self, id_: ReportId, report: Report) -> None:
        worker, machine, listener = id_.worker, self.machine, self._listener
        counts = believed(report, lambda key: machine.speaks_for(key, worker), listener.open_tasks)
        event = OtherReported(id_) if counts is None else event_of(id_, counts)
        decision = self._enactor.decide(event)
        if not decision.writes:  # else at least that it was taken: it is new
            self._enactor.enact(decision)
        elif counts is None:
            log.warning("a report about a repo that the worker was not given", worker=worker)
            self._enactor.enact(decision)
            listener.disbelieved(worker, report)
        else:
            try:
                counts = listener.understood(worker, counts)
                self._heard_of(worker, counts)
                writes = written(machine, worker, counts)
            except Exception:
                self._enactor.enact(machine.untaken(decision))
                raise
            self._enactor.enact(decision, *writes, report=(worker, counts))

    async def _end(self, session: Session) -> None:
        self._sessions.pop(session.number, None)
        self._turns.end(session.number)
        for key, waiting in list(self._questions.items()):
            if key[0] == session.number and not waiting.done():
                waiting.set_exception(PeerGone("the worker went away"))
        if session.worker is not None and self._by_worker.get(session.worker) is session:
            del self._by_worker[session.worker]
            try:
                self._enactor.handle(WorkerDisconnected(session.worker, session.number))
            except LettersLost:
                pass  # all ends by it
            except EventFailed:
                log.exception("the end of a connection could not be handled", worker=session.name)
            self._listener.gone(session.worker)
        with contextlib.suppress(PeerGone):
            await session.peer.close("")

    # Small reads

    async def ask(self, worker: WorkerId, what: str, key: RepoKey, timeout_s: float) -> Answer:
        """A question to a worker; raises PeerGone or TimeoutError."""
        session = self._by_worker.get(worker)
        if session is None:
            raise PeerGone("the worker is not connected")
        self._asked += 1
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions[session.number, self._asked] = waiting
        number = self._asked
        self._send(session.number, Question(number, what, key))
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        finally:
            self._questions.pop((session.number, number), None)
