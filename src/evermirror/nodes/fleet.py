"""The fleet's mind in a process: workers' connections in, commands out.

Peer ──frames──▶ _listen ──events──▶ Enactor: decided, persisted ──▶ _act ──▶ the peers' senders
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from evermirror.core.fleet.decisions import (
    AckReports,
    Action,
    Alert,
    CompareRanges,
    GrantLease,
    Refuse,
    Send,
    Undelivered,
    Welcome,
)
from evermirror.core.fleet.events import (
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
from evermirror.core.fleet.machine import FleetMachine
from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.writes import WorkerBound, Write, writes_of
from evermirror.model.access import Role
from evermirror.model.failure import FailureError
from evermirror.model.messages import Report
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    PROTOCOL_OLDEST,
    Answer,
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
from evermirror.model.worker import WorkerFacts, WorkerId
from evermirror.nodes.believing import believed
from evermirror.nodes.enacting import Enactor
from evermirror.nodes.hearing import event_of, held_copies
from evermirror.nodes.listener import Listener
from evermirror.nodes.orders import Orders

log = structlog.get_logger(__name__)

OWN_TOKEN = 0  # in place of a token's id: the worker in the coordinator's own process needs none
NAME_MAX = 100  # characters, as the setting
HELLO_S = 10.0  # a connection that does not say who it is ends
SENDING_MAX = 2048  # frames on their way to one worker; twice what may be unacknowledged


@dataclass(slots=True)
class _Session:
    """One connection. ``frames`` are made ready and sent by its own task, in order."""

    number: int
    peer: Peer
    frames: asyncio.Queue[Callable[[], Awaitable[Down | None]]] = field(
        default_factory=lambda: asyncio.Queue(SENDING_MAX)
    )
    worker: WorkerId | None = None
    heard_at: float = 0.0  # monotonic
    boot: int = 0
    version: str = ""


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
        self._numbers = 0
        self._sessions: dict[int, _Session] = {}
        self._by_worker: dict[WorkerId, _Session] = {}
        self._asked = 0
        self._questions: dict[tuple[int, int], asyncio.Future[Answer]] = {}  # by session and number

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

    def version_of(self, worker: WorkerId) -> str | None:
        """Of its program; None while it is not connected."""
        session = self._by_worker.get(worker)
        return session.version if session is not None else None

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
            case Welcome():
                self._welcome(action)
            case Refuse(session=session, reason=reason):
                self._send(session, Rejected(reason, final=True))
            case Alert():
                self._listener.alert(action)
            case Undelivered(command=command):
                self._listener.undelivered(command)
            case GrantLease():
                raise RuntimeError("a slot was granted that nobody asked for")

    def _order(self, send: Send) -> None:
        if isinstance(send.command, CompareRanges):
            self._send(send.session, Compare(send.seq, send.command.digests.values))
        else:
            self._queue(send.session, lambda: self._orders.ordered(send.seq, send.command))

    def _welcome(self, action: Welcome) -> None:
        settings = self.machine.settings
        frame = Welcomed(action.worker, action.epoch, action.resumed, settings.heartbeat_s, self._http_url)
        self._send(action.session, frame)
        if not action.resumed:
            self._listener.began_anew(action.worker)

    def _send(self, session: int, frame: Down) -> None:
        async def ready() -> Down:
            return frame

        self._queue(session, ready)

    def _queue(self, number: int, make: Callable[[], Awaitable[Down | None]]) -> None:
        session = self._sessions.get(number)
        if session is None:
            return  # it is gone; what was meant for it follows again
        try:
            session.frames.put_nowait(make)
        except asyncio.QueueFull:
            log.warning("worker does not read; its connection ends", peer=session.peer.address)
            self._sessions.pop(number, None)

    # One connection

    async def serve(self, peer: Peer) -> None:
        """A worker's connection from its first word to its end."""
        self._numbers += 1
        session = _Session(self._numbers, peer, heard_at=self._mono())
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await peer.receive()
            if not isinstance(hello, Hello):
                raise PeerGone("the first frame must be a hello")
            refusal = self._refusal(hello, peer.identity)
            if refusal is None:
                await self._converse(session, hello)
            else:
                await peer.send(refusal)
                await peer.close(refusal.reason)
        except (PeerGone, TimeoutError) as error:
            log.debug("connection ended", peer=peer.address, reason=str(error))
        finally:
            await self._end(session)

    def _refusal(self, hello: Hello, identity: Identity) -> Rejected | None:
        if identity.role is not Role.WORKER:
            return Rejected(f"this token is for a {identity.role.value}, not for a worker", final=True)
        if hello.protocol < PROTOCOL_OLDEST:
            return Rejected(
                f"protocol {hello.protocol} is too old, {PROTOCOL_OLDEST} is needed: upgrade the worker",
                final=True,
            )
        if not hello.name.isprintable() or "/" in hello.name or not 0 < len(hello.name.strip()) <= NAME_MAX:
            reason = f"{hello.name!r} is no name for a worker: printable, without a slash, at most {NAME_MAX}"
            return Rejected(reason, final=True)
        worker = self._bound.get(identity.token_id)
        other = self._by_worker.get(worker) if worker is not None else None
        if other is not None and other.boot != hello.boot and self._lately_heard(other):
            reason = "another process with this token is connected; every worker needs a token of its own"
            return Rejected(reason, final=False)
        return None

    def _lately_heard(self, session: _Session) -> bool:
        return self._mono() - session.heard_at < 2 * self.machine.settings.heartbeat_s

    async def _converse(self, session: _Session, hello: Hello) -> None:
        identity = session.peer.identity
        self._sessions[session.number] = session
        session.boot, session.version = hello.boot, hello.version
        facts = WorkerFacts(hello.name, identity.trusted, hello.weight, hello.capacity)
        bound = self._bound.get(identity.token_id)
        event = WorkerConnected(
            session.number, bound, facts, hello.boot, hello.generation, hello.epoch, hello.seen
        )
        worker = self._enrol(event, identity)
        if worker is not None:
            before = self._by_worker.get(worker)
            if before is not None:
                self._sessions.pop(before.number, None)
            session.worker = worker
            self._by_worker[worker] = session
        sender = asyncio.create_task(self._keep_sending(session), name="to a worker")
        try:
            if worker is None:
                await self.settled()  # the reason is on its way by then
                await session.frames.join()
                await session.peer.close("refused")
            else:
                await self._listen(session, worker)
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

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

    async def _keep_sending(self, session: _Session) -> None:
        """Until it cannot: then the connection ends, which whoever listens notices."""
        try:
            while True:
                make = await session.frames.get()
                try:
                    frame = await make()
                    if frame is not None:
                        await session.peer.send(frame)
                finally:
                    session.frames.task_done()
        except PeerGone:
            return
        except FailureError as error:
            await session.peer.close(error.failure.message)
        except Exception:
            log.exception("a command could not be sent", peer=session.peer.address)
            await session.peer.close("the coordinator failed")

    async def _listen(self, session: _Session, worker: WorkerId) -> None:
        while session.number in self._sessions:
            frame = await session.peer.receive()
            session.heard_at = self._mono()
            await self._enactor.room()
            self._heard(session, worker, frame)

    def _heard(self, session: _Session, worker: WorkerId, frame: Up) -> None:
        match frame:
            case Beat(status=status):
                accepting = status.accepting_clones or self._alone(session)
                self._enactor.handle(HeartbeatHeard(worker, session.number, accepting))
                self._listener.beat(worker, status)
            case Numbered():
                for n, report in enumerate(frame.reports):
                    self._take(ReportId(worker, session.number, frame.generation, frame.first + n), report)
            case Passing(progress=progress):
                for one in progress:
                    self._listener.passing(worker, one)
            case Obeyed(seq=seq):
                self._enactor.handle(CommandsAcked(worker, session.number, seq))
            case Holding(items=items, last=last):
                self._enactor.handle(HeldTold(worker, session.number, held_copies(items), last))
            case Compared(ranges=ranges, items=items):
                self._enactor.handle(RangesCompared(worker, session.number, ranges, held_copies(items)))
            case Answer(number=number):
                waiting = self._questions.pop((session.number, number), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
            case Hello():
                raise PeerGone("a second hello")

    def _alone(self, session: _Session) -> bool:
        """Our own worker, and no other: clones that it has no room for wait there."""
        return session.peer.identity.token_id == OWN_TOKEN and len(self._bound) == 1

    def _take(self, id_: ReportId, report: Report) -> None:
        worker, machine = id_.worker, self.machine
        counts = believed(
            report, lambda key: machine.speaks_for(key, worker), self._listener.open_tasks, self._utc()
        )
        event = OtherReported(id_) if counts is None else event_of(id_, counts)
        if counts is None:
            log.warning("a report about a repo that the worker was not given", worker=worker)
        decision = self._enactor.decide(event)
        if decision.writes and counts is not None:  # at least that it was taken: it is new
            self._enactor.enact(decision, *writes_of(counts), report=(worker, counts))
        else:
            self._enactor.enact(decision)

    async def _end(self, session: _Session) -> None:
        self._sessions.pop(session.number, None)
        for key, waiting in list(self._questions.items()):
            if key[0] == session.number and not waiting.done():
                waiting.set_exception(PeerGone("the worker went away"))
        if session.worker is not None and self._by_worker.get(session.worker) is session:
            del self._by_worker[session.worker]
            self._enactor.handle(WorkerDisconnected(session.worker, session.number))
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
